// host only
// Answers questions of HTTP from one thread, which waits for no client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "control/http_request.h"

namespace sluice {

// What clients may take of the process that serves them.
struct HttpLimits {
  size_t clients = 64;  // at a time; where all places are taken, who has said nothing for longest makes room
  uint64_t slow_ns = 5'000'000'000;         // for a question to come whole, and for an answer to be taken
  uint64_t idle_ns = 60'000'000'000;        // without a question
  uint64_t wrong_token_ns = 1'000'000'000;  // until a wrong token is answered
};

class HttpSocket {
 public:
  // Called from the serving thread, one at a time.
  using Answer = std::function<HttpAnswer(const HttpRequest& request)>;
  // What is to be told to whoever runs the process.
  using Warn = std::function<void(const std::string& text)>;

  // Listens at "ADDRESS:PORT", an IPv6 address in brackets; port 0: one that is free. Without a token only addresses of
  // this machine. Errors: that is not an address; the token is missing, or has less than 16 characters; the address is
  // taken, or not ours.
  static Result<std::unique_ptr<HttpSocket>> create(const std::string& where, std::string token);
  // What is wrong with it as "ADDRESS:PORT"; empty: nothing.
  static std::string check(const std::string& where);
  // Stops serving, after the answer that is being made.
  ~HttpSocket();
  HttpSocket(const HttpSocket&) = delete;
  HttpSocket& operator=(const HttpSocket&) = delete;

  // Starts the thread. Once. Errors: no thread can be started.
  Result<void> serve(Answer answer, Warn warn, const HttpLimits& limits = {});
  // "http://ADDRESS:PORT/", with the port that was taken.
  const std::string& url() const { return url_; }

 private:
  class Server;
  HttpSocket();
  std::string url_;
  std::unique_ptr<Server> server_;
};

}  // namespace sluice

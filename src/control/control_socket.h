// host only
// A Unix socket that answers lines: one line in, one line out. One thread serves all clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace sluice {

// What clients may take of the process that serves them.
struct ControlLimits {
  size_t clients = 64;  // that are served at a time; half of these places are the owner's alone
  // Bytes of a request. The owner (root, or who the process runs as) may send more than a short line, one client at a
  // time, so that all that wait take no more than a long line and a short one each.
  size_t short_line = size_t{1} << 20;
  size_t long_line = size_t{256} << 20;
  uint64_t slow_ns = 60'000'000'000;     // for a request to come whole, and for an answer to be taken
  uint64_t idle_ns = 3'600'000'000'000;  // without a request
  uint64_t grace_ns = 1'000'000'000;     // a client that said nothing for so long makes room where all places are taken
};

class ControlSocket {
 public:
  static constexpr size_t kMaxLine = ControlLimits{}.long_line;

  // An answer; or, where that may take long, what makes it: called on a thread of its own, one after another in the
  // order in which they were asked for, while others are answered.
  struct Reply {
    Reply(std::string answer) : text(std::move(answer)) {}
    Reply(std::function<std::string()> make) : later(std::move(make)) {}
    std::string text;
    std::function<std::string()> later;
  };
  // Gives the answer to a line, neither with its newline. Called from the serving thread, one at a time. There and in
  // what makes an answer later cancelled() (base/cancel.h) is true once the socket is to go, or the client is gone.
  // What makes an answer later is not called where its client is gone by then.
  using Answer = std::function<Reply(std::string_view line)>;
  // Gives the answer of a client that is not served.
  using Refusal = std::function<std::string(const Error& error)>;

  // Makes the socket, which only its owner may open. A socket whose process is gone is replaced. Errors: a process
  // answers there; something else has the name; the name is too long for a socket; the folder cannot be written.
  static Result<std::unique_ptr<ControlSocket>> create(const std::string& path);
  // Stops serving, after the answers that are being made, and removes the socket. What was to be made later and has not
  // begun is not made.
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  // Starts the threads. Clients take turns, an answer each. One whose line is too long, or that is too slow, is told so
  // and left; one that takes no answers is not read from. Where all places are taken, a client that has said nothing
  // for longest makes room, those of others before the owner's. Once. Errors: no thread can be started.
  Result<void> serve(Answer answer, Refusal refusal, const ControlLimits& limits = {});
  const std::string& path() const { return path_; }

 private:
  class Server;
  ControlSocket() = default;
  std::string path_;
  std::unique_ptr<Server> server_;
};

// Bytes of an answer that a client reads.
inline constexpr size_t kMaxAnswer = size_t{256} << 20;

// Sends a line and waits for the answer, for limit_ns in all. Errors: nobody answers there, with what to do; the other
// side takes no connections or goes away; no answer within the limit, or one of more than `most` bytes.
Result<std::string> ask(const std::string& path, std::string_view line, uint64_t limit_ns, size_t most = kMaxAnswer);

// Of processes that are no user's own; a service has it as its RuntimeDirectory.
inline constexpr const char* kSystemFolder = "/run/sluice";
// Where control sockets are when nothing else is said: $XDG_RUNTIME_DIR/sluice, else /run/sluice.
std::string control_folder();
// The socket that a client means that names none: $SLUICE_SOCKET, or the only one in control_folder(), else in
// `system_folder`, that a process answers at. Errors: there is none, or none that this user may use; there are several,
// with their names.
Result<std::string> find_control_socket(const std::string& system_folder = kSystemFolder);

}  // namespace sluice

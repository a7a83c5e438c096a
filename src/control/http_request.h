// host only
// A question of HTTP/1.1 (RFC 9112) that has no content, and its answer: what pages and scrapers ask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr size_t kMaxHttpRequest = 16384;  // bytes of a head

struct HttpRequest {
  int status = 200;  // else: how it is refused
  std::string method, path;
  std::map<std::string, std::string> query;
  std::string host, authorization;
  bool stays = true;  // the connection, for another question
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  uint64_t age_seconds = 0;  // that have passed since it was made
  bool asks_for_token = false;
};

// Bytes of the first head in `in`, with the empty line at its end; 0: it is not complete.
size_t http_head(std::string_view in);
// Whatever the bytes are.
HttpRequest parse_http(std::string_view head);
// With its head; without the body where `head_only`.
std::string write_http(const HttpAnswer& answer, bool stays, bool head_only);

// Takes as long whether it begins to differ early or late.
bool same_secret(std::string_view given, std::string_view secret);
// The token of "Bearer TOKEN", or of "Basic ..." its password; "": there is none.
std::string token_of(std::string_view authorization);
// Whether a browser can have been led to this name by nothing but an address, or localhost: a page of a stranger may
// let its own name lead here.
bool names_this_machine(std::string_view host);

}  // namespace sluice

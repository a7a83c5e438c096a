// host only
#include "control/http_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/base64.h"
#include "net/text.h"

namespace sluice {
namespace {

constexpr size_t kMaxHeaders = 64;

bool alike(std::string_view a, std::string_view b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return small(x) == small(y); });
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Nothing: a percent sign without two hexadecimal digits.
std::optional<std::string> decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      unsigned value = 0;
      for (size_t digit = i + 1; digit <= i + 2; ++digit) {
        const char c = digit < text.size() ? text[digit] : ' ';
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0) return std::nullopt;
        value = value * 16 + static_cast<unsigned>(d);
      }
      out += static_cast<char>(value);
      i += 2;
    }
  }
  return out;
}

bool read_target(std::string_view target, HttpRequest& request) {
  const size_t mark = target.find('?');
  const auto path = decoded(target.substr(0, mark), false);
  if (!path) return false;
  request.path = *path;
  for (size_t at = mark; at != std::string_view::npos;) {
    const size_t end = target.find('&', at + 1);
    const std::string_view pair = target.substr(at + 1, end == std::string_view::npos ? end : end - at - 1);
    const size_t equals = std::min(pair.find('='), pair.size());
    const auto name = decoded(pair.substr(0, equals), true);
    const auto value = decoded(pair.substr(std::min(equals + 1, pair.size())), true);
    if (!name || !value) return false;
    if (!name->empty()) request.query[*name] = *value;
    at = end;
  }
  return true;
}

std::string_view phrase_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

}  // namespace

size_t http_head(std::string_view in) {
  const size_t end = in.find("\r\n\r\n");
  return end == std::string_view::npos ? 0 : end + 4;
}

HttpRequest parse_http(std::string_view head) {
  HttpRequest request;
  const auto refused = [&request](int status) {
    request.status = status;
    request.stays = false;
    return request;
  };
  const size_t line_end = head.find("\r\n");
  if (line_end == std::string_view::npos) return refused(400);
  const std::string_view line = head.substr(0, line_end);
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return refused(400);
  request.method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1), version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return refused(400);
  request.stays = version == "HTTP/1.1";
  if (target.empty() || target[0] != '/' || target.find(' ') != std::string_view::npos) return refused(400);
  if (!read_target(target, request)) return refused(400);
  size_t headers = 0;
  for (size_t at = line_end + 2; at < head.size();) {
    const size_t end = head.find("\r\n", at);
    if (end == std::string_view::npos || end == at) break;
    const std::string_view header = head.substr(at, end - at);
    at = end + 2;
    if (++headers > kMaxHeaders) return refused(431);
    const size_t colon = header.find(':');
    if (colon == std::string_view::npos || colon == 0) return refused(400);
    const std::string_view name = header.substr(0, colon), value = trimmed(header.substr(colon + 1));
    if (alike(name, "host")) request.host = value;
    if (alike(name, "authorization")) request.authorization = value;
    if (alike(name, "connection")) request.stays = request.stays && !alike(value, "close");
    // What follows the head would be taken for the next question.
    if (alike(name, "transfer-encoding") || (alike(name, "content-length") && value != "0")) return refused(413);
  }
  if (request.method != "GET" && request.method != "HEAD") return refused(405);
  return request;
}

std::string write_http(const HttpAnswer& answer, bool stays, bool head_only) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
      "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; connect-src 'self'; img-src data:\r\n",
      answer.status, phrase_of(answer.status), answer.type, answer.body.size());
  if (answer.age_seconds != 0) text += fmt::format("Age: {}\r\n", answer.age_seconds);
  if (answer.status == 405) text += "Allow: GET, HEAD\r\n";
  if (answer.asks_for_token) text += "WWW-Authenticate: Basic realm=\"sluice\"\r\n";
  if (!stays) text += "Connection: close\r\n";
  text += "\r\n";
  if (!head_only) text += answer.body;
  return text;
}

bool same_secret(std::string_view given, std::string_view secret) {
  // Each byte of what was given is compared with some byte; the length of what was given is no secret.
  unsigned differs = given.size() != secret.size() ? 1 : 0;
  for (size_t i = 0; i < given.size() && !secret.empty(); ++i)
    differs |= static_cast<unsigned char>(given[i] ^ secret[i % secret.size()]);
  return differs == 0 && !secret.empty();
}

std::string token_of(std::string_view authorization) {
  const size_t space = authorization.find(' ');
  if (space == std::string_view::npos) return {};
  const std::string_view word = trimmed(authorization.substr(space + 1));
  if (alike(authorization.substr(0, space), "bearer")) return std::string(word);
  if (!alike(authorization.substr(0, space), "basic")) return {};
  const auto both = from_base64(word);
  if (!both) return {};
  const size_t colon = both->find(':');
  return colon == std::string::npos ? std::string() : both->substr(colon + 1);
}

bool names_this_machine(std::string_view host) {
  std::string_view name = host;
  if (name.starts_with('[')) {
    const size_t end = name.find(']');
    if (end == std::string_view::npos) return false;
    name = name.substr(1, end - 1);
  } else {
    name = name.substr(0, name.find(':'));
  }
  return alike(name, "localhost") || parse_ip(name).has_value();
}

}  // namespace sluice

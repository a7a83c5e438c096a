// Appends numbers and addresses to a string, without formatting machinery: generators write millions of lines.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "net/text.h"
#include "net/types.h"

namespace sluice {

class TextWriter {
 public:
  explicit TextWriter(size_t expected_bytes) { text_.reserve(expected_bytes); }

  TextWriter& put(char c) { return text_.push_back(c), *this; }
  TextWriter& put(std::string_view s) { return text_.append(s), *this; }
  TextWriter& number(uint64_t v) {
    char digits[20];
    const auto end = std::to_chars(digits, digits + sizeof(digits), v).ptr;
    text_.append(digits, end);
    return *this;
  }
  // `digits` hexadecimal digits, upper case, after "0x".
  TextWriter& hex(uint32_t v, int digits) {
    text_ += "0x";
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text_ += "0123456789ABCDEF"[v >> shift & 15];
    return *this;
  }
  TextWriter& ipv4(uint32_t a) {
    return number(a >> 24).put('.').number(a >> 16 & 255).put('.').number(a >> 8 & 255).put('.').number(a & 255);
  }
  TextWriter& prefix(const IpPrefix& p) {
    if (p.address.family == 4) return ipv4(static_cast<uint32_t>(p.address.lo)).put('/').number(p.length);
    return put(to_string(p));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace sluice

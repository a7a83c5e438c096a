// host only
// Bytes and times as text, for Print and IPPrint.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>

namespace sluice {

// Seconds and microseconds, as Click prints them.
inline std::string timestamp_text(uint64_t ns) {
  return fmt::format("{}.{:06}", ns / 1'000'000'000, ns % 1'000'000'000 / 1000);
}

// What stands between byte i - 1 and byte i: a new line with two blanks after every `line` bytes (0: never), a blank
// after every `group`.
inline void append_gap(std::string& to, uint32_t i, uint32_t group, uint32_t line) {
  if (i == 0) return;
  if (line != 0 && i % line == 0) {
    to += "\n  ";
  } else if (i % group == 0) {
    to += ' ';
  }
}

inline void append_hex(std::string& to, const uint8_t* data, uint32_t bytes, uint32_t group, uint32_t line) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (uint32_t i = 0; i < bytes; ++i) {
    append_gap(to, i, group, line);
    to += kDigits[data[i] >> 4];
    to += kDigits[data[i] & 15];
  }
}

inline void append_ascii(std::string& to, const uint8_t* data, uint32_t bytes, uint32_t group, uint32_t line) {
  for (uint32_t i = 0; i < bytes; ++i) {
    append_gap(to, i, group, line);
    to += data[i] < 32 || data[i] > 126 ? '.' : static_cast<char>(data[i]);
  }
}

}  // namespace sluice

// host only
// What Print and IPPrint share: their options, and bytes and times as text.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include "graph/arguments.h"

namespace sluice {

// LABEL, MAXLENGTH or NBYTES, CONTENTS, TIMESTAMP and ACTIVE, which both elements declare.
struct PrintOptions {
  std::string prefix;    // "label: ", or nothing
  std::string contents;  // one of the choices that the element declares
  int64_t bytes = 0;     // -1: all
  bool timestamp = false;
  bool active = true;

  static PrintOptions read(const Arguments& arguments) {
    PrintOptions o;
    o.prefix = arguments.get_string("LABEL");
    if (!o.prefix.empty()) o.prefix += ": ";
    o.contents = arguments.get_string("CONTENTS");
    o.bytes = arguments.get_int(arguments.has("NBYTES") ? "NBYTES" : "MAXLENGTH");
    o.timestamp = arguments.get_bool("TIMESTAMP");
    o.active = arguments.get_bool("ACTIVE");
    return o;
  }

  // How many bytes of a packet of `length` are printed.
  uint32_t shown(uint32_t length) const {
    return bytes < 0 ? length : static_cast<uint32_t>(std::min<int64_t>(bytes, length));
  }
};

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

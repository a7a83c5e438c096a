// host only
#include "base/printable.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace sluice {
namespace {

// The bytes of the character that begins `text`, and which it is; 0 bytes where it is not UTF-8.
size_t character(std::string_view text, uint32_t& c) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return c = first, 1;
  const size_t length = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (length == 0 || first >= 0xf5 || length > text.size()) return 0;
  c = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    c = c << 6 | (byte(i) & 0x3fu);
  }
  static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return c < kLeast[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : length;
}

bool shown(uint32_t c) {
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return c == '\n' || c == '\t';
  return !((c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0x061c);
}

// Calls f(bytes, whether they are shown) for each character, and each byte of what is none.
template <typename F>
void each_character(std::string_view text, F&& f) {
  while (!text.empty()) {
    uint32_t c = 0;
    const size_t length = character(text, c), taken = length == 0 ? 1 : length;
    f(text.substr(0, taken), length != 0 && shown(c));
    text.remove_prefix(taken);
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  each_character(text, [&](std::string_view bytes, bool is_shown) {
    if (is_shown) out.append(bytes);
    if (is_shown) return;
    for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  });
  return out;
}

std::string printable_columns(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  each_character(text, [&](std::string_view bytes, bool is_shown) {
    if (!is_shown) {
      out.append(bytes.size(), '?');
    } else if (bytes == "\n" || bytes == "\t") {
      out += ' ';
    } else {
      out.append(bytes);
    }
  });
  return out;
}

}  // namespace sluice

// host only
// Copies of a few lines, as most frames are: without a call, and by what every CPU of the baseline has.
#pragma once

#include <cstddef>
#include <cstring>

namespace sluice {

// As memcpy. Reads and writes nothing else.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  constexpr size_t kLine = 64, kMost = 1024;
  // Of each length range the last part overlaps the one before: its place follows from the end.
  if (bytes >= kLine && bytes <= kMost) {
    for (size_t at = 0; at + kLine < bytes; at += kLine) std::memcpy(out + at, in + at, kLine);
    std::memcpy(out + bytes - kLine, in + bytes - kLine, kLine);
  } else if (bytes < kLine && bytes >= 32) {
    char first[32], last[32];
    std::memcpy(first, in, 32);
    std::memcpy(last, in + bytes - 32, 32);
    std::memcpy(out, first, 32);
    std::memcpy(out + bytes - 32, last, 32);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace sluice

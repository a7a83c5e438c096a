// One frame of a capture: where it came from in time, how long it was, how much of it is here.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice {

// The largest captured length that a port accepts or writes: libpcap's own limit for Ethernet.
inline constexpr uint32_t kMaxCapturedBytes = 256 * 1024;
// The largest length on the wire that a port accepts: what elements and link-layer headers add to it stays below 2^32.
inline constexpr uint32_t kMaxWireBytes = INT32_MAX;

// The length on the wire of `captured` bytes that are said to have had `said`: neither fewer than are here nor more
// than any link carries.
constexpr uint32_t wire_length(uint32_t said, uint32_t captured) {
  return std::clamp(said, captured, kMaxWireBytes);
}

struct FrameHeader {
  uint32_t captured = 0;      // bytes present, <= kMaxCapturedBytes
  uint32_t wire_bytes = 0;    // bytes on the wire, without FCS; captured to kMaxWireBytes
  uint64_t timestamp_ns = 0;  // nanoseconds since 1970-01-01 UTC
};

// A frame as a reader lends it: `data` belongs to the reader and dies with its next call.
struct CapturedFrame : FrameHeader {
  const uint8_t* data = nullptr;
};

}  // namespace sluice

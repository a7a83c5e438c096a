// Keys of one family, a burst at a time, by column: what the columns of a caller become before a lookup. host only
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "net/bytes.h"
#include "net/flow_key.h"
#include "net/key_columns.h"

namespace sluice::api {

// Places past the number of keys hold what was there before.
struct alignas(64) ColumnBurst {
  static constexpr size_t kLanes = 32;

  explicit ColumnBurst(uint32_t of) : family(of) {}

  // Copies entries [0, n) of a column, n <= kLanes, whose entry i lies at `from` + i * `stride` bytes, of any
  // alignment.
  template <typename T>
  static void take(T* to, const void* from, int64_t stride, size_t n) {
    const auto* const at = static_cast<const uint8_t*>(from);
    if (stride == sizeof(T)) {
      // Of a full burst the size is known, and the copy is a few vectors.
      n == kLanes ? std::memcpy(to, at, sizeof(T) * kLanes) : std::memcpy(to, at, sizeof(T) * n);
      return;
    }
    for (size_t i = 0; i < n; ++i) std::memcpy(to + i, at + static_cast<int64_t>(i) * stride, sizeof(T));
  }
  // The same of IPv6 addresses in network order.
  static void take_address(uint64_t* high, uint64_t* low, const void* from, int64_t stride, size_t n) {
    const auto* const at = static_cast<const uint8_t*>(from);
    for (size_t i = 0; i < n; ++i) {
      high[i] = load_be64(at + static_cast<int64_t>(i) * stride);
      low[i] = load_be64(at + static_cast<int64_t>(i) * stride + 8);
    }
  }

  // To be called when all columns are filled. False: some key has what KeyColumns cannot hold and no packet has, such
  // as ports together with an ICMP type.
  bool pack() {
    uint32_t lost = 0;
    for (size_t i = 0; i < kLanes; ++i) {
      const uint32_t with_ports = 0u - (bits[i] & uint32_t{FlowKey::kHasPorts});
      const uint32_t both = uint32_t{src_port[i]} << 16 | dst_port[i];
      const uint32_t type = icmp[i];
      ports[i] = (both & with_ports) | (type & ~with_ports);
      lost |= (both & ~with_ports) | (type & with_ports);
    }
    for (size_t i = 0; i < kLanes; ++i) {
      rest[i] = uint32_t{protocol[i]} | (flags[i] & 0xff00u) | uint32_t{dscp[i]} << 16 | uint32_t{bits[i]} << 22;
      lost |= (flags[i] & 0xffu) | (dscp[i] & ~63u) | (bits[i] & ~7u);
    }
    return lost == 0;
  }
  // Precondition: pack() has returned true.
  KeyColumns columns() const {
    return family == 4
               ? KeyColumns{4, ports, rest, source, destination, nullptr, nullptr, nullptr, nullptr}
               : KeyColumns{
                     6, ports, rest, nullptr, nullptr, source_high, source_low, destination_high, destination_low};
  }
  // Key i, of a family of its own. Whole words: lookups read keys so, and what is stored in pieces would make them
  // wait.
  void store(size_t i, uint32_t of, FlowKey* key) const {
    static_assert(offsetof(FlowKey, src_port) == 32 && offsetof(FlowKey, dst_port) == 34 &&
                  offsetof(FlowKey, flags) == 36 && offsetof(FlowKey, protocol) == 38 &&
                  offsetof(FlowKey, dscp) == 39 && offsetof(FlowKey, family) == 40 && offsetof(FlowKey, bits) == 41 &&
                  offsetof(FlowKey, icmp) == 42 && offsetof(FlowKey, reserved) == 44);
    auto* const to = reinterpret_cast<uint8_t*>(key);
    store_le64(to, of == 6 ? source_high[i] : 0);
    store_le64(to + 8, of == 6 ? source_low[i] : of == 4 ? source[i] : 0);
    store_le64(to + 16, of == 6 ? destination_high[i] : 0);
    store_le64(to + 24, of == 6 ? destination_low[i] : of == 4 ? destination[i] : 0);
    store_le64(to + 32, src_port[i] | uint64_t{dst_port[i]} << 16 | uint64_t{flags[i]} << 32 |
                            uint64_t{protocol[i]} << 48 | uint64_t{dscp[i]} << 56);
    store_le64(to + 40, of | uint64_t{bits[i]} << 8 | uint64_t{icmp[i]} << 16 | uint64_t{bytes[i]} << 32);
  }

  uint32_t family;  // 4 or 6, of all keys that are looked up by column
  uint32_t source[kLanes] = {}, destination[kLanes] = {};
  uint64_t source_high[kLanes] = {}, source_low[kLanes] = {}, destination_high[kLanes] = {},
           destination_low[kLanes] = {};
  uint16_t src_port[kLanes] = {}, dst_port[kLanes] = {}, flags[kLanes] = {}, icmp[kLanes] = {};
  uint8_t protocol[kLanes] = {}, dscp[kLanes] = {}, bits[kLanes] = {};
  uint32_t bytes[kLanes] = {};  // the packet's, for counters alone

  uint32_t ports[kLanes] = {}, rest[kLanes] = {};  // as KeyColumns has them
};

}  // namespace sluice::api

// host only
// FastBurst: up to 32 packets of the common form (net/fast_parse.h) as columns. What the fast path works on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "batch/drop_reason.h"
#include "batch/packet.h"
#include "net/key4.h"

namespace sluice {

// Stages that can serve the fast path have
//
//   uint32_t fast(FastBurst& burst, uint32_t mask) const;
//
// which gives the lanes of `mask` that leave by output 0. For each other lane it sets output and reason; kFastRefused
// sends the packet through the ordinary registers instead, from the start. No frame is changed before all stages
// have run: edits are recorded in the columns and applied at the end, so a refused packet is unchanged.
//
// Columns of lanes outside a mask hold stale values: reading them is allowed, and means nothing.
struct alignas(64) FastBurst {
  static constexpr uint32_t kLanes = 32;
  static constexpr uint32_t kRoom = kLanes + 16;  // columns are written a whole vector at a time

  uint32_t source[kRoom];  // the key's parts (net/key4.h); see fill_keys
  uint32_t destination[kRoom];
  uint32_t ports[kRoom];
  uint32_t rest[kRoom];
  uint8_t* frame[kRoom];
  uint32_t row[kRoom];       // of the batch
  uint32_t length[kRoom];    // bytes of the frame on arrival
  uint32_t ip_bytes[kRoom];  // of the network packet: what lies behind is padding
  uint32_t hop[kRoom];       // TTL, protocol, checksum, as they are to lie in the frame (net/edit.h, kHopWord)
  uint32_t rule[kRoom];
  uint32_t next_hop[kRoom];
  uint32_t place[kRoom];          // what the stage `asked_by` noted in its early prefetch
  const uint8_t* rewrite[kRoom];  // 12 bytes for the frame's start, where `rewritten` says so
  uint16_t port[kRoom];
  uint8_t output[kRoom];
  DropReason reason[kRoom];
  uint32_t count;      // lanes in use
  uint32_t hopped;     // lanes whose TTL has changed
  uint32_t rewritten;  // lanes whose link header is replaced, and whose port is set
  bool one_run;        // all lanes are in use and their rows follow one another: found by find_run
  // The stage whose notes `place` holds, or null. Of several that take notes the last has its own there.
  const void* asked_by;
  // Not null: the key's columns hold nothing yet. The lanes' keys lie here as records, 16 bytes each: a Key4 whose
  // upper seven bits are another's. Most stages after a device never read it.
  const std::byte* late_keys;

  // Call before reading the key columns.
  void fill_keys() {
    if (late_keys == nullptr) return;
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t k[4];
      std::memcpy(k, late_keys + size_t{i} * sizeof(Key4), sizeof k);
      source[i] = k[0];
      destination[i] = k[1];
      ports[i] = k[2];
      rest[i] = k[3] & 0x01ffffffu;
    }
    late_keys = nullptr;
  }
  Key4 key(uint32_t lane) const { return {source[lane], destination[lane], ports[lane], rest[lane]}; }
  void clear() {
    count = 0;
    asked_by = nullptr;
    late_keys = nullptr;
  }
  uint32_t lanes() const { return count == kLanes ? ~uint32_t{0} : (uint32_t{1} << count) - 1; }
  void find_run() {
    uint32_t differ = count ^ kLanes;
    for (uint32_t i = 0; i < kLanes; ++i) differ |= (row[i] - row[0]) ^ i;
    one_run = differ == 0;
  }
  // The lanes for which `holds(lane)` is true, which may look at columns alone; of lanes past `count` it says nothing.
  // The constant trip count lets the compiler vectorise it.
  template <typename Holds>
  static uint32_t lanes_where(Holds&& holds) {
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < kLanes; ++i) lanes |= kLane[i] & (0u - uint32_t{holds(i)});
    return lanes;
  }

 private:
  static constexpr std::array<uint32_t, kLanes> kLane = [] {
    std::array<uint32_t, kLanes> bits{};
    for (uint32_t i = 0; i < kLanes; ++i) bits[i] = uint32_t{1} << i;
    return bits;
  }();
};

inline constexpr uint8_t kFastRefused = 0xfe;

}  // namespace sluice

// host only
// FastBurst: up to 32 packets of the common form (net/fast_parse.h) as columns. What the fast path works on.
#pragma once

#include <cstdint>

#include "batch/drop_reason.h"
#include "batch/packet.h"
#include "net/key4.h"

namespace sluice {

// Stages that can serve the fast path have
//
//   uint32_t fast(FastBurst& burst, uint32_t mask) const;
//
// which gives the lanes of `mask` that leave by output 0. For each other lane it sets output and reason; kFastRefused
// sends the packet through the ordinary registers instead, from the start. A frame is not touched before all stages
// have spoken: edits are noted in the columns, and made at the end. So a packet that is refused has not changed.
//
// Columns of lanes outside a mask hold what some packet left there: they may be read, and mean nothing.
struct alignas(64) FastBurst {
  static constexpr uint32_t kLanes = 32;
  static constexpr uint32_t kRoom = kLanes + 16;  // columns are written a whole vector at a time

  uint32_t source[kRoom];  // the key's parts (net/key4.h)
  uint32_t destination[kRoom];
  uint32_t ports[kRoom];
  uint32_t rest[kRoom];
  uint8_t* frame[kRoom];
  uint32_t row[kRoom];       // of the batch
  uint32_t length[kRoom];    // bytes of the frame on arrival
  uint32_t ip_bytes[kRoom];  // of the network packet: what lies behind is padding
  uint32_t ttl[kRoom];       // on arrival
  uint32_t rule[kRoom];
  uint32_t next_hop[kRoom];
  const uint8_t* rewrite[kRoom];  // 12 bytes for the frame's start, where `rewritten` says so
  uint16_t port[kRoom];
  uint8_t output[kRoom];
  DropReason reason[kRoom];
  uint32_t count;      // lanes in use
  uint32_t hopped;     // lanes whose TTL goes down by one
  uint32_t rewritten;  // lanes whose link header is replaced, and whose port is set

  Key4 key(uint32_t lane) const { return {source[lane], destination[lane], ports[lane], rest[lane]}; }
  uint32_t lanes() const { return count == kLanes ? ~uint32_t{0} : (uint32_t{1} << count) - 1; }
};

inline constexpr uint8_t kFastRefused = 0xfe;

}  // namespace sluice

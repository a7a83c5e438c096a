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
// sends the packet through the ordinary registers instead, from the start. A frame is not touched before all stages have
// spoken: edits are noted in the columns, and made at the end. So a packet that is refused has not changed.
//
// Columns of lanes outside a mask hold what some packet left there: they may be read, and mean nothing.
struct alignas(64) FastBurst {
  static constexpr uint32_t kLanes = 32;

  Key4 key[kLanes];
  uint8_t* frame[kLanes];
  uint32_t row[kLanes];       // of the batch
  uint32_t length[kLanes];    // bytes of the frame on arrival
  uint32_t ip_bytes[kLanes];  // of the network packet: what lies behind is padding
  uint32_t rule[kLanes];
  uint32_t next_hop[kLanes];
  const uint8_t* rewrite[kLanes];  // 12 bytes for the frame's start, where `rewritten` says so
  uint16_t port[kLanes];
  uint8_t output[kLanes];
  DropReason reason[kLanes];
  uint32_t count;      // lanes in use
  uint32_t hopped;     // lanes whose TTL goes down by one
  uint32_t rewritten;  // lanes whose link header is replaced, and whose port is set

  uint8_t ttl(uint32_t lane) const { return frame[lane][14 + 8]; }
};

inline constexpr uint8_t kFastRefused = 0xfe;

}  // namespace sluice

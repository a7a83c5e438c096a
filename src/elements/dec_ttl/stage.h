// DecIPTTL: one hop less to live, IPv4 and IPv6. Host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "base/hd.h"
#include "batch/fast_burst.h"
#include "batch/packet.h"
#include "net/edit.h"
#include "net/parse.h"

namespace sluice {

// RFC 1812 section 5.3.1, RFC 8200 section 3. Output 1: the packet must not live on.
struct DecTtlStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldL3 | kFieldKey;
  static constexpr FieldMask kWrites = kFieldFrame | kFieldL3 | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kHeaders;

  // 1: multicast packets are not checked (Click's MULTICAST false keeps them untouched).
  uint8_t skip_multicast = 0;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (skip_multicast != 0 && (p.ip_flags & Headers::kIpMulticast) != 0) return 0;
    if (p.ttl <= 1) return fail(p, p.key.family == 6 ? DropReason::kHopLimitExpired : DropReason::kTtlExpired, 1);
    --p.ttl;
    uint8_t* l3 = p.frame + p.l3;
    if (p.key.family == 6) {
      decrement_hop_limit_ipv6(l3);
    } else {
      decrement_ttl_ipv4(l3);
    }
    return 0;
  }

  // See FastBurst. Multicast packets are odd.
  uint32_t burst(FastBurst& burst, uint32_t mask) const {
    uint32_t alive = mask;
    uint32_t untouched = 0;
    if (skip_multicast != 0) {
      for (uint32_t m = mask & burst.odd_lanes(); m != 0; m &= m - 1) {
        const auto lane = static_cast<uint32_t>(std::countr_zero(m));
        if ((burst.flags[lane] & Headers::kIpMulticast) != 0) untouched |= m & (0u - m);
      }
    }
    const uint32_t old = FastBurst::lanes_where([&](uint32_t i) { return (burst.hop[i] & 0xfe) == 0; }) & ~untouched;
    alive &= ~old;
    const bool six = burst.family == 6;
    const uint32_t changed = alive & ~untouched;
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i) {
      const uint32_t next = six ? burst.hop[i] - 1 : next_hop_word(burst.hop[i]);
      burst.hop[i] = (changed & FastBurst::kLane[i]) != 0 ? next : burst.hop[i];
    }
    for (uint32_t m = mask & old; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      burst.output[lane] = 1;
      burst.reason[lane] = six ? DropReason::kHopLimitExpired : DropReason::kTtlExpired;
    }
    burst.hopped |= changed;
    return alive;
  }
};

}  // namespace sluice

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

  // See FastBurst: no multicast there. Lanes that do not go on are not read again, so all columns change.
  uint32_t fast(FastBurst& burst, uint32_t mask) const {
    const uint32_t old = FastBurst::lanes_where([&](uint32_t i) { return (burst.hop[i] & 0xfe) == 0; });
    const uint32_t alive = mask & ~old;
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i) burst.hop[i] = next_hop_word(burst.hop[i]);
    for (uint32_t m = mask & old; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      burst.output[lane] = 1;
      burst.reason[lane] = DropReason::kTtlExpired;
    }
    burst.hopped |= alive;
    return alive;
  }
};

}  // namespace sluice

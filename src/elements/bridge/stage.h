// Bridge: which frames a bridge in front of an access list passes without asking the list. Host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "base/hd.h"
#include "batch/fast_burst.h"
#include "batch/packet.h"
#include "net/bytes.h"
#include "net/parse.h"

namespace sluice {

// Packets as IPInput leaves them, by both outputs. Output 0: IP packets, for the list. Output 1: frames that pass
// untouched. All others are dropped.
struct BridgeStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent | kFieldL3 | kFieldKey | kFieldReason;
  static constexpr FieldMask kWrites = kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kHeaders;
  static constexpr uint32_t kMaxTypes = 16;

  uint16_t types[kMaxTypes] = {};  // EtherTypes that pass
  uint8_t type_count = 0;
  uint8_t nd = 0, stp = 0, llc = 0, all = 0;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (p.key.family != 0) {
      return nd != 0 && is_nd(p.key.family, p.key.protocol, p.key.bits, p.key.icmp, p.ttl, uint32_t{p.l4} - p.l3) ? 1
                                                                                                                  : 0;
    }
    // Headers that IPInput refused for another reason are bad whatever their kind is.
    if (p.reason != DropReason::kNotIp || p.length() < kEtherHeaderBytes) return fail(p, p.reason);
    const uint8_t* to = p.bytes();
    const uint32_t group = uint32_t{load_be16(to)} << 8 | to[2];  // the first half of the destination
    const uint32_t low = uint32_t{to[3]} << 16 | load_be16(to + 4);
    const bool reserved = group == 0x0180c2 && low <= 0x0f;
    const bool pause = (reserved && low == 1) || p.ether_type == 0x8808;
    if (!pause && passes(p.ether_type, group, low)) {
      p.reason = DropReason::kNone;
      return 1;
    }
    return fail(p, reserved || pause ? DropReason::kLinkControl : p.reason);
  }

  SLUICE_HD bool passes(uint16_t type, uint32_t group, uint32_t low) const {
    if (all != 0) return true;
    if (type < kEtherTypeFirst) {
      // Spanning tree of customers' and of providers' bridges; Cisco's, one for each VLAN.
      const bool tree = (group == 0x0180c2 && (low == 0 || low == 8)) || (group == 0x01000c && low == 0xcccccd);
      return tree ? stp != 0 : llc != 0;
    }
    for (uint32_t i = 0; i < type_count; ++i) {
      if (types[i] == type) return true;
    }
    return false;
  }

  // RFC 4861 section 7.1: what comes from another link, and what has extension headers or is a fragment (RFC 6980), is
  // none. `header_bytes`: from the IPv6 header to the ICMPv6 header.
  SLUICE_HD static bool is_nd(uint8_t family, uint8_t protocol, uint8_t bits, uint16_t icmp, uint32_t hop_limit,
                              uint32_t header_bytes) {
    return family == 6 && protocol == kProtocolIcmpv6 && bits == 0 && hop_limit == 255 &&
           header_bytes == kIpv6HeaderBytes && icmp >= 133u << 8 && icmp <= 137u << 8 && (icmp & 0xff) == 0;
  }

  // See FastBurst: packets whose headers IPInput has passed.
  uint32_t burst(FastBurst& burst, uint32_t mask) const {
    if (nd == 0 || burst.family != 6) return mask;
    uint32_t listed = mask;
    for (uint32_t m =
             mask & FastBurst::lanes_where([&](uint32_t i) { return (burst.rest[i] & 0xff) == kProtocolIcmpv6; });
         m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      const FlowKey key = burst.key(lane);
      if (!is_nd(key.family, key.protocol, key.bits, key.icmp, burst.hop[lane],
                 (burst.places[lane] >> 16) - burst.l3(lane)))
        continue;
      burst.output[lane] = 1;
      burst.reason[lane] = DropReason::kNone;
      listed &= ~(m & (0u - m));
    }
    return listed;
  }
};

}  // namespace sluice

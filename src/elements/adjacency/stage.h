// AdjacencyRewrite: from the next hop to a link header and an output port. Host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "base/hd.h"
#include "batch/fast_burst.h"
#include "batch/packet.h"
#include "net/bytes.h"
#include "net/parse.h"
#include "tables/adjacency/adjacency.h"

namespace sluice {

// Replaces whatever stands before the network header by the adjacency's Ethernet header (with its VLAN tag, if it has
// one). Output 1: larger than the output's MTU, nobody is known at the next hop, or it says unreachable, prohibit or
// throw. Output 2, where it is connected: packets with IPv4 options, unchanged. Groups choose by five-tuple hash (RFC
// 2992).
struct AdjacencyStage {
  static constexpr FieldMask kReads = kFieldNextHop | kFieldL3 | kFieldKey | kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldFrame | kFieldExtent | kFieldPort | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kHeaders;
  static constexpr int32_t kWritesBefore = 4;  // an untagged frame gets a tag

  AdjacencyView view;
  uint8_t divert_options = 0;  // output 2 is connected

  // Every pointer that the stage holds: f(pointer) into an image, f(pointer, count) to an array of the element's own.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    view.each_pointer(f);
  }

  SLUICE_HD static DropReason why_not(uint32_t flags) {
    if ((flags & AdjacencyGroup::kDrop) != 0) return DropReason::kRouteDrop;
    if ((flags & AdjacencyGroup::kLocal) != 0) return DropReason::kRouteLocal;
    if ((flags & AdjacencyGroup::kPunt) != 0) return DropReason::kRoutePunt;
    if ((flags & AdjacencyGroup::kHostUnreachable) != 0) return DropReason::kRouteUnreachable;
    if ((flags & AdjacencyGroup::kNetUnreachable) != 0) return DropReason::kNoRoute;
    if ((flags & AdjacencyGroup::kProhibited) != 0) return DropReason::kRouteProhibited;
    return DropReason::kNoAdjacency;
  }
  // What is reported to the sender leaves for ICMPError; the rest is dropped on purpose.
  SLUICE_HD static uint8_t output_for(DropReason reason) {
    const bool reported = reason == DropReason::kNoAdjacency || reason == DropReason::kRouteUnreachable ||
                          reason == DropReason::kNoRoute || reason == DropReason::kRouteProhibited;
    return reported ? uint8_t{1} : kDropOutput;
  }
  SLUICE_HD void prefetch(const Packet& p) const { view.prefetch(p.next_hop); }

  SLUICE_HD uint8_t operator()(Packet& p) const {
    const Adjacency* choice = view.select_by(p.next_hop, [&] { return flow_hash(p.key); });
    if (choice == nullptr) {
      const DropReason why = why_not(view.flags(p.next_hop));
      return fail(p, why, output_for(why));
    }
    const Adjacency& a = *choice;
    if (p.l3 > p.end) return fail(p, DropReason::kCapturedTooShort);  // a later stage cut the header off
    // Options come before fragments (RFC 1812 section 5.2.1.2): only the first fragment has them all.
    if (divert_options != 0 && (p.ip_flags & Headers::kIpv4Options) != 0) return 2;
    const uint32_t ip_bytes = p.wire_end - p.l3;
    if (a.mtu != 0 && ip_bytes > a.mtu) {
      p.icmp_detail = a.mtu;
      const bool may_fragment = p.key.family == 4 && (p.ip_flags & Headers::kDontFragment) == 0;
      return fail(p, may_fragment ? DropReason::kNeedsFragmentation : DropReason::kTooBig, 1);
    }
    const int32_t link = a.vlan != 0 ? 18 : 14;
    p.data = static_cast<int32_t>(p.l3) - link;
    uint8_t* to = p.bytes();
    memcpy(to, a.rewrite, 12);
    uint8_t* type = to + 12;
    if (a.vlan != 0) {
      store_be16(type, 0x8100);
      store_be16(type + 2, a.vlan);
      type += 4;
    }
    store_be16(type, p.key.family == 6 ? 0x86dd : 0x0800);
    p.port = a.port;
    return 0;
  }

  // See FastBurst.
  uint32_t burst(FastBurst& burst, uint32_t mask) const {
    uint32_t diverted = 0;
    if (divert_options != 0) {
      for (uint32_t m = mask & burst.odd_lanes(); m != 0; m &= m - 1) {
        const auto lane = static_cast<uint32_t>(std::countr_zero(m));
        if ((burst.flags[lane] & Headers::kIpv4Options) != 0) diverted |= m & (0u - m);
      }
    }
    const uint32_t plain = mask & view.select_plain(burst.next_hop, burst.ip_bytes, burst.rewrite, burst.port);
    uint32_t sent = plain & ~diverted;
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i) {
      burst.link[i] = (sent & FastBurst::kLane[i]) != 0 ? kEtherHeaderBytes : burst.link[i];
    }
    for (uint32_t m = plain & diverted; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      burst.output[lane] = 2;
      burst.reason[lane] = DropReason::kNone;
    }
    if (plain != mask) burst.fill_keys();
    for (uint32_t m = mask & ~plain; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      const uint32_t lane_bit = m & (0u - m);
      const uint32_t next_hop = burst.next_hop[lane];
      const Adjacency* a = view.select_by(next_hop, [&] { return flow_hash(burst.key(lane)); });
      if (a == nullptr) {
        burst.reason[lane] = why_not(view.flags(next_hop));
        burst.output[lane] = output_for(burst.reason[lane]);
        continue;
      }
      if ((diverted & lane_bit) != 0) {
        burst.output[lane] = 2;
        burst.reason[lane] = DropReason::kNone;
        continue;
      }
      if (a->mtu != 0 && burst.ip_bytes[lane] > a->mtu) {
        burst.detail[lane] = a->mtu;
        burst.detailed |= lane_bit;
        const bool may_fragment = burst.family == 4 && (burst.ip[lane][6] & 0x40) == 0;
        burst.reason[lane] = may_fragment ? DropReason::kNeedsFragmentation : DropReason::kTooBig;
        burst.output[lane] = 1;
        continue;
      }
      burst.rewrite[lane] = a->rewrite;
      burst.port[lane] = a->port;
      burst.tag[lane] = a->vlan;
      burst.link[lane] = kEtherHeaderBytes + (a->vlan != 0 ? kVlanTagBytes : 0);
      sent |= lane_bit;
    }
    burst.rewritten |= sent;
    return sent;
  }
};

}  // namespace sluice

// AdjacencyRewrite: from the next hop to a link header and an output port. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"
#include "net/bytes.h"
#include "net/parse.h"
#include "tables/adjacency/adjacency.h"

namespace sluice {

// Replaces whatever stands before the network header by the adjacency's Ethernet header (with its VLAN tag, if it has
// one). Output 1: larger than the output's MTU. Groups choose by five-tuple hash (RFC 2992).
struct AdjacencyStage {
  static constexpr FieldMask kReads = kFieldNextHop | kFieldL3 | kFieldKey | kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldFrame | kFieldExtent | kFieldPort | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kHeaders;

  AdjacencyView view;

  // Every pointer that the stage holds: f(pointer) into an image, f(pointer, count) to an array of the element's own.
  template <typename F>
  void each_pointer(F&& f) {
    view.each_pointer(f);
  }

  SLUICE_HD static DropReason why_not(uint32_t flags) {
    if ((flags & AdjacencyGroup::kDrop) != 0) return DropReason::kRouteDrop;
    if ((flags & AdjacencyGroup::kLocal) != 0) return DropReason::kRouteLocal;
    if ((flags & AdjacencyGroup::kPunt) != 0) return DropReason::kRoutePunt;
    return DropReason::kNoAdjacency;
  }
  SLUICE_HD void prefetch(const Packet& p) const { view.prefetch(p.next_hop); }

  SLUICE_HD uint8_t operator()(Packet& p) const {
    const Adjacency* choice = view.select_by(p.next_hop, [&] { return flow_hash(p.key); });
    if (choice == nullptr) return fail(p, why_not(view.flags(p.next_hop)));
    const Adjacency& a = *choice;
    if (p.l3 > p.end) return fail(p, DropReason::kCapturedTooShort);  // a later stage cut the header off
    const uint32_t ip_bytes = p.wire_end - p.l3;
    if (a.mtu != 0 && ip_bytes > a.mtu) {
      p.mtu = a.mtu;
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
};

}  // namespace sluice

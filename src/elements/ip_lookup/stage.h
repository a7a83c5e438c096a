// Click's IPLookup family: longest prefix match of the destination to an output and an optional gateway. Host and
// device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"
#include "tables/lpm/algorithms.h"

namespace sluice {

// What one route of a configuration string says: `ADDR/MASK [GW] OUT`.
struct IpLookupTarget {
  uint32_t gateway;  // host order; 0: none, the destination annotation stays
  uint32_t output;
};

template <typename View4>
struct IpLookupStage {
  static constexpr FieldMask kReads = kFieldDestination;
  static constexpr FieldMask kWrites = kFieldNextHop | kFieldDestination | kFieldReason;

  View4 view;
  const IpLookupTarget* targets = nullptr;  // by next-hop id; entry 0 unused
  uint32_t target_count = 0;

  // Every pointer that the stage holds: f(pointer) into an image, f(pointer, count) to an array of the element's own.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    view.each_pointer(f);
    f(targets, target_count);
  }

  SLUICE_HD void prefetch(const Packet& p) const { view.prefetch(static_cast<uint32_t>(p.key.dst_lo)); }
  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (p.key.family != 4) {
      p.next_hop = 0;
      return fail(p, DropReason::kNoRoute);
    }
    p.next_hop = view.lookup(static_cast<uint32_t>(p.key.dst_lo));
    if (p.next_hop == 0 || p.next_hop >= target_count) return fail(p, DropReason::kNoRoute);
    const IpLookupTarget target = targets[p.next_hop];
    if (target.gateway != 0) p.key.dst_lo = target.gateway;
    return static_cast<uint8_t>(target.output);
  }
};

}  // namespace sluice

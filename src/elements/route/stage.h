// IPRoute: longest prefix match of the destination, IPv4 and IPv6. Host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "base/hd.h"
#include "batch/fast_burst.h"
#include "batch/packet.h"
#include "tables/lpm/algorithms.h"

namespace sluice {

template <typename View4, typename View6>
struct RouteStage {
  static constexpr FieldMask kReads = kFieldDestination;
  static constexpr FieldMask kWrites = kFieldNextHop | kFieldReason;

  View4 view4;
  View6 view6;

  // Every pointer that the stage holds: f(pointer) into an image, f(pointer, count) to an array of the element's own.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    view4.each_pointer(f);
    view6.each_pointer(f);
  }

  SLUICE_HD void prefetch(const Packet& p) const {
    if (p.key.family == 4) {
      view4.prefetch(static_cast<uint32_t>(p.key.dst_lo));
    } else if (p.key.family == 6) {
      view6.prefetch(p.key.dst_hi, p.key.dst_lo);
    }
  }
  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (p.key.family == 4) {
      p.next_hop = view4.lookup(static_cast<uint32_t>(p.key.dst_lo));
    } else {
      p.next_hop = p.key.family == 6 ? view6.lookup(p.key.dst_hi, p.key.dst_lo) : 0;
    }
    return p.next_hop != 0 ? uint8_t{0} : fail(p, DropReason::kNoRoute, 1);
  }

  // Lookups in two steps, where the table has them: what the first finds is noted in the burst.
  static constexpr bool kAsks = requires(const View4& view, const uint32_t* in, uint32_t* out) {
    view.ask(in, out, size_t{});
    view.answer(in, out, out, size_t{});
  };
  static constexpr bool kAsks6 = requires(const View6& view, const uint64_t* in, uint32_t* out) {
    view.ask(in, in, out, size_t{});
    view.answer(in, in, out, out, size_t{});
  };
  // See FastBurst.
  void prefetch(FastBurst& burst) const {
    if (burst.family == 6) {
      if constexpr (kAsks6) {
        view6.ask(burst.destination_high, burst.destination_low, burst.place, burst.count);
        burst.asked_by = this;
      } else {
        for (uint32_t i = 0; i < burst.count; ++i) view6.prefetch(burst.destination_high[i], burst.destination_low[i]);
      }
    } else if constexpr (kAsks) {
      view4.ask(burst.destination, burst.place, burst.count);
      burst.asked_by = this;
    } else {
      const View4 view = view4;  // whose pointers then stay in registers
      for (uint32_t i = 0; i < burst.count; ++i) view.prefetch(burst.destination[i]);
    }
  }
  uint32_t burst(FastBurst& burst, uint32_t mask) const {
    burst.fill_keys();
    lookup(burst);
    const uint32_t found = FastBurst::lanes_where([&](uint32_t i) { return burst.next_hop[i] != 0; });
    for (uint32_t m = mask & ~found; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      burst.output[lane] = 1;
      burst.reason[lane] = DropReason::kNoRoute;
    }
    return mask & found;
  }

 private:
  void lookup(FastBurst& burst) const {
    [[maybe_unused]] const bool asked = burst.asked_by == this;
    if (burst.family == 6) {
      if constexpr (kAsks6) {
        if (asked)
          return view6.answer(burst.destination_high, burst.destination_low, burst.place, burst.next_hop, burst.count);
      }
      view6.lookup_burst(burst.destination_high, burst.destination_low, burst.next_hop, burst.count);
      return;
    }
    if constexpr (kAsks) {
      if (asked) return view4.answer(burst.destination, burst.place, burst.next_hop, burst.count);
    }
    view4.lookup_burst(burst.destination, burst.next_hop, burst.count);
  }
};

}  // namespace sluice

// host only
// A stage's burst form for packets with registers: where it goes by keys alone, their keys become columns.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>

#include "batch/fast_burst.h"
#include "batch/packet.h"

namespace sluice {

template <typename Stage>
concept TakesBursts = requires(const Stage& stage, FastBurst& burst) {
  { stage.burst(burst, 1u) } -> std::same_as<uint32_t>;
};

// It reads the key and writes what was found: no frame, no extent.
template <typename Stage>
concept TakesKeyBursts = TakesBursts<Stage> &&(Stage::kReads & ~FieldMask{kFieldKey | kFieldDestination}) == 0 &&
                         (Stage::kWrites & ~FieldMask{kFieldRule | kFieldMark | kFieldNextHop | kFieldReason}) == 0;

// What stage(packets[i]) does and gives, for each lane of `mask`, one family after the other.
template <TakesKeyBursts Stage>
void run_key_burst(const Stage& stage, Packet* packets, uint32_t mask, uint8_t* outputs) {
  constexpr bool kWritesRule = (Stage::kWrites & kFieldRule) != 0, kWritesMark = (Stage::kWrites & kFieldMark) != 0,
                 kWritesNextHop = (Stage::kWrites & kFieldNextHop) != 0;
  FastBurst burst;
  burst.count = 0;
  while (mask != 0) {
    const uint8_t family = packets[std::countr_zero(mask)].key.family;
    uint32_t rest = 0;  // of the other family, no IP packets, and keys that no column holds (net/key4.h)
    uint8_t lanes[FastBurst::kLanes];
    burst.clear();
    burst.family = family;
    burst.marked = 0;
    uint32_t count = 0;
    for (uint32_t m = mask; m != 0; m &= m - 1) {
      const auto i = static_cast<uint8_t>(std::countr_zero(m));
      const Packet& p = packets[i];
      if ((family == 0) | (p.key.family != family) | is_rare_key(p.key)) {
        rest |= m & (0u - m);
        continue;
      }
      burst.set_key(count, p.key);
      if constexpr (kWritesRule) burst.rule[count] = p.rule;
      lanes[count++] = i;
    }
    if (count == 0) {
      const auto i = static_cast<uint32_t>(std::countr_zero(mask));
      outputs[i] = stage(packets[i]);
      mask &= mask - 1;
      continue;
    }
    burst.count = count;
    const uint32_t passed = stage.burst(burst, burst.lanes());
    for (uint32_t lane = 0; lane < count; ++lane) {
      Packet& p = packets[lanes[lane]];
      if constexpr (kWritesRule) p.rule = burst.rule[lane];
      if constexpr (kWritesNextHop) p.next_hop = burst.next_hop[lane];
      if constexpr (kWritesMark) {
        if ((burst.marked >> lane & 1) != 0) p.mark = burst.mark[lane];
      }
      const bool failed = (passed >> lane & 1) == 0;
      outputs[lanes[lane]] = failed ? burst.output[lane] : uint8_t{0};
      if (failed && burst.reason[lane] != DropReason::kNone) p.reason = burst.reason[lane];
    }
    mask = rest;
  }
}

}  // namespace sluice

// host only
// Tile: 32 packets whose registers stay in L1 while every stage of a program runs over them.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "batch/packet.h"
#include "graph/stage_slot.h"

namespace sluice {

struct alignas(64) Tile {
  static constexpr uint32_t kLanes = 32;

  uint8_t path[kLanes];
  uint8_t output[kLanes];
  uint32_t index[kLanes];  // row of the batch
  Packet packet[kLanes];
  uint32_t count;

  // The lanes whose path is `value`.
  uint32_t lanes_at(uint8_t value) const {
#if defined(__SSE2__)
    const __m128i want = _mm_set1_epi8(static_cast<char>(value));
    const __m128i low = _mm_load_si128(reinterpret_cast<const __m128i*>(path));
    const __m128i high = _mm_load_si128(reinterpret_cast<const __m128i*>(path + 16));
    return static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(low, want))) |
           static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(high, want))) << 16;
#else
    uint32_t mask = 0;
    for (uint32_t i = 0; i < kLanes; ++i) mask |= uint32_t{path[i] == value} << i;
    return mask;
#endif
  }
};

// Calls f(lane) for each set bit, in order; the full mask, which is the common one, is a plain loop.
template <typename F>
inline void for_lanes(uint32_t mask, F&& f) {
  if (mask == ~uint32_t{0}) {
    for (uint32_t i = 0; i < Tile::kLanes; ++i) f(i);
  } else {
    for (; mask != 0; mask &= mask - 1) f(static_cast<uint32_t>(std::countr_zero(mask)));
  }
}

// Runs one stage over the lanes of `mask` and sets tile.output of each.
using StageKernel = void (*)(const StageSlot&, Tile&, uint32_t mask);

// The kernel of a stage kind (elements/stages.h).
StageKernel cpu_stage_kernel(uint16_t kind);

}  // namespace sluice

// host only
// Tile: 32 packets whose registers stay in L1 while every stage of a program runs over them.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__SSE4_1__)
#include <smmintrin.h>
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
  uint32_t count;  // lanes in use
  uint32_t valid;  // their mask
  uint32_t dead;   // dropped and counted

  // The lanes whose path is `value`.
  uint32_t lanes_at(uint8_t value) const {
#if defined(__SSE4_1__)
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

  // Moves the lanes at `from` along their outputs: path = next[output & 15]. kDropOutput lands on entry 15, which
  // drops.
  void advance(uint8_t from, const uint8_t (&next)[16]) {
#if defined(__SSE4_1__)
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(next));
    const __m128i at = _mm_set1_epi8(static_cast<char>(from));
    const __m128i low_bits = _mm_set1_epi8(15);
    for (uint32_t half = 0; half < kLanes; half += 16) {
      auto* paths = reinterpret_cast<__m128i*>(path + half);
      const __m128i now = _mm_load_si128(paths);
      const __m128i out = _mm_load_si128(reinterpret_cast<const __m128i*>(output + half));
      const __m128i then = _mm_shuffle_epi8(table, _mm_and_si128(out, low_bits));
      _mm_store_si128(paths, _mm_blendv_epi8(now, then, _mm_cmpeq_epi8(now, at)));
    }
#else
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (path[i] == from) path[i] = next[output[i] & 15];
    }
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

// Runs one stage over the lanes of `mask` and sets tile.output of each. `prefetched`: the stage's early prefetch has
// run.
using StageKernel = void (*)(const StageSlot&, Tile&, uint32_t mask, bool prefetched);

// Asks for what a stage will read first of its table, for the lanes of `mask`. Only stages that find their table by the
// key alone have one: then it can run long before the stage.
using StagePrefetch = void (*)(const StageSlot&, const Tile&, uint32_t mask);

// The kernel of a stage kind (elements/stages.h).
StageKernel cpu_stage_kernel(uint16_t kind);
// Its early prefetch, or nullptr.
StagePrefetch cpu_stage_prefetch(uint16_t kind);

}  // namespace sluice

// WarpGroup: the 32 lanes of a warp as a Group (base/group.h). Device only; empty to a host compiler.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/hd.h"

namespace sluice {

#if defined(__CUDACC__)

// Every collective is called by all 32 lanes together, in a block of one dimension whose size is a multiple of 32.
struct WarpGroup {
  static constexpr uint32_t kLeast = 32;
  static constexpr uint32_t kAll = 0xffffffffu;

  __device__ __forceinline__ uint32_t lane() const { return threadIdx.x & 31u; }
  __device__ __forceinline__ uint32_t size() const { return 32; }
  __device__ __forceinline__ void sync() const { __syncwarp(kAll); }

  template <typename T>
  __device__ __forceinline__ T broadcast(T value, uint32_t from = 0) const {
    return exchange(value, [from](uint32_t word) { return __shfl_sync(kAll, word, static_cast<int>(from)); });
  }
  // A tree that joins neighbours only, the lower lanes on the left: op must associate, but need not commute.
  template <typename T, typename Op>
  __device__ __forceinline__ T reduce(T value, Op op) const {
#pragma unroll
    for (uint32_t step = 1; step < 32; step <<= 1) {
      const T right = exchange(value, [step](uint32_t word) { return __shfl_down_sync(kAll, word, step); });
      if ((lane() & (2 * step - 1)) == 0) value = op(value, right);
    }
    return broadcast(value);
  }
  __device__ __forceinline__ uint64_t sum_before(uint64_t value) const {
    uint64_t through = value;
#pragma unroll
    for (uint32_t step = 1; step < 32; step <<= 1) {
      const uint64_t left = __shfl_up_sync(kAll, through, step);
      if (lane() >= step) through += left;
    }
    return through - value;
  }
  __device__ __forceinline__ uint32_t ballot(bool value) const {
    return __ballot_sync(kAll, value);
  }
  __device__ __forceinline__ uint32_t least(uint32_t value) const {
    return __reduce_min_sync(kAll, value);
  }
  __device__ __forceinline__ uint32_t all_bits(uint32_t value) const {
    return __reduce_and_sync(kAll, value);
  }
  __device__ __forceinline__ bool somewhere(bool value) const {
    return __any_sync(kAll, value) != 0;
  }

 private:
  // A value of any size, word by word.
  template <typename T, typename Shuffle>
  static __device__ __forceinline__ T exchange(const T& value, Shuffle shuffle) {
    static_assert(std::is_trivially_copyable_v<T>);
    constexpr size_t kWords = (sizeof(T) + 3) / 4;
    uint32_t words[kWords] = {};
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (size_t i = 0; i < kWords; ++i) words[i] = shuffle(words[i]);
    T out;
    memcpy(&out, words, sizeof out);
    return out;
  }
};

// kLanes neighbours of a warp, a power of two below 32. All teams of a warp call every collective together: teams that
// went ways of their own would run one after another.
template <uint32_t kLanes>
struct TeamGroup {
  static constexpr uint32_t kLeast = kLanes;
  static constexpr uint32_t kAll = WarpGroup::kAll;

  __device__ __forceinline__ uint32_t lane() const { return threadIdx.x & (kLanes - 1); }
  __device__ __forceinline__ uint32_t size() const { return kLanes; }
  __device__ __forceinline__ void sync() const { __syncwarp(kAll); }
  __device__ __forceinline__ uint32_t broadcast(uint32_t value, uint32_t from = 0) const {
    return __shfl_sync(kAll, value, static_cast<int>(from), kLanes);
  }
  // By exchanges: a reduction over a part of the warp is five times as slow as one over all of it.
  __device__ __forceinline__ uint32_t least(uint32_t value) const {
    return butterfly(value, [](uint32_t a, uint32_t b) { return a < b ? a : b; });
  }
  __device__ __forceinline__ uint32_t all_bits(uint32_t value) const {
    return butterfly(value, [](uint32_t a, uint32_t b) { return a & b; });
  }
  __device__ __forceinline__ uint32_t ballot(bool value) const {
    return __ballot_sync(kAll, value) >> (threadIdx.x & 31u & ~(kLanes - 1)) & ((1u << kLanes) - 1);
  }
  __device__ __forceinline__ bool somewhere(bool value) const { return __any_sync(kAll, value) != 0; }

 private:
  template <typename Op>
  static __device__ __forceinline__ uint32_t butterfly(uint32_t value, Op op) {
#pragma unroll
    for (uint32_t step = 1; step < kLanes; step <<= 1) value = op(value, __shfl_xor_sync(kAll, value, step));
    return value;
  }
};

#endif

}  // namespace sluice

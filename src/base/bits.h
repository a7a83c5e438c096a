// Bit arithmetic that host and device share: one name each, the fast instruction on both sides.
#pragma once

#include <bit>
#include <cstdint>

#include "base/hd.h"

namespace sluice {

// The number of bits set.
SLUICE_HD unsigned popcount32(uint32_t v) {
#if defined(__CUDA_ARCH__)
  return static_cast<unsigned>(__popc(v));
#else
  return static_cast<unsigned>(std::popcount(v));
#endif
}

SLUICE_HD unsigned popcount64(uint64_t v) {
#if defined(__CUDA_ARCH__)
  return static_cast<unsigned>(__popcll(v));
#else
  return static_cast<unsigned>(std::popcount(v));
#endif
}

// The number of zero bits above the highest set bit; the word's width for 0.
SLUICE_HD unsigned leading_zeros32(uint32_t v) {
#if defined(__CUDA_ARCH__)
  return static_cast<unsigned>(__clz(static_cast<int>(v)));
#else
  return static_cast<unsigned>(std::countl_zero(v));
#endif
}

SLUICE_HD unsigned leading_zeros64(uint64_t v) {
#if defined(__CUDA_ARCH__)
  return static_cast<unsigned>(__clzll(static_cast<long long>(v)));
#else
  return static_cast<unsigned>(std::countl_zero(v));
#endif
}

// The number of zero bits below the lowest set bit; the word's width for 0.
SLUICE_HD unsigned trailing_zeros32(uint32_t v) {
#if defined(__CUDA_ARCH__)
  return v == 0 ? 32u : static_cast<unsigned>(__ffs(static_cast<int>(v)) - 1);
#else
  return static_cast<unsigned>(std::countr_zero(v));
#endif
}

SLUICE_HD unsigned trailing_zeros64(uint64_t v) {
#if defined(__CUDA_ARCH__)
  return v == 0 ? 64u : static_cast<unsigned>(__ffsll(static_cast<long long>(v)) - 1);
#else
  return static_cast<unsigned>(std::countr_zero(v));
#endif
}

// The number of bits that v needs: 0 for 0, 1 + floor(log2 v) otherwise.
SLUICE_HD unsigned bit_width64(uint64_t v) {
  return 64 - leading_zeros64(v);
}

SLUICE_HD constexpr bool is_power_of_two(uint64_t v) {
  return v != 0 && (v & (v - 1)) == 0;
}

// The smallest multiple of `alignment` (a power of two) that is at least v; wraps to 0 past 2^64.
SLUICE_HD constexpr uint64_t align_up(uint64_t v, uint64_t alignment) {
  return (v + alignment - 1) & ~(alignment - 1);
}

// v / divisor, rounded up; divisor is not 0. No overflow for any v.
SLUICE_HD constexpr uint64_t ceil_div(uint64_t v, uint64_t divisor) {
  return v / divisor + (v % divisor != 0 ? 1 : 0);
}

}  // namespace sluice

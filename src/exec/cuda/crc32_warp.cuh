// CRC-32 by a warp, eight frames at a time, on the binary matrix units (net/crc32_matrix.h). Device only.
//
// Four lanes hold a frame. They walk over it in steps of 64 bytes, 16 each, aligned as memory is; every step is two
// products of the step's bits with the rows of the matrix that belong to the bytes behind it, added up over a window of
// kCrc32Steps steps. Only then parities are taken and the register goes into the next window's first word, as a start
// value goes into a frame's. Frames end together, so that those of different lengths share the matrix; what stands
// before a frame and behind it is zeros, and the ones behind are divided away at the end.
#pragma once

#include <cstdint>

#include "net/crc32_matrix.h"

namespace sluice::cuda_crc {

static __device__ const Crc32Matrix kForward = crc32_detail::make_matrix(false);
static __device__ const Crc32Matrix kReflected = crc32_detail::make_matrix(true);
static __device__ const crc32_detail::Unfill kForwardUnfill = crc32_detail::make_unfill(false);
static __device__ const crc32_detail::Unfill kReflectedUnfill = crc32_detail::make_unfill(true);

inline constexpr uint32_t kEveryLane = 0xffffffffu;
// Frames of a warp, and how many bytes a frame has at least that is summed.
inline constexpr uint32_t kFrames = 8;
inline constexpr uint32_t kLeastBytes = 4;

__device__ __forceinline__ const uint4* matrix_of(Crc32Mode mode) {
  return reinterpret_cast<const uint4*>(mode == Crc32Mode::kFcs ? &kReflected : &kForward);
}

__device__ __forceinline__ void multiply_add(int (&sum)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// Bytes [0, n) of a word, n of any value.
__device__ __forceinline__ uint32_t first_bytes(int n) {
  return n <= 0 ? 0u : n >= 4 ? ~0u : (1u << (8 * n)) - 1;
}

// The word whose first byte is byte `at` of the frame, as it counts: `start` in the first four bytes, nothing outside.
__device__ __forceinline__ uint32_t edge_word(uint32_t word, int at, int bytes, uint32_t start) {
  if (at < 4 && at > -4) word ^= at >= 0 ? start >> (8 * at) : start << (-8 * at);
  return word & first_bytes(bytes - at) & ~first_bytes(-at);
}

// The registers of eight frames: lane l has frame l / 4, of `bytes` bytes that begin `before` bytes (0 to 15) behind a
// multiple of 16, the same in its four lanes, and gets that frame's register. piece(at): the 16 bytes that begin `at`
// bytes, a multiple of 16, behind that multiple; asked for where one of them is the frame's. Start values in `crc`.
// Every lane of the warp calls it; a frame of less than four bytes does not hold a start value and is left out: crc
// comes back. The matrix, which nothing ever writes, is read by the read-only path.
template <typename Piece>
__device__ __forceinline__ uint32_t eight_frames(Crc32Mode mode, uint32_t before, uint32_t bytes, uint32_t crc,
                                                 const Piece& piece) {
  const uint4* const matrix = matrix_of(mode);
  if (bytes < kLeastBytes) bytes = 0;
  const uint32_t lane = threadIdx.x & 31u, quarter = lane & 3u;
  const bool reflected = mode == Crc32Mode::kFcs;
  const uint32_t end = bytes == 0 ? 0 : before + bytes;
  const uint32_t steps = (end + 63) / 64;
  const uint32_t most = __reduce_max_sync(kEveryLane, steps);
  const uint32_t start = reflected ? crc : __byte_perm(crc, 0, 0x0123);
  // This lane's part of the first step.
  const uint32_t mine = 16 * quarter;

  int sums[2][4] = {};
  uint32_t carry = 0;
  // Loads of kAhead steps are on their way together.
  constexpr uint32_t kAhead = 4;
#pragma unroll 1
  for (uint32_t left = most; left != 0;) {
    // Steps left, left - 1, ...: a window ends with the step that has a multiple of kCrc32Steps behind it.
    const uint32_t many = (left - 1) % kAhead + 1;
    uint4 v[kAhead];
#pragma unroll
    for (uint32_t k = 0; k < kAhead; ++k) {
      const uint32_t at = 64 * (steps - left + k) + mine;  // wraps far past the end before the frame begins
      v[k] = make_uint4(0, 0, 0, 0);
      if (k < many && at < end && at + 16 > before) v[k] = piece(at);
    }
#pragma unroll
    for (uint32_t k = 0; k < kAhead; ++k) {
      if (k >= many) break;
      const uint32_t step = steps - left + k;
      const uint32_t at = 64 * step + mine;
      if (step == 0 || step + 1 == steps) {
        const int here = static_cast<int>(at) - static_cast<int>(before);
        const auto n = static_cast<int>(bytes);
        v[k].x = edge_word(v[k].x, here, n, start);
        v[k].y = edge_word(v[k].y, here + 4, n, start);
        v[k].z = edge_word(v[k].z, here + 8, n, start);
        v[k].w = edge_word(v[k].w, here + 12, n, start);
      }
      if (quarter == 0) v[k].x ^= carry;
      carry = 0;
      const uint4* a = matrix + ((left - 1 - k) % kCrc32Steps) * 128 + lane;
      multiply_add(sums[0], __ldg(a), v[k].x, v[k].y);
      multiply_add(sums[1], __ldg(a + 32), v[k].x, v[k].y);
      multiply_add(sums[0], __ldg(a + 64), v[k].z, v[k].w);
      multiply_add(sums[1], __ldg(a + 96), v[k].z, v[k].w);
    }
    left -= many;
    if (left % kCrc32Steps == 0) {
      uint32_t word = 0;
#pragma unroll
      for (uint32_t b = 0; b < 4; ++b) {
        const uint32_t even = __ballot_sync(kEveryLane, (sums[b / 2][b % 2 * 2] & 1) != 0);
        const uint32_t odd = __ballot_sync(kEveryLane, (sums[b / 2][b % 2 * 2 + 1] & 1) != 0);
        word |= (((lane >> 2 & 1) != 0 ? odd : even) >> (lane >> 3) & 0x11111111u) << b;
        sums[b / 2][b % 2 * 2] = sums[b / 2][b % 2 * 2 + 1] = 0;
      }
      crc = bytes == 0 ? crc : word;
      carry = reflected ? word : __byte_perm(word, 0, 0x0123);
    }
  }
  // Each lane of four takes a byte of the register.
  const uint32_t fill = bytes == 0 ? 0 : 64 * steps - end;
  if (__any_sync(kEveryLane, fill != 0)) {
    const crc32_detail::Unfill& powers = reflected ? kReflectedUnfill : kForwardUnfill;
    // Byte `quarter` from the lowest powers on: times x^(8 quarter - 8 fill).
    uint32_t by = __ldg(&powers.at[3 - quarter + fill]);
    const uint32_t byte = reflected ? crc >> (24 - 8 * quarter) : crc >> (8 * quarter);
    uint32_t product = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t bit = reflected ? byte >> (7 - i) : byte >> i;
      product ^= by & (0u - (bit & 1));
      by = crc32_detail::times_x(reflected, by);
    }
    product ^= __shfl_xor_sync(kEveryLane, product, 1);
    product ^= __shfl_xor_sync(kEveryLane, product, 2);
    if (fill != 0) crc = product;
  }
  return crc;
}

// The same of frames in memory, which are read by ordinary loads.
__device__ __forceinline__ uint32_t eight_frames(Crc32Mode mode, const uint8_t* data, uint32_t bytes, uint32_t crc) {
  const auto before = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data) & 15u);
  return eight_frames(mode, before, bytes, crc,
                      [from = data - before](uint32_t at) { return *reinterpret_cast<const uint4*>(from + at); });
}

}  // namespace sluice::cuda_crc

// CRC-32 of a window of bytes as a matrix over GF(2), laid out for the binary matrix units of NVIDIA GPUs
// (mma.m16n8k256 with and.popc, PTX ISA section 9.7.15): the register is 32 parities, each of the input's bits under
// one row. Host and device.
//
// A window is kSteps steps of 64 bytes; a step is 16 words as they are loaded (little-endian), and two products of 256
// bits: quarter q of a step's bytes (16 of them) are the words of lane q of four, words 2 j and 2 j + 1 of them in
// product j. Rows stand where the parities are easiest to collect: row g of half h of tile t is the register's bit 4 g
// + 2 t + h.
#pragma once

#include <cstdint>

#include "net/crc32.h"

namespace sluice {

inline constexpr uint32_t kCrc32StepBytes = 64;
inline constexpr uint32_t kCrc32Steps = 8;

struct Crc32Matrix {
  // [steps behind][product][tile][lane]: the fragment of lane 4 g + q.
  struct alignas(16) Fragment {
    uint32_t a[4];  // (row g, word 0), (row g + 8, word 0), (row g, word 1), (row g + 8, word 1)
  };
  Fragment at[kCrc32Steps][2][2][32];
};

namespace crc32_detail {

// Bit i of word j and bit j of word i change places (Warren, Hacker's Delight, 7-3).
constexpr void transpose32(uint32_t (&m)[32]) {
  uint32_t mask = 0x0000ffffu;
  for (uint32_t width = 16; width != 0; width >>= 1, mask ^= mask << width) {
    for (uint32_t k = 0; k < 32; k = (k + width + 1) & ~width) {
      const uint32_t t = (m[k] >> width ^ m[k + width]) & mask;
      m[k] ^= t << width;
      m[k + width] ^= t;
    }
  }
}

constexpr uint32_t times_x(bool reflected, uint32_t a) {
  if (reflected) return a >> 1 ^ (kCrc32PolyReflected & (0u - (a & 1)));
  return a << 1 ^ (kCrc32Poly & (0u - (a >> 31)));
}

constexpr Crc32Matrix make_matrix(bool reflected) {
  Crc32Matrix m{};
  // The last bit of a window counts for x^32, each before it for x more.
  uint32_t power = crc32_power(reflected, 32);
  for (uint32_t step = 0; step < kCrc32Steps; ++step) {
    for (uint32_t word = 16; word-- > 0;) {
      uint32_t rows[32]{};
      for (uint32_t u = 0; u < 32; ++u) {
        rows[reflected ? 31 - u : 8 * (3 - u / 8) + u % 8] = power;
        power = times_x(reflected, power);
      }
      transpose32(rows);
      const uint32_t quarter = word / 4, product = word / 2 % 2;
      for (uint32_t bit = 0; bit < 32; ++bit) {
        const uint32_t g = bit / 4, tile = bit / 2 % 2, half = bit % 2;
        m.at[step][product][tile][4 * g + quarter].a[2 * (word % 2) + half] = rows[bit];
      }
    }
  }
  return m;
}

// [66 - i]... x^(8 (3 - i)), i in 0 ... 66: what divides by the zero bytes behind a frame, for each byte of the
// register.
struct Unfill {
  uint32_t at[67];
};

constexpr Unfill make_unfill(bool reflected) {
  Unfill u{};
  const uint32_t back = crc32_power(reflected, -8);
  u.at[0] = crc32_power(reflected, 24);
  for (uint32_t i = 1; i < 67; ++i) u.at[i] = multiply(reflected, u.at[i - 1], back);
  return u;
}

}  // namespace crc32_detail
}  // namespace sluice

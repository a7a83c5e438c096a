// CRC-32 over the polynomial 0x04C11DB7 in the two forms that the elements know, splittable over the lanes of a group.
//
//   click  most significant bit first, starts at ~0, no final inversion: "123456789" -> 0x0376E6E7 (CRC-32/MPEG-2)
//   fcs    least significant bit first, starts at ~0, inverted at the end: "123456789" -> 0xCBF43926 (IEEE 802.3 FCS)
//
// A CRC register is a polynomial over GF(2) modulo P. With r(A) the register after the bytes A from a zero start,
// r(A||B) = r(A) * x^(8 |B|) + r(B): pieces are computed apart and combined by crc32_shift. A start value is a piece of
// its own in front: r'(A) = start * x^(8 |A|) + r(A).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/hd.h"
#include "net/bytes.h"

namespace sluice {

enum class Crc32Mode : uint8_t { kClick = 0, kFcs = 1 };

inline constexpr uint32_t kCrc32Poly = 0x04c11db7u;
inline constexpr uint32_t kCrc32PolyReflected = 0xedb88320u;
inline constexpr uint32_t kCrc32Start = ~uint32_t{0};

// What is stored for a register: click as it is, fcs inverted.
SLUICE_HD constexpr uint32_t crc32_finish(Crc32Mode mode, uint32_t crc) {
  return mode == Crc32Mode::kFcs ? ~crc : crc;
}

// The oracle: one bit at a time. Takes and gives the register.
SLUICE_HD uint32_t crc32_bitwise(Crc32Mode mode, uint32_t crc, const uint8_t* data, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; ++i) {
    if (mode == Crc32Mode::kFcs) {
      crc ^= data[i];
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (kCrc32PolyReflected & (0u - (crc & 1)));
    } else {
      crc ^= uint32_t{data[i]} << 24;
      for (int bit = 0; bit < 8; ++bit) crc = crc << 1 ^ (kCrc32Poly & (0u - (crc >> 31)));
    }
  }
  return crc;
}

namespace crc32_detail {

// by[k][b]: the register after byte b and k zero bytes, from a zero start ("slicing": Kounavis and Berry, ISCC 2005).
struct Tables {
  uint32_t by[8][256];
};

constexpr Tables make_tables(bool reflected) {
  Tables t{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = reflected ? b : b << 24;
    for (int bit = 0; bit < 8; ++bit) {
      if (reflected) {
        crc = (crc & 1) != 0 ? crc >> 1 ^ kCrc32PolyReflected : crc >> 1;
      } else {
        crc = (crc >> 31) != 0 ? crc << 1 ^ kCrc32Poly : crc << 1;
      }
    }
    t.by[0][b] = crc;
  }
  for (uint32_t k = 1; k < 8; ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t before = t.by[k - 1][b];
      t.by[k][b] = reflected ? before >> 8 ^ t.by[0][before & 255] : before << 8 ^ t.by[0][before >> 24];
    }
  }
  return t;
}

// powers[k] = x^(8 * 2^k) mod P, in the mode's bit order.
struct Powers {
  uint32_t x[32];
};

// a * b mod P. Reflected: bit 31 is x^0; else bit 0 is.
SLUICE_HD constexpr uint32_t multiply(bool reflected, uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int i = 0; i < 32; ++i) {
    if (reflected) {
      product ^= b & (0u - (a >> 31));
      a <<= 1;
      b = b >> 1 ^ (kCrc32PolyReflected & (0u - (b & 1)));
    } else {
      product ^= b & (0u - (a & 1));
      a >>= 1;
      b = b << 1 ^ (kCrc32Poly & (0u - (b >> 31)));
    }
  }
  return product;
}

constexpr Powers make_powers(bool reflected) {
  Powers p{};
  p.x[0] = reflected ? 0x00800000u : 0x00000100u;  // x^8
  for (int k = 1; k < 32; ++k) p.x[k] = multiply(reflected, p.x[k - 1], p.x[k - 1]);
  return p;
}

}  // namespace crc32_detail

// x^exponent mod P in the mode's bit order. P is primitive, so that exponents count modulo 2^32 - 1 and x has an
// inverse.
constexpr uint32_t crc32_power(bool reflected, int64_t exponent) {
  constexpr int64_t kOrder = 0xffffffff;
  uint32_t square = reflected ? 0x40000000u : 2u;  // x
  uint32_t result = reflected ? 0x80000000u : 1u;
  for (int64_t e = (exponent % kOrder + kOrder) % kOrder; e != 0; e >>= 1) {
    if ((e & 1) != 0) result = crc32_detail::multiply(reflected, result, square);
    square = crc32_detail::multiply(reflected, square, square);
  }
  return result;
}

// The same eight bytes at a time.
SLUICE_HD uint32_t crc32_update(Crc32Mode mode, uint32_t crc, const uint8_t* data, uint32_t bytes) {
  static constexpr crc32_detail::Tables kReflected = crc32_detail::make_tables(true);
  static constexpr crc32_detail::Tables kForward = crc32_detail::make_tables(false);
  uint32_t i = 0;
  if (mode == Crc32Mode::kFcs) {
    const auto& t = kReflected.by;
    for (; i + 8 <= bytes; i += 8) {
      const uint32_t a = crc ^ load_le32(data + i);
      const uint32_t b = load_le32(data + i + 4);
      crc = t[7][a & 255] ^ t[6][a >> 8 & 255] ^ t[5][a >> 16 & 255] ^ t[4][a >> 24] ^ t[3][b & 255] ^
            t[2][b >> 8 & 255] ^ t[1][b >> 16 & 255] ^ t[0][b >> 24];
    }
    for (; i < bytes; ++i) crc = crc >> 8 ^ t[0][(crc ^ data[i]) & 255];
  } else {
    const auto& t = kForward.by;
    for (; i + 8 <= bytes; i += 8) {
      const uint32_t a = crc ^ load_be32(data + i);
      const uint32_t b = load_be32(data + i + 4);
      crc = t[7][a >> 24] ^ t[6][a >> 16 & 255] ^ t[5][a >> 8 & 255] ^ t[4][a & 255] ^ t[3][b >> 24] ^
            t[2][b >> 16 & 255] ^ t[1][b >> 8 & 255] ^ t[0][b & 255];
    }
    for (; i < bytes; ++i) crc = crc << 8 ^ t[0][crc >> 24 ^ data[i]];
  }
  return crc;
}

// The register after `bytes` more zero bytes: crc * x^(8 bytes). At most one multiplication a set bit of `bytes`.
SLUICE_HD uint32_t crc32_shift(Crc32Mode mode, uint32_t crc, uint32_t bytes) {
  static constexpr crc32_detail::Powers kReflected = crc32_detail::make_powers(true);
  static constexpr crc32_detail::Powers kForward = crc32_detail::make_powers(false);
  const bool reflected = mode == Crc32Mode::kFcs;
  for (uint32_t k = 0; bytes != 0; ++k, bytes >>= 1) {
    if ((bytes & 1) != 0) crc = crc32_detail::multiply(reflected, crc, reflected ? kReflected.x[k] : kForward.x[k]);
  }
  return crc;
}

// The fastest of the host's own (net/crc32_host.h).
uint32_t crc32_host(Crc32Mode mode, uint32_t crc, const uint8_t* data, size_t bytes);

// The same wherever it runs.
SLUICE_HD uint32_t crc32_piece(Crc32Mode mode, uint32_t crc, const uint8_t* data, uint32_t bytes) {
#if defined(__CUDA_ARCH__)
  return crc32_update(mode, crc, data, bytes);
#else
  return crc32_host(mode, crc, data, bytes);
#endif
}

// The register over [data, data + bytes) from kCrc32Start, computed by all lanes of a group; every lane gets it. The
// lanes after the first take equal pieces, so that the remainder is the first lane's.
template <typename Group>
SLUICE_HD uint32_t crc32_group(const Group& group, Crc32Mode mode, const uint8_t* data, uint32_t bytes) {
  const uint32_t lanes = group.size();
  if (lanes == 1) return crc32_piece(mode, kCrc32Start, data, bytes);
  struct Piece {
    uint32_t crc;
    uint32_t bytes;
  };
  const uint32_t piece = bytes / lanes;
  const uint32_t first = bytes - piece * (lanes - 1);
  const uint32_t lane = group.lane();
  const uint32_t from = lane == 0 ? 0 : first + (lane - 1) * piece;
  const uint32_t length = lane == 0 ? first : piece;
  const Piece mine{crc32_piece(mode, lane == 0 ? kCrc32Start : 0, data + from, length), length};
  const Piece all = group.reduce(mine, [mode](const Piece& a, const Piece& b) {
    return Piece{crc32_shift(mode, a.crc, b.bytes) ^ b.crc, a.bytes + b.bytes};
  });
  return all.crc;
}

struct Crc32Frame {
  const uint8_t* data;
  uint32_t bytes;
};

// Calls take(i, register), on one lane, for each bit i of `mask`; the register over frame(i), a Crc32Frame, from
// kCrc32Start. The group takes one frame at a time.
template <typename Group, typename Frame, typename Take>
SLUICE_HD void crc32_each(const Group& group, Crc32Mode mode, uint32_t mask, const Frame& frame, const Take& take) {
  for (; mask != 0; mask &= mask - 1) {
    const uint32_t i = trailing_zeros32(mask);
    const Crc32Frame f = frame(i);
    const uint32_t crc = crc32_group(group, mode, f.data, f.bytes);
    group.sync();
    if (group.lane() == 0) take(i, crc);
    group.sync();
  }
}

}  // namespace sluice

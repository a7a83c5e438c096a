// Unaligned loads and stores of integers, and byte swaps: what the parsers are made of.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/hd.h"

namespace sluice {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wide loads below assume a little-endian machine");

// Loads of memory order: the first byte in memory is the lowest. The caller owns the bounds.
SLUICE_HD uint16_t load_le16(const uint8_t* p) {
  uint16_t v;
  memcpy(&v, p, sizeof v);
  return v;
}
SLUICE_HD uint32_t load_le32(const uint8_t* p) {
  uint32_t v;
  memcpy(&v, p, sizeof v);
  return v;
}
SLUICE_HD uint64_t load_le64(const uint8_t* p) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

SLUICE_HD uint16_t swap16(uint16_t v) {
  return static_cast<uint16_t>(v << 8 | v >> 8);
}
SLUICE_HD uint32_t swap32(uint32_t v) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(v, 0, 0x0123);
#else
  return __builtin_bswap32(v);
#endif
}
SLUICE_HD uint64_t swap64(uint64_t v) {
#if defined(__CUDA_ARCH__)
  return uint64_t{swap32(static_cast<uint32_t>(v))} << 32 | swap32(static_cast<uint32_t>(v >> 32));
#else
  return __builtin_bswap64(v);
#endif
}

// Loads of network order.
SLUICE_HD uint16_t load_be16(const uint8_t* p) {
  return swap16(load_le16(p));
}
SLUICE_HD uint32_t load_be32(const uint8_t* p) {
  return swap32(load_le32(p));
}
SLUICE_HD uint64_t load_be64(const uint8_t* p) {
  return swap64(load_le64(p));
}

SLUICE_HD void store_le32(uint8_t* p, uint32_t v) {
  memcpy(p, &v, sizeof v);
}
SLUICE_HD void store_le64(uint8_t* p, uint64_t v) {
  memcpy(p, &v, sizeof v);
}

SLUICE_HD void store_be16(uint8_t* p, uint16_t v) {
  const uint16_t wire = swap16(v);
  memcpy(p, &wire, sizeof wire);
}
SLUICE_HD void store_be32(uint8_t* p, uint32_t v) {
  const uint32_t wire = swap32(v);
  memcpy(p, &wire, sizeof wire);
}
SLUICE_HD void store_be64(uint8_t* p, uint64_t v) {
  const uint64_t wire = swap64(v);
  memcpy(p, &wire, sizeof wire);
}

}  // namespace sluice

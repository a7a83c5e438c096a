// Wire-order integers and addresses as types.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/hd.h"

namespace sluice {

// A 16-bit integer in network order, at any alignment.
struct Be16 {
  uint8_t bytes[2];
  SLUICE_HD uint16_t host() const { return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]); }
  SLUICE_HD void set(uint16_t v) {
    bytes[0] = static_cast<uint8_t>(v >> 8);
    bytes[1] = static_cast<uint8_t>(v);
  }
};

// A 32-bit integer in network order, at any alignment.
struct Be32 {
  uint8_t bytes[4];
  SLUICE_HD uint32_t host() const {
    return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
  }
  SLUICE_HD void set(uint32_t v) {
    bytes[0] = static_cast<uint8_t>(v >> 24);
    bytes[1] = static_cast<uint8_t>(v >> 16);
    bytes[2] = static_cast<uint8_t>(v >> 8);
    bytes[3] = static_cast<uint8_t>(v);
  }
};

// A 64-bit integer in network order, at any alignment (half an IPv6 address).
struct Be64 {
  Be32 high, low;
  SLUICE_HD uint64_t host() const { return uint64_t{high.host()} << 32 | low.host(); }
  SLUICE_HD void set(uint64_t v) {
    high.set(static_cast<uint32_t>(v >> 32));
    low.set(static_cast<uint32_t>(v));
  }
};

struct MacAddress {
  uint8_t bytes[6];
  friend bool operator==(const MacAddress&, const MacAddress&) = default;
};

// An IP address of either family, host order; IPv4 in the low 32 bits of `lo`.
struct IpAddress {
  uint64_t hi = 0;
  uint64_t lo = 0;
  uint8_t family = 0;  // 4, 6, or 0: none
  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

// A prefix: the address bits past `length` are zero.
struct IpPrefix {
  IpAddress address;
  uint8_t length = 0;  // 0..32 or 0..128
  friend bool operator==(const IpPrefix&, const IpPrefix&) = default;
};

// The mask of the `length` highest bits of a 64-bit word, length 0..64.
SLUICE_HD uint64_t high_mask64(unsigned length) {
  return length == 0 ? 0 : ~uint64_t{0} << (64 - length);
}
// The mask of the `length` highest bits of a 32-bit word, length 0..32.
SLUICE_HD uint32_t high_mask32(unsigned length) {
  return length == 0 ? 0 : ~uint32_t{0} << (32 - length);
}

// Clears the bits of a 128-bit address behind its `length` highest ones, length 0..128.
SLUICE_HD void mask_address(uint64_t& hi, uint64_t& lo, unsigned length) {
  hi &= high_mask64(length < 64 ? length : 64);
  lo &= high_mask64(length > 64 ? length - 64 : 0);
}
// The prefix of `length` bits (0..32, 0..128) that an address lies in.
SLUICE_HD IpPrefix prefix_around(IpAddress address, unsigned length) {
  if (address.family == 4) {
    address.lo &= high_mask32(length);
  } else {
    mask_address(address.hi, address.lo, length);
  }
  return {address, static_cast<uint8_t>(length)};
}

static_assert(sizeof(Be16) == 2 && sizeof(Be32) == 4 && sizeof(Be64) == 8 && sizeof(MacAddress) == 6);

}  // namespace sluice

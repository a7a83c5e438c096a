// Changes to headers in place that keep every checksum right. Host and device.
//
// `ip` points at an IP header that has been parsed with kOk; nothing is checked again.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "net/bytes.h"
#include "net/checksum.h"
#include "net/types.h"

namespace sluice {

// Where TTL, protocol and checksum lie in an IPv4 header, read as one word in memory order.
inline constexpr uint32_t kHopWord = 8;

// That word with the TTL, which is not 0, one less and the checksum updated (RFC 1812 section 5.3.1, RFC 1624 eq. 3).
// No branch: many at a time are vector code.
SLUICE_HD constexpr uint32_t next_hop_word(uint32_t word) {
  // The 16-bit word changes from m = ttl << 8 | protocol to m' = m - 0x0100, so ~m + m' is 0xffff - 0x0100 whatever m
  // is; its bytes swapped, that is 0xfffe. The ones'-complement sum does not mind the order of bytes (RFC 1071 section
  // 2 B).
  uint32_t sum = (~word >> 16) + 0xfffeu;
  sum = (sum & 0xffff) + (sum >> 16);
  return (~sum << 16) | ((word - 1) & 0xffff);
}

// Decrements the TTL and updates the checksum. Returns the new TTL: at 0 the packet is not to be forwarded. A TTL that
// is 0 already stays, and 0 is returned.
SLUICE_HD uint8_t decrement_ttl_ipv4(uint8_t* ip) {
  const uint32_t word = load_le32(ip + kHopWord);
  const auto ttl = static_cast<uint8_t>(word);
  if (ttl == 0) return 0;
  store_le32(ip + kHopWord, next_hop_word(word));
  return static_cast<uint8_t>(ttl - 1);
}

// Decrements the hop limit (RFC 8200 section 3). Returns the new one; 0 stays 0.
SLUICE_HD uint8_t decrement_hop_limit_ipv6(uint8_t* ip) {
  if (ip[7] == 0) return 0;
  return --ip[7];
}

// Remarks the 6 bits of DSCP and keeps the 2 bits of ECN (RFC 2474, RFC 3168). Bits of `dscp` above the sixth are
// ignored.
SLUICE_HD void set_dscp_ipv4(uint8_t* ip, uint8_t dscp) {
  const uint8_t field = static_cast<uint8_t>((dscp & 0x3f) << 2 | (ip[1] & 3));
  const uint16_t before = load_be16(ip);
  const uint16_t after = static_cast<uint16_t>(ip[0] << 8 | field);
  ip[1] = field;
  store_be16(ip + 10, checksum_update(load_be16(ip + 10), before, after));
}
SLUICE_HD void set_dscp_ipv6(uint8_t* ip, uint8_t dscp) {
  const uint32_t first = load_be16(ip);  // version 4 bits, DSCP 6, ECN 2, flow label 4
  store_be16(ip, static_cast<uint16_t>((first & 0xf03fu) | (dscp & 0x3fu) << 6));
}

// Bytes of an IP header as far as IPv4's checksum: what has to be there to remark it.
inline constexpr uint32_t kRemarkBytes = 12;
// The same for a header of either family, 4 or 6.
SLUICE_HD void set_dscp(uint8_t* ip, unsigned family, uint8_t dscp) {
  if (family == 6) {
    set_dscp_ipv6(ip, dscp);
  } else {
    set_dscp_ipv4(ip, dscp);
  }
}

// Rewrites both addresses of an Ethernet header.
SLUICE_HD void set_macs(uint8_t* frame, const MacAddress& destination, const MacAddress& source) {
  memcpy(frame, destination.bytes, 6);
  memcpy(frame + 6, source.bytes, 6);
}

}  // namespace sluice

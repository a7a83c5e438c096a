// The Internet checksum (RFC 1071), its incremental update (RFC 1624), and the pseudo-headers of TCP, UDP and ICMPv6.
//
// A "sum" here is a 32-bit accumulator of 16-bit big-endian words whose carries are folded in at the end; the ones'-
// complement sum does not depend on the order of its words, so sums of parts add up as long as every part but the last
// has an even number of bytes.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "net/bytes.h"

namespace sluice {

// Folds to 16 bits, carries added back in. Never turns a non-zero sum into zero.
[[gnu::always_inline]] SLUICE_HD uint16_t checksum_fold(uint64_t sum) {
  sum = (sum & 0xffffffffu) + (sum >> 32);
  sum = (sum & 0xffffffffu) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

// Adds `bytes` bytes to `sum`; an odd last byte counts as the high half of a word. Returns a value below 2^16 + 2^16.
SLUICE_HD uint32_t checksum_add(const uint8_t* data, uint32_t bytes, uint32_t sum = 0) {
  // Four-byte words in memory order are summed in 64 bits (2^32 of them fit), folded, and swapped once: byte order
  // commutes with the ones'-complement sum (RFC 1071 section 2 B).
  uint64_t wide = 0;
  uint32_t i = 0;
  for (; i + 16 <= bytes; i += 16) {
    const uint64_t a = load_le64(data + i);
    const uint64_t b = load_le64(data + i + 8);
    wide += (a & 0xffffffffu) + (a >> 32) + (b & 0xffffffffu) + (b >> 32);
  }
  for (; i + 4 <= bytes; i += 4) wide += load_le32(data + i);
  if (i + 2 <= bytes) {
    wide += load_le16(data + i);
    i += 2;
  }
  if (i < bytes) wide += data[i];
  return uint32_t{swap16(checksum_fold(wide))} + checksum_fold(sum);
}

// The checksum field's value for a sum taken with that field as zero.
SLUICE_HD uint16_t checksum_finish(uint32_t sum) {
  return static_cast<uint16_t>(~checksum_fold(sum));
}

// True when a 20-byte IPv4 header, given as its three wide words in memory order, carries the right checksum: its words
// sum to a multiple of 0xffff. The sum of five 32-bit words has 35 bits, so the first fold leaves at most 0x20002, of
// which the multiples are 0xffff and 0x1fffe (never 0: the header is not all zero), and adding the upper half into the
// lower 16 bits takes exactly those two to 0xffff.
SLUICE_HD bool ipv4_checksum_ok20(uint64_t w0, uint64_t w1, uint32_t w2) {
  uint64_t sum = (w0 & 0xffffffffu) + (w0 >> 32) + (w1 & 0xffffffffu) + (w1 >> 32) + w2;
  sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
  return static_cast<uint16_t>(sum + (sum >> 16)) == 0xffff;
}

// The sum of the 32-bit words of `bytes` (a multiple of 4), in memory order.
SLUICE_HD uint64_t checksum_words(const uint8_t* data, uint32_t bytes) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < bytes; i += 4) sum += load_le32(data + i);
  return sum;
}

// True when the header of `header_bytes` (20..60, a multiple of 4) carries the right checksum.
SLUICE_HD bool ipv4_checksum_ok(const uint8_t* header, uint32_t header_bytes) {
  const uint64_t w0 = load_le64(header), w1 = load_le64(header + 8);
  const uint64_t sum = (w0 & 0xffffffffu) + (w0 >> 32) + (w1 & 0xffffffffu) + (w1 >> 32);
  return checksum_fold(sum + checksum_words(header + 16, header_bytes - 16)) == 0xffff;
}

// What the checksum field of this header should hold, whatever it holds now.
SLUICE_HD uint16_t ipv4_header_checksum(const uint8_t* header, uint32_t header_bytes) {
  return checksum_finish(checksum_add(header, 10) + checksum_add(header + 12, header_bytes - 12));
}

// RFC 1624 eq. 3: HC' = ~(~HC + ~m + m'), for one 16-bit word that changes from m to m'. Host order in and out.
// Erratum 4782: only where m != m', because eq. 3 turns HC = 0xffff into 0 when nothing changes.
SLUICE_HD uint16_t checksum_update(uint16_t hc, uint16_t m, uint16_t m_new) {
  if (m == m_new) return hc;
  uint32_t sum = static_cast<uint16_t>(~hc) + uint32_t{static_cast<uint16_t>(~m)} + m_new;
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~(sum + (sum >> 16)));
}

// The same for an aligned 32-bit field, such as an address.
SLUICE_HD uint16_t checksum_update32(uint16_t hc, uint32_t m, uint32_t m_new) {
  hc = checksum_update(hc, static_cast<uint16_t>(m >> 16), static_cast<uint16_t>(m_new >> 16));
  return checksum_update(hc, static_cast<uint16_t>(m), static_cast<uint16_t>(m_new));
}

// The same for words that had the sum `before` and have `after` (checksum_words, of fewer than 2^16 words). Where the
// sums are equal nothing has to change.
SLUICE_HD uint16_t checksum_update_sum(uint16_t hc, uint64_t before, uint64_t after) {
  if (before == after) return hc;
  // A multiple of 0xffff is nothing, and keeps the difference above 0.
  const uint64_t sum = static_cast<uint16_t>(~swap16(hc)) + after + (uint64_t{0xffff} << 32) - before;
  return swap16(static_cast<uint16_t>(~checksum_fold(sum)));
}

// Pseudo-header sums: RFC 9293 section 3.1 (IPv4) and RFC 8200 section 8.1 (IPv6). Addresses in host order; `l4_bytes`
// is the length of the upper-layer packet, header included.
SLUICE_HD uint32_t pseudo_sum_v4(uint32_t source, uint32_t destination, uint8_t protocol, uint32_t l4_bytes) {
  return checksum_fold(uint64_t{source} + destination + protocol + l4_bytes);
}
SLUICE_HD uint32_t pseudo_sum_v6(uint64_t source_hi, uint64_t source_lo, uint64_t destination_hi,
                                 uint64_t destination_lo, uint8_t next_header, uint32_t l4_bytes) {
  uint64_t sum = uint64_t{next_header} + l4_bytes;
  sum += (source_hi >> 32) + (source_hi & 0xffffffffu) + (source_lo >> 32) + (source_lo & 0xffffffffu);
  sum +=
      (destination_hi >> 32) + (destination_hi & 0xffffffffu) + (destination_lo >> 32) + (destination_lo & 0xffffffffu);
  return checksum_fold(sum);
}

// The checksum of an upper-layer packet whose own checksum field holds zero (then this is the value to store), or is in
// place (then 0 means right). `pseudo` is 0 for ICMPv4.
SLUICE_HD uint16_t l4_checksum(uint32_t pseudo, const uint8_t* l4, uint32_t l4_bytes) {
  return checksum_finish(checksum_add(l4, l4_bytes, pseudo));
}

// UDP sends a computed 0 as 0xffff, because 0 says "none" (RFC 768; RFC 8200 section 8.1).
SLUICE_HD uint16_t udp_checksum(uint32_t pseudo, const uint8_t* l4, uint32_t l4_bytes) {
  const uint16_t checksum = l4_checksum(pseudo, l4, l4_bytes);
  return checksum == 0 ? uint16_t{0xffff} : checksum;
}

}  // namespace sluice

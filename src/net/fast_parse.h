// host only
// Common packets, read by a few wide loads: what bursts take (exec/cpu/fast.h). All others go through net/parse.h,
// which also judges what is wrong with them.
#pragma once

#include <cstdint>

#include "net/bytes.h"
#include "net/checksum.h"
#include "net/ipv6.h"
#include "net/key4.h"
#include "net/l4.h"
#include "net/link.h"
#include "net/martian.h"
#include "net/parse.h"

namespace sluice {

// Bytes that a frame with a common packet has at least behind its link header: IPv4 or IPv6, and 8 of what they carry.
inline constexpr uint32_t kFastBytes4 = 28;
inline constexpr uint32_t kFastBytes6 = 48;

// Whether the header of `header_bytes` at `ip`, all there, has a right checksum and options that are well formed, with
// no source route among them.
[[gnu::always_inline]] inline bool has_plain_options(const uint8_t* ip, uint32_t header_bytes) {
  bool bad;
  return ipv4_checksum_ok(ip, header_bytes) &&
         !parse_detail::has_source_route(ip + kIpv4HeaderBytes, header_bytes - kIpv4HeaderBytes, bad) && !bad;
}

// True when `ip`, of which `bytes` are there, is an IPv4 packet without options, not a fragment, with a right checksum,
// lengths that hold, addresses that are plainly no martians (net/martian.h), and TCP, UDP or ICMP (of at least 8 bytes)
// with its header there. Then parse_ip says kOk, `key` is what it finds, `ip_bytes` is the packet's length as its
// header says, and `hop` its word at kHopWord (net/edit.h), whose low byte is the TTL. False says nothing about the
// packet, and the outputs hold nothing. Reads no byte past `bytes`.
//
// kAny: fragments are taken too, but tiny ones (Headers::kTinyFragment), and packets with plain options; `header` is
// where their header ends. Of a later fragment, as the key's bits say, 8 bytes have to be there behind it.
template <bool kAny>
[[gnu::always_inline]] inline bool parse_common4(const uint8_t* ip, uint32_t bytes, Key4& key, uint32_t& ip_bytes,
                                                 uint32_t& hop, uint32_t& header) {
  if (bytes < kFastBytes4) return false;
  const uint64_t w0 = load_le64(ip);  // version, IHL, DSCP, length, identification, fragment
  const uint64_t w1 = load_le64(ip + 8);
  const uint32_t w2 = load_le32(ip + 16);
  const auto protocol = static_cast<uint8_t>(w1 >> 8);
  const bool tcp = protocol == kProtocolTcp;
  const bool icmp = protocol == kProtocolIcmp;
  uint64_t wrong = static_cast<uint64_t>(!tcp & !icmp & (protocol != kProtocolUdp));
  header = kIpv4HeaderBytes;
  bool later = false;
  uint32_t bits = 0;  // FlowKey::Bits, but kHasPorts
  if constexpr (kAny) {
    const uint32_t fragment = swap16(static_cast<uint16_t>(w0 >> 48));
    const uint32_t offset = fragment & kIpv4OffsetMask;
    later = offset != 0;
    wrong |= static_cast<uint64_t>(tcp & (offset == 1));
    bits = ((fragment & (kIpv4MoreFragments | kIpv4OffsetMask)) != 0 ? uint32_t{FlowKey::kFragment} : 0u) |
           (later ? uint32_t{FlowKey::kLaterFragment} : 0u);
    if ((w0 & 0xf0) == 0x40 && (w0 & 0xf) > 5) {
      header = static_cast<uint32_t>(w0 & 0xf) * 4;
      if (bytes < header + 8 || !has_plain_options(ip, header)) return false;
    }
  } else {
    wrong |= w0 & 0xffbf000000000000u;  // DF is the one bit of the fragment word that may be set
  }
  if (header == kIpv4HeaderBytes) {
    wrong |= ((w0 ^ 0x45) & 0xff) | static_cast<uint64_t>(!ipv4_checksum_ok20(w0, w1, w2));
  }
  const uint32_t total = swap16(static_cast<uint16_t>(w0 >> 16));
  wrong |= static_cast<uint64_t>(total < header + (tcp & !later ? 20u : 8u));
  wrong |= static_cast<uint64_t>(total > bytes);
  const uint32_t source = swap32(static_cast<uint32_t>(w1 >> 32));
  const uint32_t destination = swap32(w2);
  wrong |= static_cast<uint64_t>(!martian_detail::plain_ipv4(source) | !martian_detail::plain_ipv4(destination));
  if (wrong != 0) return false;
  key.source = source;
  key.destination = destination;
  // ICMP's type and code take the place of ports. No branch: protocols come mixed. Byte 7 of any exists.
  const uint32_t ports = swap32(load_le32(ip + header)) >> (icmp ? 16 : 0);
  const bool has_flags = tcp & !later;
  const uint32_t flags = static_cast<uint32_t>(ip[header + (has_flags ? 13 : 7)]) & (has_flags ? 0xffu : 0u);
  key.ports = later ? 0u : ports;
  key.rest = protocol | flags << 8 | static_cast<uint32_t>(w0 >> 10 & 0x3f) << 16 |
             ((icmp | later ? 0u : uint32_t{FlowKey::kHasPorts}) | bits) << 22;
  ip_bytes = total;
  hop = static_cast<uint32_t>(w1);
  return true;
}
// Where the L4 header of what parse_common4 found lies, from the network header on. A later fragment has none.
inline bool has_l4(const Key4& key) {
  return (key.rest & uint32_t{FlowKey::kLaterFragment} << 22) == 0;
}

// What parse_fast6 finds; `ports` and `rest` as in Key4.
struct FastKey6 {
  uint64_t source_high, source_low, destination_high, destination_low;
  uint32_t ports, rest;
};
// As parse_common4 of an IPv6 packet without extension headers; ICMPv6 takes ICMP's place, and `hop` is the hop limit.
[[gnu::always_inline]] inline bool parse_fast6(const uint8_t* ip, uint32_t bytes, FastKey6& key, uint32_t& ip_bytes,
                                               uint32_t& hop) {
  if (bytes < kFastBytes6) return false;
  const uint64_t w0 = load_be64(ip);  // version, class, flow label, payload length, next header, hop limit
  const auto protocol = static_cast<uint8_t>(w0 >> 8);
  const bool tcp = protocol == kProtocolTcp;
  const bool icmp = protocol == kProtocolIcmpv6;
  bool wrong = w0 >> 60 != 6;
  wrong |= !tcp & !icmp & (protocol != kProtocolUdp);
  const uint32_t total = kIpv6HeaderBytes + static_cast<uint32_t>(w0 >> 16 & 0xffff);
  wrong |= total < (tcp ? 60u : 48u);
  wrong |= total > bytes;
  key.source_high = load_be64(ip + 8);
  key.destination_high = load_be64(ip + 24);
  wrong |= !martian_detail::plain_ipv6(key.source_high) | !martian_detail::plain_ipv6(key.destination_high);
  if (wrong) return false;
  key.source_low = load_be64(ip + 16);
  key.destination_low = load_be64(ip + 32);
  key.ports = swap32(load_le32(ip + 40)) >> (icmp ? 16 : 0);
  const uint32_t flags = static_cast<uint32_t>(ip[tcp ? 53 : 47]) & (tcp ? 0xffu : 0u);
  key.rest = protocol | flags << 8 | static_cast<uint32_t>(w0 >> 54 & 0x3f) << 16 |
             (icmp ? 0u : uint32_t{FlowKey::kHasPorts} << 22);
  ip_bytes = total;
  hop = static_cast<uint32_t>(w0 & 0xff);
  return true;
}

}  // namespace sluice

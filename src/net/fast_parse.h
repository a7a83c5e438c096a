// host only
// The common packet, read by a few wide loads: what the fast path (exec/cpu/fast.h) takes. All others go through
// net/parse.h, which also judges what is wrong with them.
#pragma once

#include <cstdint>

#include "net/bytes.h"
#include "net/checksum.h"
#include "net/ether.h"
#include "net/key4.h"
#include "net/l4.h"
#include "net/martian.h"

namespace sluice {

inline constexpr uint32_t kFastL3 = 14;  // where the network header of such a packet lies
inline constexpr uint32_t kFastL4 = 34;
// Bytes that a fast packet has at least: Ethernet, IPv4, and 8 of UDP or ICMP.
inline constexpr uint32_t kFastBytes = 42;

// True when `frame`, `bytes` long, is an untagged unicast Ethernet frame with an IPv4 packet without options, not a
// fragment, with a right checksum, lengths that hold, addresses that are plainly no martians (net/martian.h), and TCP,
// UDP or ICMP (of at least 8 bytes) with its header there. Then parse_ethernet says kOk, `key` is what it finds,
// `ip_bytes` is the packet's length as its header says, and `hop` its word at kHopWord (net/edit.h), whose low byte is
// the TTL. False says nothing about the packet, and the outputs hold nothing. Reads no byte past `bytes`.
[[gnu::always_inline]] inline bool parse_fast(const uint8_t* frame, uint32_t bytes, Key4& key, uint32_t& ip_bytes,
                                              uint32_t& hop) {
  if (bytes < kFastBytes) return false;
  const uint64_t w0 = load_le64(frame + kFastL3);  // version, IHL, DSCP, length, identification, fragment
  const uint64_t w1 = load_le64(frame + kFastL3 + 8);
  const uint32_t w2 = load_le32(frame + kFastL3 + 16);
  // DF is the one bit of the fragment word that may be set.
  uint64_t wrong = (w0 ^ 0x45) & 0xffbf0000000000ffu;
  wrong |= static_cast<uint32_t>(load_le16(frame + 12)) ^ swap16(kEtherTypeIpv4);
  wrong |= frame[0] & 1u;
  const auto protocol = static_cast<uint8_t>(w1 >> 8);
  const bool tcp = protocol == kProtocolTcp;
  const bool icmp = protocol == kProtocolIcmp;
  wrong |= static_cast<uint64_t>(!tcp & !icmp & (protocol != kProtocolUdp));
  const uint32_t total = swap16(static_cast<uint16_t>(w0 >> 16));
  wrong |= static_cast<uint64_t>(total < (tcp ? 40u : 28u));
  wrong |= static_cast<uint64_t>(total > bytes - kFastL3);
  wrong |= static_cast<uint64_t>(!ipv4_checksum_ok20(w0, w1, w2));
  const uint32_t source = swap32(static_cast<uint32_t>(w1 >> 32));
  const uint32_t destination = swap32(w2);
  wrong |= static_cast<uint64_t>(!martian_detail::plain_ipv4(source) | !martian_detail::plain_ipv4(destination));
  if (wrong != 0) return false;
  key.source = source;
  key.destination = destination;
  // ICMP's type and code take the place of ports. No branch: protocols come mixed. Byte 7 of any exists.
  key.ports = swap32(load_le32(frame + kFastL4)) >> (icmp ? 16 : 0);
  const uint32_t flags = static_cast<uint32_t>(frame[kFastL4 + (tcp ? 13 : 7)]) & (tcp ? 0xffu : 0u);
  key.rest = protocol | flags << 8 | static_cast<uint32_t>(w0 >> 10 & 0x3f) << 16 |
             (icmp ? 0u : uint32_t{FlowKey::kHasPorts} << 22);
  ip_bytes = total;
  hop = static_cast<uint32_t>(w1);
  return true;
}

}  // namespace sluice

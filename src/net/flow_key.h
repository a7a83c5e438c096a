// The classification key of one packet: what ACLs, ECMP and worker steering read.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/hd.h"

namespace sluice {

// Host byte order throughout. An IPv4 address sits in the low 32 bits of `lo`, with `hi` zero; `family` tells the
// two apart, so 0.0.0.1 and ::1 are different keys. An absent field is 0.
struct FlowKey {
  enum Bits : uint8_t {
    kHasPorts = 1,       // the 4 bytes of the ports are in this packet: TCP, UDP, UDP-Lite, SCTP or DCCP
    kFragment = 2,       // MF set or offset > 0 (IPv4), fragment header with M or offset (IPv6)
    kLaterFragment = 4,  // fragment offset > 0: there is no L4 header in this packet
    // Of packets that are no later fragments, and end inside their L4 header. A rule on a field that is not there
    // does not match (flatten in tables/acl/rule_set.h).
    kNoFlags = 8,      // TCP without its flags byte, ICMP without its code
    kNoIcmpType = 16,  // ICMP without its type
    kShortL4 = 32,     // the fixed L4 header is not whole (l4_header_bytes)
    kAfterAh = 64,     // IPv6: an Authentication Header was walked; netfilter's nft stops there
  };
  uint64_t src_hi = 0;
  uint64_t src_lo = 0;
  uint64_t dst_hi = 0;
  uint64_t dst_lo = 0;
  uint16_t src_port = 0;
  uint16_t dst_port = 0;
  uint16_t flags = 0;    // TCP flags byte << 8 (ClassBench's form: 0x0200 is SYN, 0x1000 is ACK); 0 for other protocols
  uint8_t protocol = 0;  // IPv4 protocol, or the last next-header value that was reached (IPv6)
  uint8_t dscp = 0;      // 6 bits
  uint8_t family = 0;    // 4, 6, or 0: not IP
  uint8_t bits = 0;
  uint16_t icmp = 0;  // ICMP type << 8 | code; 0 for other protocols
  uint32_t reserved = 0;

  friend bool operator==(const FlowKey&, const FlowKey&) = default;
};
static_assert(sizeof(FlowKey) == 48 && std::is_trivially_copyable_v<FlowKey>);

// 64-bit finaliser (Stafford's variant 13 of MurmurHash3's mixer, as in SplitMix64).
SLUICE_HD uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Five-tuple hash for ECMP and worker steering. The packets of one flow agree, fragments included: any fragment (first
// or later) is hashed by addresses and protocol alone, because only the first carries ports.
SLUICE_HD uint32_t flow_hash(const FlowKey& key, uint32_t seed = 0) {
  uint64_t h = mix64(key.src_lo ^ (uint64_t{seed} << 32) ^ key.protocol);
  h = mix64(h ^ key.dst_lo);
  if (key.family == 6) h = mix64(h ^ key.src_hi) + mix64(key.dst_hi ^ (h << 1));
  if ((key.bits & FlowKey::kFragment) == 0) h = mix64(h ^ (uint64_t{key.src_port} << 16 | key.dst_port));
  return static_cast<uint32_t>(h >> 32);
}

}  // namespace sluice

// Addresses that a router must not forward: RFC 1812 section 5.3.7 and 5.3.4, RFC 3927 section 7, RFC 4291
// sections 2.5.2, 2.5.3, 2.5.6 and 2.7.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "net/flow_key.h"
#include "net/ipv4.h"
#include "net/ipv6.h"

namespace sluice {

// The first rule that an address pair breaks: source before destination. Stable numbers.
enum class Martian : uint8_t {
  kNone = 0,
  kSourceUnspecified = 1,       // 0.0.0.0/8 ("this network"), ::
  kSourceLoopback = 2,          // 127.0.0.0/8, ::1
  kSourceLinkLocal = 3,         // 169.254.0.0/16, fe80::/10
  kSourceMulticast = 4,         // 224.0.0.0/4, ff00::/8
  kSourceReserved = 5,          // 240.0.0.0/4 but the next
  kSourceBroadcast = 6,         // 255.255.255.255
  kDestinationUnspecified = 7,  // 0.0.0.0/8, ::
  kDestinationLoopback = 8,     // 127.0.0.0/8, ::1
  kDestinationLinkLocal = 9,    // 169.254.0.0/16, fe80::/10
  kDestinationReserved = 10,    // 240.0.0.0/4 but 255.255.255.255, which is a broadcast and no martian
};
inline constexpr unsigned kMartianCount = 11;

inline const char* to_string(Martian martian) {
  switch (martian) {
    case Martian::kNone:
      return "none";
    case Martian::kSourceUnspecified:
      return "source-unspecified";
    case Martian::kSourceLoopback:
      return "source-loopback";
    case Martian::kSourceLinkLocal:
      return "source-link-local";
    case Martian::kSourceMulticast:
      return "source-multicast";
    case Martian::kSourceReserved:
      return "source-reserved";
    case Martian::kSourceBroadcast:
      return "source-broadcast";
    case Martian::kDestinationUnspecified:
      return "destination-unspecified";
    case Martian::kDestinationLoopback:
      return "destination-loopback";
    case Martian::kDestinationLinkLocal:
      return "destination-link-local";
    case Martian::kDestinationReserved:
      return "destination-reserved";
  }
  return "unknown";
}

namespace martian_detail {

SLUICE_HD Martian ipv4(uint32_t source, uint32_t destination) {
  if (source >> 24 == 0) return Martian::kSourceUnspecified;
  if (source >> 24 == 127) return Martian::kSourceLoopback;
  if (source >> 16 == 0xa9fe) return Martian::kSourceLinkLocal;
  if (is_ipv4_multicast(source)) return Martian::kSourceMulticast;
  if (source == kIpv4LimitedBroadcast) return Martian::kSourceBroadcast;
  if (source >> 28 == 0xf) return Martian::kSourceReserved;
  if (destination >> 24 == 0) return Martian::kDestinationUnspecified;
  if (destination >> 24 == 127) return Martian::kDestinationLoopback;
  if (destination >> 16 == 0xa9fe) return Martian::kDestinationLinkLocal;
  if (destination >> 28 == 0xf && destination != kIpv4LimitedBroadcast) return Martian::kDestinationReserved;
  return Martian::kNone;
}

// True when no rule can hold for either role: first octet 1..223, not 127 and not 169.
SLUICE_HD bool plain_ipv4(uint32_t address) {
  const uint32_t first = address >> 24;
  return first - 1 < 223 && first != 127 && first != 169;
}
// The same of the upper half of an IPv6 address: first octet 0x01 to 0xfd.
SLUICE_HD bool plain_ipv6(uint64_t high) {
  return (high >> 56) - 1 < 0xfd;
}

}  // namespace martian_detail

// Judges the addresses of a parsed packet; kNone for a key that is not IP. A directed broadcast needs the interfaces'
// prefixes and is not known here.
SLUICE_HD Martian martian(const FlowKey& key) {
  if (key.family == 4) {
    const uint32_t source = static_cast<uint32_t>(key.src_lo);
    const uint32_t destination = static_cast<uint32_t>(key.dst_lo);
    if (martian_detail::plain_ipv4(source) && martian_detail::plain_ipv4(destination)) return Martian::kNone;
    return martian_detail::ipv4(source, destination);
  }
  if (key.family == 6) {
    if (key.src_hi == 0 && key.src_lo == 0) return Martian::kSourceUnspecified;
    if (key.src_hi == 0 && key.src_lo == 1) return Martian::kSourceLoopback;
    if (is_ipv6_link_local(key.src_hi)) return Martian::kSourceLinkLocal;
    if (is_ipv6_multicast(key.src_hi)) return Martian::kSourceMulticast;
    if (key.dst_hi == 0 && key.dst_lo == 0) return Martian::kDestinationUnspecified;
    if (key.dst_hi == 0 && key.dst_lo == 1) return Martian::kDestinationLoopback;
    if (is_ipv6_link_local(key.dst_hi)) return Martian::kDestinationLinkLocal;
  }
  return Martian::kNone;
}

SLUICE_HD bool is_source_martian(Martian martian) {
  return martian != Martian::kNone && martian < Martian::kDestinationUnspecified;
}

// 224.0.0.0/4 or ff00::/8. No martian: whether it is forwarded is multicast routing's business.
SLUICE_HD bool is_multicast_destination(const FlowKey& key) {
  return (key.family == 4 && is_ipv4_multicast(static_cast<uint32_t>(key.dst_lo))) ||
         (key.family == 6 && is_ipv6_multicast(key.dst_hi));
}

// 255.255.255.255: for this link only, never forwarded.
SLUICE_HD bool is_limited_broadcast(const FlowKey& key) {
  return key.family == 4 && key.dst_lo == kIpv4LimitedBroadcast;
}

}  // namespace sluice

// The IPv6 header and its extension headers as they lie in the packet (RFC 8200, RFC 4302).
#pragma once

#include <cstdint>

#include "net/types.h"

namespace sluice {

struct Ipv6Address {
  Be64 high, low;
};

struct Ipv6Header {
  Be32 version_class_flow;  // version 4 bits, traffic class 8 (DSCP 6, ECN 2), flow label 20
  Be16 payload_length;      // bytes after this header, extension headers included
  uint8_t next_header;
  uint8_t hop_limit;
  Ipv6Address source;
  Ipv6Address destination;
};

// Hop-by-hop, routing and destination options start so; `length` counts 8-byte units past the first.
struct Ipv6ExtensionHeader {
  uint8_t next_header;
  uint8_t length;
};

struct Ipv6RoutingHeader {
  uint8_t next_header;
  uint8_t length;
  uint8_t type;
  uint8_t segments_left;
};

struct Ipv6FragmentHeader {
  uint8_t next_header;
  uint8_t reserved;
  Be16 offset_more;  // offset in units of 8 bytes (13 bits), 2 reserved bits, M
  Be32 id;
};

inline constexpr uint32_t kIpv6HeaderBytes = 40;
inline constexpr uint32_t kIpv6MinimumMtu = 1280;
inline constexpr uint32_t kMaxIpv6ExtensionHeaders = 8;  // a ninth is not followed

static_assert(sizeof(Ipv6Header) == kIpv6HeaderBytes && sizeof(Ipv6FragmentHeader) == 8);

// Extension headers that the parser walks over. ESP (50) and "no next header" (59) end the walk, as any other value
// does.
inline constexpr uint8_t kIpv6HopByHop = 0;
inline constexpr uint8_t kIpv6Routing = 43;
inline constexpr uint8_t kIpv6Fragment = 44;
inline constexpr uint8_t kIpv6Authentication = 51;
inline constexpr uint8_t kIpv6NoNextHeader = 59;
inline constexpr uint8_t kIpv6DestinationOptions = 60;

SLUICE_HD bool is_ipv6_extension(uint8_t next_header) {
  return next_header == kIpv6HopByHop || next_header == kIpv6Routing || next_header == kIpv6Fragment ||
         next_header == kIpv6Authentication || next_header == kIpv6DestinationOptions;
}

// `hi` is the upper half of an address in host order.
SLUICE_HD bool is_ipv6_multicast(uint64_t hi) {
  return hi >> 56 == 0xff;
}
SLUICE_HD bool is_ipv6_link_local(uint64_t hi) {
  return hi >> 54 == 0x3fa;
}  // fe80::/10

}  // namespace sluice

// The DSCP of a frame (RFC 2474).
#pragma once

#include <cstdint>
#include <span>

#include "net/link.h"

namespace sluice {

inline constexpr unsigned kNoDscp = 64;

// 0..63, or kNoDscp: the frame has no IPv4 or IPv6 header behind its VLAN tags, or is cut before its second byte.
inline unsigned dscp_of(std::span<const uint8_t> frame) {
  Link link;
  if (read_link(frame.data(), static_cast<uint32_t>(frame.size()), link) != LinkStatus::kOk) return kNoDscp;
  if (frame.size() < link.l3 + size_t{2}) return kNoDscp;
  const uint8_t* ip = frame.data() + link.l3;
  if (link.ether_type == kEtherTypeIpv4 && ip[0] >> 4 == 4) return ip[1] >> 2;
  if (link.ether_type == kEtherTypeIpv6 && ip[0] >> 4 == 6) return (ip[0] & 15u) << 2 | ip[1] >> 6;
  return kNoDscp;
}

}  // namespace sluice

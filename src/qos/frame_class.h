// The class of a frame by its codepoint, before anything has parsed it. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "net/bytes.h"
#include "net/ether.h"
#include "qos/class_map.h"

namespace sluice {

// The codepoint of a frame of `bytes` captured bytes; the default one, 0, for what is not IPv4 or IPv6, has more than
// kMaxVlanTags tags or ends before it. Where parse_ethernet says kOk, it is the key's. Looks at EtherTypes, version and
// codepoint alone: whether the packet is right is for the program to say.
SLUICE_HD unsigned dscp_of_frame(const uint8_t* frame, uint32_t bytes) {
  uint32_t at = kEtherHeaderBytes;
  if (bytes < at + 2) return 0;
  uint16_t type = load_be16(frame + 12);
  for (uint32_t tags = 0; is_vlan_ether_type(type); ++tags) {
    if (tags == kMaxVlanTags || bytes < at + kVlanTagBytes + 2) return 0;
    type = load_be16(frame + at + 2);
    at += kVlanTagBytes;
  }
  const unsigned version = frame[at] >> 4;
  const bool ip = (type == kEtherTypeIpv4 && version == 4) || (type == kEtherTypeIpv6 && version == 6);
  return ip ? dscp_of(frame + at, version) : 0;
}

}  // namespace sluice

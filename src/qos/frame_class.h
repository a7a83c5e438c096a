// The class of a frame by its codepoint, before anything has parsed it. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "net/link.h"
#include "qos/class_map.h"

namespace sluice {

// The codepoint of a frame of `bytes` captured bytes; the default one, 0, for what is not IPv4 or IPv6, has more than
// kMaxVlanTags tags or ends before it. Where parse_ethernet says kOk, it is the key's. Looks at EtherTypes, version and
// codepoint alone: whether the packet is right is for the program to say.
SLUICE_HD unsigned dscp_of_frame(const uint8_t* frame, uint32_t bytes) {
  // Most frames: IPv4 without a tag.
  if (bytes >= kEtherHeaderBytes + 2) {
    const uint32_t word = load_le32(frame + kEtherHeaderBytes - 2);
    if ((word & 0xf0ffffu) == 0x400008u) return word >> 26;
  }
  Link link;
  if (read_link(frame, bytes, link) != LinkStatus::kOk || bytes < link.l3 + 2) return 0;
  const uint8_t* at = frame + link.l3;
  const unsigned version = at[0] >> 4;
  const bool ip =
      (link.ether_type == kEtherTypeIpv4 && version == 4) || (link.ether_type == kEtherTypeIpv6 && version == 6);
  return ip ? dscp_of(at, version) : 0;
}

}  // namespace sluice

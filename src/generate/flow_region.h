// The set of headers that one rule matches, as plain values: what generators write and draw from.
#pragma once

#include <cstdint>

#include "net/types.h"

namespace sluice {

struct RegionPorts {
  uint16_t low = 0;
  uint16_t high = 65535;
  friend bool operator==(const RegionPorts&, const RegionPorts&) = default;
};

// A header is inside when every field is. A prefix of family 0 and length 0 stands for any address of either family.
// Masks select the bits that must equal the value's; flags are FlowKey's (TCP flags byte << 8).
struct FlowRegion {
  IpPrefix src;
  IpPrefix dst;
  RegionPorts src_port;
  RegionPorts dst_port;
  uint8_t protocol = 0;
  uint8_t protocol_mask = 0;
  uint16_t flags = 0;
  uint16_t flags_mask = 0;
  friend bool operator==(const FlowRegion&, const FlowRegion&) = default;
};

}  // namespace sluice

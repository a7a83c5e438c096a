// What network address translation has still to write into a packet: its source, once lists have seen it as it came
// (elements/nat).
#pragma once

#include <cstdint>

namespace sluice {

struct Translation {
  uint32_t source = 0;       // IPv4
  uint32_t destination = 0;  // IPv4: where the packet went to before its destination was written
  uint16_t source_port = 0;  // of ICMP queries their identifier
  uint16_t destination_port = 0;
  uint8_t has_source = 0, has_source_port = 0;
  uint8_t has_destination = 0, has_destination_port = 0;
  uint8_t quoted = 0;  // the packet is an ICMP error about the one that these are of

  bool any() const { return (has_source | has_destination) != 0; }
};
static_assert(sizeof(Translation) == 20);

}  // namespace sluice

// host only
// KeyColumns: FlowKeys of one family by column, as bursts hold them.
#pragma once

#include <cstdint>

#include "net/key4.h"

namespace sluice {

// Refers to columns of 32 places each, all of which may be read, whatever number of keys there is. Ports and the rest
// as in Key4, of either family.
struct KeyColumns {
  uint32_t family;  // 4 or 6
  const uint32_t* ports;
  const uint32_t* rest;
  // IPv4, or nullptr.
  const uint32_t* source;
  const uint32_t* destination;
  // IPv6, or nullptr; host order.
  const uint64_t* source_high;
  const uint64_t* source_low;
  const uint64_t* destination_high;
  const uint64_t* destination_low;

  FlowKey key(uint32_t i) const {
    const bool six = family == 6;
    FlowKey key = unpack_key4(Key4{six ? 0 : source[i], six ? 0 : destination[i], ports[i], rest[i]});
    if (six) {
      key.family = 6;
      key.src_hi = source_high[i];
      key.src_lo = source_low[i];
      key.dst_hi = destination_high[i];
      key.dst_lo = destination_low[i];
    }
    return key;
  }
};

}  // namespace sluice

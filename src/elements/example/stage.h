// Example: the skeleton of an element; copy it with `./dev new element NAME`. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

// Packets longer than `limit` leave by output 1.
struct ExampleStage {
  static constexpr FieldMask kReads = kFieldExtent;
  static constexpr FieldMask kWrites = kFieldReason;

  uint32_t limit = 0;

  // Write the packet, not the loop. No allocation, no exception, no host call: this runs on a device too.
  SLUICE_HD uint8_t operator()(Packet& p) const {
    return p.length() <= limit ? uint8_t{0} : fail(p, DropReason::kTooBig, 1);
  }
};

}  // namespace sluice

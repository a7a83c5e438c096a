// Counter and Null: a packet passes; the framework counts at every element. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

struct PassStage {
  static constexpr FieldMask kReads = 0;
  static constexpr FieldMask kWrites = 0;

  SLUICE_HD uint8_t operator()(Packet&) const { return 0; }
};

}  // namespace sluice

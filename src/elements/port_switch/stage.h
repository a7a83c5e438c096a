// PortSwitch: by the output port that the adjacency chose. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

// Output i gets the packets of ports[i]; all others leave by output `count`, with a reason only where that drops them.
struct PortSwitchStage {
  static constexpr FieldMask kReads = kFieldPort;
  static constexpr FieldMask kWrites = kFieldReason;
  static constexpr unsigned kMaxPorts = 14;

  uint16_t ports[kMaxPorts] = {};
  uint8_t count = 0;
  bool others = false;  // output `count` leads somewhere

  SLUICE_HD uint8_t operator()(Packet& p) const {
    for (uint8_t i = 0; i < count; ++i) {
      if (ports[i] == p.port) return i;
    }
    return others ? count : fail(p, DropReason::kUnconnectedOutput, count);
  }
};

}  // namespace sluice

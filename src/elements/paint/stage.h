// Paint and PaintSwitch. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

struct PaintStage {
  static constexpr FieldMask kReads = 0;
  static constexpr FieldMask kWrites = kFieldPaint;

  uint8_t color = 0;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    p.paint = color;
    return 0;
  }
};

// Output = paint; packets with a higher paint than there are outputs are dropped.
struct PaintSwitchStage {
  static constexpr FieldMask kReads = kFieldPaint;
  static constexpr FieldMask kWrites = kFieldReason;

  uint8_t outputs = 1;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (p.paint < outputs) return p.paint;
    return fail(p, DropReason::kUnconnectedOutput);
  }
};

}  // namespace sluice

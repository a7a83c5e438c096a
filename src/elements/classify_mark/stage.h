// ClassifyMark: a class by the mark of an access list. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

// The paint becomes the class, which is the output. Ranges do not overlap.
struct ClassifyMarkStage {
  static constexpr FieldMask kReads = kFieldMark;
  static constexpr FieldMask kWrites = kFieldPaint;
  static constexpr uint32_t kMaxRanges = 10;

  uint32_t low[kMaxRanges] = {};
  uint32_t high[kMaxRanges] = {};
  uint8_t qos_class[kMaxRanges] = {};
  uint8_t ranges = 0;
  uint8_t others = 0;  // the class of marks in no range

  SLUICE_HD uint8_t operator()(Packet& p) const {
    p.paint = others;
    for (uint32_t i = 0; i < ranges; ++i) {
      if (p.mark >= low[i] && p.mark <= high[i]) p.paint = qos_class[i];
    }
    return p.paint;
  }
};

}  // namespace sluice

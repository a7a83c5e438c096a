// Strip and Unstrip: move the data pointer. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

struct StripStage {
  static constexpr FieldMask kReads = kFieldExtent;
  static constexpr FieldMask kWrites = kFieldExtent | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kAnywhere;  // those behind it start there

  uint32_t bytes = 0;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (p.length() < bytes) return fail(p, DropReason::kStripTooShort);
    p.data += static_cast<int32_t>(bytes);
    return 0;
  }
};

struct UnstripStage {
  static constexpr FieldMask kReads = kFieldExtent;
  static constexpr FieldMask kWrites = kFieldExtent | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kInFront;

  uint32_t bytes = 0;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (p.data - static_cast<int32_t>(bytes) < -kHeadroom) return fail(p, DropReason::kNoHeadroom);
    p.data -= static_cast<int32_t>(bytes);
    return 0;
  }
};

}  // namespace sluice

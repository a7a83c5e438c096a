// Truncate: moves the packet's end. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

// Leaves at most `bytes` bytes of a packet. Its end cannot lie before the frame's start, in the head room: what was
// pushed there stays whole or is refused.
struct TruncateStage {
  static constexpr FieldMask kReads = kFieldExtent;
  static constexpr FieldMask kWrites = kFieldExtent | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kNone;

  uint32_t bytes = 0;
  uint8_t keep_wire = 1;  // the packet stays as long on the wire as it was

  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (p.length() <= bytes) return 0;
    const int64_t end = int64_t{p.data} + bytes;
    if (end < 0) return fail(p, DropReason::kNoHeadroom);
    p.end = static_cast<uint32_t>(end);
    if (keep_wire == 0) p.wire_end = p.end;
    return 0;
  }
};

}  // namespace sluice

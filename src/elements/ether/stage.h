// EtherEncap, EtherRewrite, EtherMirror: edits of the Ethernet header. Host and device.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

struct EtherEncapStage {
  static constexpr FieldMask kReads = kFieldExtent;
  static constexpr FieldMask kWrites = kFieldFrame | kFieldExtent | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kHeaders;

  uint8_t header[14];  // destination, source, EtherType as on the wire

  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (p.data - 14 < -kHeadroom) return fail(p, DropReason::kNoHeadroom);
    p.data -= 14;
    memcpy(p.bytes(), header, 14);
    return 0;
  }
};

struct EtherRewriteStage {
  static constexpr FieldMask kReads = kFieldExtent;
  static constexpr FieldMask kWrites = kFieldFrame | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kHeaders;

  uint8_t addresses[12];  // destination, source

  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (p.length() < 14) return fail(p, DropReason::kTruncatedL2);
    memcpy(p.bytes(), addresses, 12);
    return 0;
  }
};

struct EtherMirrorStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldFrame | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kHeaders;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (p.length() < 14) return fail(p, DropReason::kTruncatedL2);
    uint8_t swapped[12];
    memcpy(swapped, p.bytes() + 6, 6);
    memcpy(swapped + 6, p.bytes(), 6);
    memcpy(p.bytes(), swapped, 12);
    return 0;
  }
};

}  // namespace sluice

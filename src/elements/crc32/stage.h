// SetCRC32 and CheckCRC32: cooperative stages, a whole group on one packet at a time. Host and device.
#pragma once

#include <cstdint>

#include "base/bits.h"
#include "base/hd.h"
#include "batch/packet.h"
#include "net/crc32.h"

namespace sluice {

// Appends the CRC of the packet's bytes, 4 bytes: host order (little-endian) in both modes, which for `fcs` is the
// order on the wire. Every lane of the group calls run_group with the same arguments; lane 0 writes the packets.
struct SetCrc32Stage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldFrame | kFieldExtent | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kPayload;

  Crc32Mode mode = Crc32Mode::kClick;

  template <class Group>
  SLUICE_HD void run_group(const Group& group, Packet* packets, uint32_t mask, uint8_t* outputs) const {
    for (; mask != 0; mask &= mask - 1) {
      const uint32_t i = trailing_zeros32(mask);
      Packet& p = packets[i];
      // What a snap length cut off cannot be summed.
      const DropReason wrong = p.end != p.wire_end           ? DropReason::kCapturedTooShort
                               : p.appended + 4u > kTailroom ? DropReason::kNoTailroom
                                                             : DropReason::kNone;
      uint32_t crc = 0;
      if (wrong == DropReason::kNone) crc = crc32_finish(mode, crc32_group(group, mode, p.bytes(), p.length()));
      group.sync();
      if (group.lane() == 0) {
        if (wrong != DropReason::kNone) {
          outputs[i] = fail(p, wrong);
        } else {
          memcpy(p.frame + p.end, &crc, 4);
          p.end += 4;
          p.wire_end += 4;
          p.appended = static_cast<uint8_t>(p.appended + 4);
          outputs[i] = 0;
        }
      }
      group.sync();
    }
  }
};

// Takes the last 4 bytes off. Output 1: they are not the CRC of what stands before them, and stay.
struct CheckCrc32Stage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldExtent | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kPayload;

  Crc32Mode mode = Crc32Mode::kClick;

  template <class Group>
  SLUICE_HD void run_group(const Group& group, Packet* packets, uint32_t mask, uint8_t* outputs) const {
    for (; mask != 0; mask &= mask - 1) {
      const uint32_t i = trailing_zeros32(mask);
      Packet& p = packets[i];
      DropReason wrong = p.end != p.wire_end ? DropReason::kCapturedTooShort
                         : p.length() < 4    ? DropReason::kBadCrc
                                             : DropReason::kNone;
      if (wrong == DropReason::kNone) {
        const uint32_t crc = crc32_finish(mode, crc32_group(group, mode, p.bytes(), p.length() - 4));
        if (crc != load_le32(p.frame + p.end - 4)) wrong = DropReason::kBadCrc;
      }
      group.sync();
      if (group.lane() == 0) {
        if (wrong != DropReason::kNone) {
          outputs[i] = fail(p, wrong, 1);
        } else {
          p.end -= 4;
          p.wire_end -= 4;
          outputs[i] = 0;
        }
      }
      group.sync();
    }
  }
};

}  // namespace sluice

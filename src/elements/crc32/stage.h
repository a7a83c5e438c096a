// SetCRC32 and CheckCRC32: cooperative stages, a whole group on one packet at a time. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"
#include "net/crc32.h"

namespace sluice {

// Appends the CRC of the packet's bytes, 4 bytes: host order (little-endian) in both modes, which for `fcs` is the
// order on the wire. Every lane of the group calls team with the same arguments; one lane writes a packet.
struct SetCrc32Stage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldFrame | kFieldExtent | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kPayload;

  Crc32Mode mode = Crc32Mode::kClick;
  uint32_t max_bytes = 0xffffffffu;  // longer packets are dropped

  template <class Group>
  SLUICE_HD void team(const Group& group, Packet* packets, uint32_t mask, uint8_t* outputs) const {
    // What a snap length cut off cannot be summed.
    const auto wrong = [packets, most = max_bytes](uint32_t i) {
      const Packet& p = packets[i];
      return p.length() > most             ? DropReason::kTooBig
             : p.end != p.wire_end         ? DropReason::kCapturedTooShort
             : p.appended + 4u > kTailroom ? DropReason::kNoTailroom
                                           : DropReason::kNone;
    };
    const auto frame = [&](uint32_t i) {
      const Packet& p = packets[i];
      return wrong(i) == DropReason::kNone ? Crc32Frame{p.bytes(), p.length()} : Crc32Frame{nullptr, 0};
    };
    crc32_each(group, mode, mask, frame, [&](uint32_t i, uint32_t crc) {
      Packet& p = packets[i];
      if (const DropReason reason = wrong(i); reason != DropReason::kNone) {
        outputs[i] = fail(p, reason);
        return;
      }
      crc = crc32_finish(mode, crc);
      memcpy(p.frame + p.end, &crc, 4);
      p.end += 4;
      p.wire_end += 4;
      p.appended = static_cast<uint8_t>(p.appended + 4);
      outputs[i] = 0;
    });
  }
};

// Takes the last 4 bytes off. Output 1: they are not the CRC of what stands before them, and stay.
struct CheckCrc32Stage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldExtent | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kPayload;

  Crc32Mode mode = Crc32Mode::kClick;

  template <class Group>
  SLUICE_HD void team(const Group& group, Packet* packets, uint32_t mask, uint8_t* outputs) const {
    const auto wrong = [packets](uint32_t i) {
      const Packet& p = packets[i];
      return p.end != p.wire_end ? DropReason::kCapturedTooShort
             : p.length() < 4    ? DropReason::kBadCrc
                                 : DropReason::kNone;
    };
    const auto frame = [&](uint32_t i) {
      const Packet& p = packets[i];
      return wrong(i) == DropReason::kNone ? Crc32Frame{p.bytes(), p.length() - 4} : Crc32Frame{nullptr, 0};
    };
    crc32_each(group, mode, mask, frame, [&](uint32_t i, uint32_t crc) {
      Packet& p = packets[i];
      DropReason reason = wrong(i);
      if (reason == DropReason::kNone && crc32_finish(mode, crc) != load_le32(p.frame + p.end - 4)) {
        reason = DropReason::kBadCrc;
      }
      if (reason != DropReason::kNone) {
        outputs[i] = fail(p, reason, 1);
        return;
      }
      p.end -= 4;
      p.wire_end -= 4;
      outputs[i] = 0;
    });
  }
};

}  // namespace sluice

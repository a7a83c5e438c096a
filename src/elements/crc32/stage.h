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

  static constexpr bool kAppends = true;

  // What a snap length cut off cannot be summed.
  SLUICE_HD DropReason wrong(const Packet& p) const {
    return p.length() > max_bytes        ? DropReason::kTooBig
           : p.end != p.wire_end         ? DropReason::kCapturedTooShort
           : p.appended + 4u > kTailroom ? DropReason::kNoTailroom
                                         : DropReason::kNone;
  }
  // Bytes from the packet's first on that are summed.
  SLUICE_HD uint32_t covers(const Packet& p) const { return p.length(); }
  // With the register over them: what stands behind the packet's former end then, and the output.
  SLUICE_HD uint8_t finish(Packet& p, uint32_t crc, uint32_t& tail) const {
    if (const DropReason reason = wrong(p); reason != DropReason::kNone) return fail(p, reason);
    tail = crc32_finish(mode, crc);
    p.end += 4;
    p.wire_end += 4;
    p.appended = static_cast<uint8_t>(p.appended + 4);
    return 0;
  }

  template <class Group>
  SLUICE_HD void team(const Group& group, Packet* packets, uint32_t mask, uint8_t* outputs) const {
    const auto frame = [&](uint32_t i) {
      const Packet& p = packets[i];
      return wrong(p) == DropReason::kNone ? Crc32Frame{p.bytes(), covers(p)} : Crc32Frame{nullptr, 0};
    };
    crc32_each(group, mode, mask, frame, [&](uint32_t i, uint32_t crc) {
      Packet& p = packets[i];
      const uint32_t end = p.end;
      uint32_t tail = 0;
      outputs[i] = finish(p, crc, tail);
      if (p.end != end) memcpy(p.frame + end, &tail, 4);
    });
  }
};

// Takes the last 4 bytes off. Output 1: they are not the CRC of what stands before them, and stay.
struct CheckCrc32Stage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldExtent | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kPayload;

  Crc32Mode mode = Crc32Mode::kClick;

  static constexpr bool kAppends = false;

  SLUICE_HD DropReason wrong(const Packet& p) const {
    return p.end != p.wire_end ? DropReason::kCapturedTooShort
           : p.length() < 4    ? DropReason::kBadCrc
                               : DropReason::kNone;
  }
  SLUICE_HD uint32_t covers(const Packet& p) const { return p.length() - 4; }
  // With the register over them, and the packet's last 4 bytes.
  SLUICE_HD uint8_t finish(Packet& p, uint32_t crc, const uint32_t& tail) const {
    DropReason reason = wrong(p);
    if (reason == DropReason::kNone && crc32_finish(mode, crc) != tail) reason = DropReason::kBadCrc;
    if (reason != DropReason::kNone) return fail(p, reason, 1);
    p.end -= 4;
    p.wire_end -= 4;
    return 0;
  }

  template <class Group>
  SLUICE_HD void team(const Group& group, Packet* packets, uint32_t mask, uint8_t* outputs) const {
    const auto frame = [&](uint32_t i) {
      const Packet& p = packets[i];
      return wrong(p) == DropReason::kNone ? Crc32Frame{p.bytes(), covers(p)} : Crc32Frame{nullptr, 0};
    };
    crc32_each(group, mode, mask, frame, [&](uint32_t i, uint32_t crc) {
      Packet& p = packets[i];
      outputs[i] = finish(p, crc, p.length() < 4 ? 0 : load_le32(p.frame + p.end - 4));
    });
  }
};

}  // namespace sluice

// GetIPAddress: the destination of a packet from its bytes. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"
#include "net/bytes.h"

namespace sluice {

// The four bytes at `offset`, from the data pointer or from the network header, become the IPv4 destination that
// lookups go by. The frame stays.
struct GetIpAddressStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;  // and kFieldL3 with from_header
  static constexpr FieldMask kWrites = kFieldDestination | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kAnywhere;

  uint32_t offset = 0;
  uint8_t from_header = 0;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    const int64_t at = int64_t{from_header != 0 ? int32_t{p.l3} : p.data} + offset;
    if (at < p.data || at + 4 > p.end) {
      return fail(p, at >= p.data && at + 4 <= p.wire_end ? DropReason::kCapturedTooShort : DropReason::kIpv4TooShort);
    }
    p.key.dst_hi = 0;
    p.key.dst_lo = load_be32(p.frame + at);
    p.key.family = 4;
    return 0;
  }
};

}  // namespace sluice

// ExampleTunnel: the skeleton of a tunnel, IP in IPv4 (RFC 2003, RFC 4213); copy it with `./dev new tunnel NAME`. Host
// and device.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/hd.h"
#include "batch/packet.h"
#include "net/checksum.h"

namespace sluice {

// One end of a tunnel. A packet starts at its network header, before and after.
struct ExampleTunnelStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldFrame | kFieldExtent | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kAnywhere;  // the inner packet starts where the outer header ends
  static constexpr uint32_t kOuter = 20;
  static constexpr uint8_t kIpv4InIp = 4, kIpv6InIp = 41;

  uint8_t ends[8];  // local and remote address, as on the wire
  uint32_t decapsulates = 0;

  SLUICE_HD uint8_t operator()(Packet& p) const { return decapsulates != 0 ? decapsulate(p) : encapsulate(p); }

  SLUICE_HD uint8_t encapsulate(Packet& p) const {
    // The inner packet's own length: bytes behind it, such as padding, are no part of it.
    uint32_t inner = 0;
    uint8_t protocol = 0;
    const uint8_t* const at = p.bytes();
    if (p.length() >= 20 && at[0] >> 4 == 4) {
      inner = uint32_t{at[2]} << 8 | at[3];
      protocol = kIpv4InIp;
    } else if (p.length() >= 40 && at[0] >> 4 == 6) {
      inner = (uint32_t{at[4]} << 8 | at[5]) + 40;
      protocol = kIpv6InIp;
    } else {
      return fail(p, DropReason::kNotIp);
    }
    if (inner > 0xffff - kOuter) return fail(p, DropReason::kTooBig);
    if (p.data - static_cast<int32_t>(kOuter) < -kHeadroom) return fail(p, DropReason::kNoHeadroom);
    const uint32_t total = inner + kOuter;
    uint8_t header[kOuter] = {
        0x45, 0,       static_cast<uint8_t>(total >> 8), static_cast<uint8_t>(total), 0, 0, 0x40, 0x00,
        64,   protocol};  // do not fragment
    memcpy(header + 12, ends, 8);
    const uint16_t checksum = ipv4_header_checksum(header, kOuter);
    header[10] = static_cast<uint8_t>(checksum >> 8);
    header[11] = static_cast<uint8_t>(checksum);
    p.data -= static_cast<int32_t>(kOuter);
    memcpy(p.bytes(), header, kOuter);
    return 0;
  }

  // A packet that is not this tunnel's is untouched and leaves by output 1.
  SLUICE_HD uint8_t decapsulate(Packet& p) const {
    const uint8_t* const at = p.bytes();
    if (p.length() < kOuter || at[0] != 0x45 || (at[9] != kIpv4InIp && at[9] != kIpv6InIp))
      return fail(p, DropReason::kClassifierNoMatch, 1);
    // The remote end is the source now.
    if (load_be32(at + 12) != load_be32(ends + 4) || load_be32(at + 16) != load_be32(ends))
      return fail(p, DropReason::kClassifierNoMatch, 1);
    if (!ipv4_checksum_ok(at, kOuter)) return fail(p, DropReason::kIpv4BadChecksum);
    if (((at[6] & 0x3f) | at[7]) != 0) return fail(p, DropReason::kBadFragment);
    const uint32_t total = uint32_t{at[2]} << 8 | at[3];
    if (total < kOuter || total > p.wire_length()) return fail(p, DropReason::kIpv4BadTotalLength);
    if (p.length() == kOuter || at[kOuter] >> 4 != (at[9] == kIpv4InIp ? 4 : 6))
      return fail(p, DropReason::kIpv4BadVersion);
    p.data += static_cast<int32_t>(kOuter);
    return 0;
  }
};

}  // namespace sluice

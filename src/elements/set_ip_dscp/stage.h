// SetIPDSCP: writes the differentiated services codepoint. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"
#include "net/edit.h"

namespace sluice {

// RFC 2474 section 3; ECN stays (RFC 3168), IPv4's checksum is mended (RFC 1624). The key says what the packet says, so
// that a later access list or pattern sees the new codepoint. What is not IP passes unchanged.
struct SetIpDscpStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent | kFieldL3 | kFieldKey;
  static constexpr FieldMask kWrites = kFieldFrame | kFieldKey;
  static constexpr FrameUse kFrameUse = FrameUse::kHeaders;

  uint8_t dscp = 0;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (p.key.family == 0 || uint32_t{p.l3} + kRemarkBytes > p.end) return 0;  // an earlier stage may have cut it off
    set_dscp(p.frame + p.l3, p.key.family, dscp);
    p.key.dscp = dscp;
    return 0;
  }
};

}  // namespace sluice

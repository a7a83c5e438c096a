// IPInput: from an Ethernet frame to a checked network header and a key. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"
#include "net/martian.h"
#include "net/parse.h"

namespace sluice {

// The drop reason of a parse that failed.
SLUICE_HD DropReason drop_reason(ParseStatus status) {
  switch (status) {
    case ParseStatus::kOk:
      return DropReason::kNone;
    case ParseStatus::kNotIp:
      return DropReason::kNotIp;
    case ParseStatus::kTruncatedL2:
      return DropReason::kTruncatedL2;
    case ParseStatus::kTooManyVlans:
      return DropReason::kTooManyVlans;
    case ParseStatus::kCapturedTooShort:
      return DropReason::kCapturedTooShort;
    case ParseStatus::kIpv4TooShort:
      return DropReason::kIpv4TooShort;
    case ParseStatus::kIpv4BadChecksum:
      return DropReason::kIpv4BadChecksum;
    case ParseStatus::kIpv4BadVersion:
      return DropReason::kIpv4BadVersion;
    case ParseStatus::kIpv4BadHeaderLength:
      return DropReason::kIpv4BadHeaderLength;
    case ParseStatus::kIpv4BadTotalLength:
      return DropReason::kIpv4BadTotalLength;
    case ParseStatus::kIpv4TruncatedFrame:
      return DropReason::kIpv4TruncatedFrame;
    case ParseStatus::kIpv6TooShort:
      return DropReason::kIpv6TooShort;
    case ParseStatus::kIpv6BadVersion:
      return DropReason::kIpv6BadVersion;
    case ParseStatus::kIpv6BadPayloadLength:
      return DropReason::kIpv6BadPayloadLength;
    case ParseStatus::kIpv6BadExtensionHeader:
      return DropReason::kIpv6BadExtensionHeader;
    case ParseStatus::kIpv6TooManyExtensionHeaders:
      return DropReason::kIpv6TooManyExtensionHeaders;
    case ParseStatus::kIpv6RoutingType0:
      return DropReason::kIpv6RoutingType0;
  }
  return DropReason::kNotIp;
}

// Puts what the parser found into the registers. `base` is where the parser's offset 0 lies, from p.frame: offsets become
// offsets from p.frame, which needs base + offset >= 0 (true wherever the header was inside the frame or its headroom was not used).
SLUICE_HD void take_headers(const Headers& h, int32_t base, Packet& p) {
  p.key = h.key;
  p.l3 = static_cast<uint16_t>(base + h.l3_offset);
  p.l4 = h.l4_offset == Headers::kNoOffset ? Headers::kNoOffset : static_cast<uint16_t>(base + h.l4_offset);
  p.ip_flags = h.flags;
  p.ttl = h.ttl;
  // Ethernet padding is legal: trim it (RFC 1812 section 3.3.5).
  const uint32_t ip_end = p.l3 + h.ip_bytes;
  if (ip_end < p.end) p.end = ip_end;
  if (ip_end < p.wire_end) p.wire_end = ip_end;
}

struct IpInputStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldExtent | kFieldL3 | kFieldKey | kFieldDestination | kFieldReason;

  uint8_t check_martians = 1;
  uint8_t drop_source_routes = 1;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    Headers h;
    const ParseStatus status = parse_ethernet(p.bytes(), p.length(), p.wire_length(), h);
    p.ether_type = h.ether_type;
    p.vlan_count = h.vlan_count;
    p.vlan_tci = h.vlan_tci;
    if (status != ParseStatus::kOk) return fail(p, drop_reason(status), 1);
    take_headers(h, p.data, p);
    if ((h.flags & (Headers::kIpMulticast | Headers::kLinkBroadcast | Headers::kLinkMulticast | Headers::kSourceRoute)) != 0) {
      if ((h.flags & Headers::kSourceRoute) != 0 && drop_source_routes != 0) return fail(p, DropReason::kSourceRoute, 1);
      if ((h.flags & Headers::kIpMulticast) != 0) return fail(p, DropReason::kMulticastDestination, 1);
      if ((h.flags & (Headers::kLinkBroadcast | Headers::kLinkMulticast)) != 0) return fail(p, DropReason::kLinkBroadcast, 1);
    }
    if (is_limited_broadcast(p.key)) return fail(p, DropReason::kMulticastDestination, 1);
    if (check_martians != 0) {
      const Martian found = martian(p.key);
      if (found != Martian::kNone) {
        return fail(p, is_source_martian(found) ? DropReason::kMartianSource : DropReason::kMartianDestination, 1);
      }
    }
    return 0;
  }
};

// CheckIPHeader, CheckIP6Header, MarkIPHeader: the same for data that starts with a network header. Output 1: bad.
struct HeaderCheckStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldExtent | kFieldL3 | kFieldKey | kFieldDestination | kFieldReason;

  uint16_t offset = 0;          // of the header, from the data pointer
  uint8_t verify_checksum = 1;
  uint8_t check_source = 0;     // drop martian sources (Click's BADSRC in spirit)
  uint8_t family = 0;           // 4 or 6: nothing else passes; 0: either
  uint8_t lenient = 0;          // MarkIPHeader: note what is there, never fail

  SLUICE_HD uint8_t operator()(Packet& p) const {
    Headers h;
    // The parser counts from the frame, so that a header after an Ethernet one keeps its link header in reach.
    const int32_t l3 = p.data + offset;
    const uint32_t base = l3 < 0 ? 0u : static_cast<uint32_t>(l3);
    const uint8_t* start = l3 < 0 ? p.frame + l3 : p.frame;
    const uint32_t shift = l3 < 0 ? static_cast<uint32_t>(-l3) : 0u;
    ParseStatus status = ParseStatus::kIpv4TooShort;
    if (p.data + static_cast<int32_t>(offset) <= static_cast<int32_t>(p.end)) {
      status = parse_ip(start, p.end + shift, p.wire_end + shift, base, h, verify_checksum != 0);
    }
    if (status != ParseStatus::kOk && lenient == 0) return fail(p, drop_reason(status), 1);
    if (status != ParseStatus::kOk) {
      p.l3 = static_cast<uint16_t>(base);
      p.key = FlowKey{};
      return 0;
    }
    if (family != 0 && h.key.family != family) {
      return fail(p, family == 4 ? DropReason::kIpv4BadVersion : DropReason::kIpv6BadVersion, 1);
    }
    take_headers(h, -static_cast<int32_t>(shift), p);
    p.ether_type = h.key.family == 6 ? 0x86dd : 0x0800;
    if (check_source != 0 && is_source_martian(martian(p.key))) return fail(p, DropReason::kMartianSource, 1);
    return 0;
  }
};

}  // namespace sluice

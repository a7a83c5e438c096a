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
    case ParseStatus::kIpv6FragmentedHeaders:
      return DropReason::kTinyFragment;
  }
  return DropReason::kNotIp;
}

// Puts what the parser found into the registers. `base` is where the parser's offset 0 lies, from p.frame. False, with
// the registers as they were, when a header lies before p.frame (it was pushed into the headroom) or past 65,534 bytes,
// which l3 and l4 cannot say. `trim`: what follows the network packet is cut off.
SLUICE_HD bool take_headers(const Headers& h, int32_t base, Packet& p, bool trim = true) {
  const int32_t l3 = base + h.l3_offset;
  const int32_t l4 = h.l4_offset == Headers::kNoOffset ? l3 : base + h.l4_offset;
  if (l3 < 0 || l4 >= Headers::kNoOffset) return false;
  p.key = h.key;
  p.l3 = static_cast<uint16_t>(l3);
  p.l4 = h.l4_offset == Headers::kNoOffset ? Headers::kNoOffset : static_cast<uint16_t>(l4);
  p.ip_flags = h.flags;
  p.ttl = h.ttl;
  if (!trim) return true;
  // Ethernet padding is legal: trim it (RFC 894).
  const uint32_t ip_end = p.l3 + h.ip_bytes;
  if (ip_end < p.end) p.end = ip_end;
  if (ip_end < p.wire_end) p.wire_end = ip_end;
  return true;
}

// The registers of a packet without a network header. They must not keep what they held: a register that no stage wrote
// for this packet may hold another packet's value.
SLUICE_HD void clear_headers(Packet& p) {
  p.key = FlowKey{};
  p.l3 = p.data <= 0 ? uint16_t{0} : p.data > 0xfffe ? uint16_t{0xfffe} : static_cast<uint16_t>(p.data);
  p.l4 = Headers::kNoOffset;
  p.ip_flags = 0;
  p.ttl = 0;
}

struct IpInputStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldExtent | kFieldL3 | kFieldKey | kFieldDestination | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kHeaders;

  uint8_t check_martians = 1;
  uint8_t drop_source_routes = 1;
  uint8_t verify_checksum = 1;
  uint8_t drop_multicast = 1;
  uint8_t drop_link_broadcast = 1;
  uint8_t trim_padding = 1;
  uint8_t drop_tiny_fragments = 1;

  SLUICE_HD uint8_t operator()(Packet& p) const {
    Headers h;
    const ParseStatus status = parse_ethernet(p.bytes(), p.length(), p.wire_length(), h, verify_checksum != 0);
    return judge(p, h, status);
  }

  // Packets that a host takes although the parser has not read their headers: they are no good behind output 1 either,
  // where an access list would judge them by its default.
  SLUICE_HD bool is_unread(ParseStatus status) const {
    return status == ParseStatus::kTooManyVlans || status == ParseStatus::kIpv6TooManyExtensionHeaders ||
           (status == ParseStatus::kIpv6FragmentedHeaders && drop_tiny_fragments != 0);
  }

  SLUICE_HD uint8_t judge(Packet& p, const Headers& h, ParseStatus status) const {
    p.ether_type = h.ether_type;
    p.vlan_count = h.vlan_count;
    p.vlan_tci = h.vlan_tci;
    if (status != ParseStatus::kOk || !take_headers(h, p.data, p, trim_padding != 0)) {
      clear_headers(p);
      return fail(p, status != ParseStatus::kOk ? drop_reason(status) : DropReason::kNoHeadroom,
                  is_unread(status) ? kDropOutput : uint8_t{1});
    }
    if ((h.flags & (Headers::kIpMulticast | Headers::kLinkBroadcast | Headers::kLinkMulticast | Headers::kSourceRoute |
                    Headers::kTinyFragment)) != 0) {
      // Never by output 1: an access list there would judge a header that is not whole.
      if ((h.flags & Headers::kTinyFragment) != 0 && drop_tiny_fragments != 0)
        return fail(p, DropReason::kTinyFragment);
      if ((h.flags & Headers::kSourceRoute) != 0 && drop_source_routes != 0)
        return fail(p, DropReason::kSourceRoute, 1);
      if ((h.flags & Headers::kIpMulticast) != 0 && drop_multicast != 0)
        return fail(p, DropReason::kMulticastDestination, 1);
      if ((h.flags & (Headers::kLinkBroadcast | Headers::kLinkMulticast)) != 0 && drop_link_broadcast != 0)
        return fail(p, DropReason::kLinkBroadcast, 1);
    }
    if (drop_multicast != 0 && is_limited_broadcast(p.key)) return fail(p, DropReason::kMulticastDestination, 1);
    if (check_martians != 0) {
      const Martian found = martian(p.key);
      if (found != Martian::kNone) {
        return fail(p, is_source_martian(found) ? DropReason::kMartianSource : DropReason::kMartianDestination, 1);
      }
    }
    return 0;
  }
};

// An address that BADSRC, GOODDST or INTERFACES of a header check names.
struct ListedAddress {
  uint64_t hi;
  uint64_t lo;
};

// CheckIPHeader, CheckIP6Header, MarkIPHeader: the same for data that starts with a network header. Output 1: bad.
struct HeaderCheckStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldExtent | kFieldL3 | kFieldKey | kFieldDestination | kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kAnywhere;  // at `offset`

  uint16_t offset = 0;  // of the header, from the data pointer
  uint8_t verify_checksum = 1;
  uint8_t family = 0;   // 4 or 6: nothing else passes; 0: either
  uint8_t lenient = 0;  // MarkIPHeader: note what is there, trim nothing, never fail
  uint8_t reserved = 0;
  uint16_t bad_sources = 0;        // the first entries of `addresses`: sources that are dropped ...
  uint16_t good_destinations = 0;  // ... unless the destination is one of those that follow
  const ListedAddress* addresses = nullptr;

  // Every pointer that the stage holds: f(pointer) into an image, f(pointer, count) to an array of the element's own.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(addresses, uint32_t{bad_sources} + good_destinations);
  }

  SLUICE_HD static bool listed(const ListedAddress* from, uint32_t count, uint64_t hi, uint64_t lo) {
    for (uint32_t i = 0; i < count; ++i) {
      if (from[i].lo == lo && from[i].hi == hi) return true;
    }
    return false;
  }

  SLUICE_HD DropReason check(Packet& p) const {
    const bool six = family == 6;
    if (offset < p.length() && family != 0 && (p.bytes()[offset] >> 4 == 6) != six) {
      return six ? DropReason::kIpv6BadVersion : DropReason::kIpv4BadVersion;
    }
    Headers h;
    const ParseStatus status = parse_ip(p.bytes(), p.length(), p.wire_length(), offset, h, verify_checksum != 0);
    if (status == ParseStatus::kTruncatedL2 || (six && status == ParseStatus::kIpv4TooShort)) {
      return six ? DropReason::kIpv6TooShort : DropReason::kIpv4TooShort;
    }
    if (status != ParseStatus::kOk) return drop_reason(status);
    if (!take_headers(h, p.data, p)) return DropReason::kNoHeadroom;
    p.ether_type = h.key.family == 6 ? 0x86dd : 0x0800;
    return DropReason::kNone;
  }

  SLUICE_HD uint8_t operator()(Packet& p) const {
    if (lenient != 0) {
      const uint32_t end = p.end;
      const uint32_t wire_end = p.wire_end;
      if (check(p) != DropReason::kNone) {
        clear_headers(p);
        const int64_t l3 = int64_t{p.data} + offset;
        p.l3 = l3 <= 0 ? uint16_t{0} : l3 < p.end && l3 < 0xffff ? static_cast<uint16_t>(l3) : p.l3;
      }
      p.end = end;
      p.wire_end = wire_end;
      return 0;
    }
    const DropReason wrong = check(p);
    if (wrong != DropReason::kNone) {
      clear_headers(p);
      return fail(p, wrong, 1);
    }
    if (bad_sources != 0 && listed(addresses, bad_sources, p.key.src_hi, p.key.src_lo) &&
        !listed(addresses + bad_sources, good_destinations, p.key.dst_hi, p.key.dst_lo)) {
      return fail(p, DropReason::kMartianSource, 1);
    }
    return 0;
  }
};

}  // namespace sluice

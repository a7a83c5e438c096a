// host only
#include "flows/tracked_packet.h"

#include <tuple>

#include "net/bytes.h"
#include "net/ipv6.h"
#include "net/l4.h"
#include "net/parse.h"

namespace sluice {
namespace {

// Returns whether the source is the higher end.
bool set_ends(const FlowKey& key, uint16_t source_port, uint16_t destination_port, FlowEnds& ends) {
  const auto source = std::tuple(key.src_hi, key.src_lo, source_port);
  const auto destination = std::tuple(key.dst_hi, key.dst_lo, destination_port);
  const bool from_high = source > destination;
  std::tie(ends.low_hi, ends.low_lo, ends.low_port) = from_high ? destination : source;
  std::tie(ends.high_hi, ends.high_lo, ends.high_port) = from_high ? source : destination;
  ends.protocol = key.protocol;
  ends.family = key.family;
  return from_high;
}

bool is_icmp(const FlowKey& key) {
  return key.protocol == (key.family == 4 ? kProtocolIcmp : kProtocolIcmpv6);
}

// The request that a type of ICMP is, or answers; 0: it is of no query.
struct Query {
  uint8_t request = 0;
  bool reply = false;
};
Query query_of(uint8_t family, uint8_t type) {
  if (family == 6) return type == 128 || type == 129 ? Query{128, type == 129} : Query{};
  switch (type) {
    case 8:
    case 0:
      return {8, type == 0};
    case 13:  // time stamps
    case 14:
      return {13, type == 14};
    case 15:  // information
    case 16:
      return {15, type == 16};
    case 17:  // address masks
    case 18:
      return {17, type == 18};
    default:
      return {};
  }
}
// Of IPv4: unreachable, source quench, redirect, time exceeded, parameter problem (RFC 792). Of IPv6 those that RFC
// 4443 has.
bool is_error(uint8_t family, uint8_t type) {
  if (family == 6) return type >= 1 && type <= 4;
  return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
}

// The ends of a packet with its L4 header at `l4` of `frame`, be it a whole one or what an error quotes. False: it has
// none.
bool ends_of(const FlowKey& key, const uint8_t* frame, uint32_t l4, uint32_t end, TrackedPacket& p) {
  if (is_icmp(key)) {
    if ((key.bits & (FlowKey::kNoIcmpType | FlowKey::kNoFlags)) != 0 || l4 == Headers::kNoOffset || l4 + 8 > end)
      return false;
    const Query query = query_of(key.family, static_cast<uint8_t>(key.icmp >> 8));
    if (query.request == 0) return false;
    const uint16_t id = load_be16(frame + l4 + 4);
    p.from_high = set_ends(key, id, id, p.ends);
    p.ends.query = query.request;
    p.ends.high_asks = p.from_high != query.reply ? 1 : 0;
    p.kind = query.reply ? TrackedPacket::Kind::kReply : TrackedPacket::Kind::kRequest;
    return true;
  }
  const bool tcp = key.protocol == kProtocolTcp;
  const bool needs_ports = tcp || key.protocol == kProtocolUdp;
  if (needs_ports && (key.bits & FlowKey::kHasPorts) == 0) return false;
  p.from_high = set_ends(key, key.src_port, key.dst_port, p.ends);
  p.kind = tcp ? TrackedPacket::Kind::kTcp : TrackedPacket::Kind::kOther;
  return true;
}

// The packet that an ICMP error at `l4` quotes, which went the other way.
bool quoted(const FlowKey& key, const uint8_t* frame, uint32_t l4, uint32_t end, TrackedPacket& p) {
  if (l4 == Headers::kNoOffset || l4 + 8 + kIpv4HeaderBytes > end) return false;
  const uint32_t at = l4 + 8;
  // As much of it as is there is all that is wanted; its length is that of the packet which was sent.
  Headers inner;
  if (frame[at] >> 4 != key.family) return false;
  if (parse_ip(frame, end, 0xffff + at + kIpv6HeaderBytes, at, inner, false) != ParseStatus::kOk) {
    // Of TCP eight bytes are enough (RFC 792), fewer than its header.
    const uint32_t header = key.family == 4 ? (frame[at] & 15u) * 4 : kIpv6HeaderBytes;
    const uint32_t inner_l4 = at + header;
    if (header < kIpv4HeaderBytes || inner_l4 + 4 > end) return false;
    const uint8_t* ip = frame + at;
    inner.key = {};
    inner.key.family = key.family;
    if (key.family == 4) {
      if ((load_be16(ip + 6) & kIpv4OffsetMask) != 0) return false;
      inner.key.protocol = ip[9];
      inner.key.src_lo = load_be32(ip + 12);
      inner.key.dst_lo = load_be32(ip + 16);
    } else {
      inner.key.protocol = ip[6];
      inner.key.src_hi = load_be64(ip + 8);
      inner.key.src_lo = load_be64(ip + 16);
      inner.key.dst_hi = load_be64(ip + 24);
      inner.key.dst_lo = load_be64(ip + 32);
    }
    if (inner.key.protocol != kProtocolTcp && inner.key.protocol != kProtocolUdp) return false;
    inner.key.src_port = load_be16(frame + inner_l4);
    inner.key.dst_port = load_be16(frame + inner_l4 + 2);
    inner.key.bits = FlowKey::kHasPorts;
    inner.l4_offset = static_cast<uint16_t>(inner_l4);
  }
  if ((inner.key.bits & FlowKey::kLaterFragment) != 0) return false;
  // It goes to whom the quoted packet was from.
  if (inner.key.src_hi != key.dst_hi || inner.key.src_lo != key.dst_lo) return false;
  if (!ends_of(inner.key, frame, inner.l4_offset, end, p)) return false;
  p.kind = TrackedPacket::Kind::kError;
  p.from_high = !p.from_high;
  return true;
}

// Of a fragment.
uint32_t identification(const FlowKey& key, const uint8_t* frame, uint32_t l3, uint32_t end, bool& more) {
  const uint8_t* ip = frame + l3;
  if (key.family == 4) {
    more = (load_be16(ip + 6) & kIpv4MoreFragments) != 0;
    return load_be16(ip + 4);
  }
  // The Fragment header follows at most a few others, each with its length (RFC 8200 section 4).
  uint8_t next = ip[6];
  uint32_t at = l3 + kIpv6HeaderBytes;
  for (unsigned i = 0; i < 16 && at + 8 <= end; ++i) {
    if (next == 44) {
      more = (frame[at + 3] & 1) != 0;
      return load_be32(frame + at + 4);
    }
    const uint32_t bytes = next == 51 ? (frame[at + 1] + 2u) * 4 : (frame[at + 1] + 1u) * 8;
    next = frame[at];
    at += bytes;
  }
  more = false;
  return 0;
}

}  // namespace

TrackedPacket tracked_packet(const FlowKey& key, const uint8_t* frame, uint32_t l3, uint32_t l4, uint32_t end) {
  TrackedPacket p;
  if (key.family == 0) return p;
  if ((key.bits & FlowKey::kFragment) != 0) {
    bool more = false;
    p.fragment = identification(key, frame, l3, end, more);
    if ((key.bits & FlowKey::kLaterFragment) != 0) {
      p.from_high = set_ends(key, 0, 0, p.ends);
      p.kind = TrackedPacket::Kind::kLaterFragment;
      return p;
    }
    p.first_fragment = more;
  }
  if (is_icmp(key) && (key.bits & FlowKey::kNoIcmpType) == 0 &&
      is_error(key.family, static_cast<uint8_t>(key.icmp >> 8))) {
    if (!quoted(key, frame, l4, end, p)) p.kind = TrackedPacket::Kind::kInvalid;
    return p;
  }
  if (!ends_of(key, frame, l4, end, p)) {
    p.kind = TrackedPacket::Kind::kInvalid;
  } else if (p.kind == TrackedPacket::Kind::kTcp) {
    p.segment =
        (key.bits & FlowKey::kNoFlags) != 0 ? TcpSegment::kBad : tcp_segment(static_cast<uint8_t>(key.flags >> 8));
  }
  return p;
}

}  // namespace sluice

// From the bytes of a frame to a FlowKey, for host and device: Ethernet, 802.1Q and QinQ, IPv4, IPv6, L4.
//
// What is judged, and in which order: RFC 1812 section 5.2.2 for IPv4; RFC 8200 section 4 and RFC 5095 for IPv6.
// Lengths are judged against the wire length, and no byte at or past the captured length is ever read, so a capture cut
// by a snap length, or a header row gathered for a GPU, gives either the same answer as the whole frame or
// kCapturedTooShort.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/hd.h"
#include "net/bytes.h"
#include "net/checksum.h"
#include "net/ether.h"
#include "net/flow_key.h"
#include "net/ipv4.h"
#include "net/ipv4_options.h"
#include "net/ipv6.h"
#include "net/l4.h"
#include "net/link.h"

namespace sluice {

// Stable numbers: counters, traces and captures of results carry them. New ones go to the end.
enum class ParseStatus : uint8_t {
  kOk = 0,
  kNotIp = 1,             // Headers::ether_type says what it is (below 0x600: an 802.3 length)
  kTruncatedL2 = 2,       // the frame ends inside the Ethernet header or a VLAN tag
  kTooManyVlans = 3,      // more than kMaxVlanTags tags
  kCapturedTooShort = 4,  // the frame was longer, but a header that is needed was not captured
  kIpv4TooShort = 5,      // fewer than 20 bytes after the link header
  kIpv4BadChecksum = 6,
  kIpv4BadVersion = 7,
  kIpv4BadHeaderLength = 8,  // IHL below 5, or past the end of the frame
  kIpv4BadTotalLength = 9,   // total length below the header length
  kIpv4TruncatedFrame = 10,  // total length past the end of the frame
  kIpv6TooShort = 11,        // fewer than 40 bytes after the link header
  kIpv6BadVersion = 12,
  kIpv6BadPayloadLength = 13,         // payload length past the end of the frame
  kIpv6BadExtensionHeader = 14,       // an extension header past the end of the packet, or hop-by-hop not first
  kIpv6TooManyExtensionHeaders = 15,  // more than kMaxIpv6ExtensionHeaders
  kIpv6RoutingType0 = 16,             // RFC 5095: type 0 routing header with segments left
  kIpv6FragmentedHeaders = 17,        // RFC 7112: an extension header goes on behind a first fragment
};
inline constexpr unsigned kParseStatusCount = 18;

// Lower-case words with '-' between them, such as "ipv4-bad-checksum"; "unknown" past the last.
inline const char* to_string(ParseStatus status) {
  switch (status) {
    case ParseStatus::kOk:
      return "ok";
    case ParseStatus::kNotIp:
      return "not-ip";
    case ParseStatus::kTruncatedL2:
      return "truncated-l2";
    case ParseStatus::kTooManyVlans:
      return "too-many-vlans";
    case ParseStatus::kCapturedTooShort:
      return "captured-too-short";
    case ParseStatus::kIpv4TooShort:
      return "ipv4-too-short";
    case ParseStatus::kIpv4BadChecksum:
      return "ipv4-bad-checksum";
    case ParseStatus::kIpv4BadVersion:
      return "ipv4-bad-version";
    case ParseStatus::kIpv4BadHeaderLength:
      return "ipv4-bad-header-length";
    case ParseStatus::kIpv4BadTotalLength:
      return "ipv4-bad-total-length";
    case ParseStatus::kIpv4TruncatedFrame:
      return "ipv4-truncated-frame";
    case ParseStatus::kIpv6TooShort:
      return "ipv6-too-short";
    case ParseStatus::kIpv6BadVersion:
      return "ipv6-bad-version";
    case ParseStatus::kIpv6BadPayloadLength:
      return "ipv6-bad-payload-length";
    case ParseStatus::kIpv6BadExtensionHeader:
      return "ipv6-bad-extension-header";
    case ParseStatus::kIpv6TooManyExtensionHeaders:
      return "ipv6-too-many-extension-headers";
    case ParseStatus::kIpv6RoutingType0:
      return "ipv6-routing-type-0";
    case ParseStatus::kIpv6FragmentedHeaders:
      return "ipv6-fragmented-headers";
  }
  return "unknown";
}

// What the parser found. Every field is written on every call, whatever the status:
//   - `key`, `ip_bytes`, `ttl` and the IP bits of `flags` are zero, and `l4_offset` is kNoOffset, unless the status is
//   kOk;
//   - the link fields are as far as the link header could be read, and `l3_offset` is 0 if it could not.
struct Headers {
  static constexpr uint16_t kNoOffset = 0xffff;

  enum Flags : uint16_t {
    kLinkMulticast = 1 << 0,     // destination MAC has the group bit and is not broadcast
    kLinkBroadcast = 1 << 1,     // destination MAC is ff:ff:ff:ff:ff:ff: not to be forwarded (RFC 1812 section 5.3.4)
    kIpMulticast = 1 << 2,       // destination address in 224.0.0.0/4 or ff00::/8
    kDontFragment = 1 << 3,      // IPv4 DF
    kIpv4Options = 1 << 4,       // IHL > 5: the slow path
    kSourceRoute = 1 << 5,       // a loose or strict source route option (RFC 791)
    kBadOptions = 1 << 6,        // the option list runs past the header; a router still forwards it
    kExtensionHeaders = 1 << 7,  // at least one IPv6 extension header
    kHopByHop = 1 << 8,          // an IPv6 hop-by-hop header: the slow path
    // The packet ends before the fixed L4 header does (l4_header_bytes). A router forwards such a packet, so the status
    // stays kOk; the key has the fields whose bytes are there, and FlowKey::Bits says which are not.
    kL4Truncated = 1 << 9,
    // A fragment that lets a filter judge a header that is not there yet, or that replaces one that was judged (RFC
    // 1858, RFC 3128): a first fragment of TCP without its whole header, or of another protocol without a field that
    // rules test; a fragment of TCP with the offset 8.
    kTinyFragment = 1 << 10,
  };

  FlowKey key;
  uint16_t ether_type = 0;         // after any VLAN tags; 0 when it could not be read, and from parse_ip
  uint16_t l3_offset = 0;          // bytes from the start of the frame to the IP header, or to what is not IP
  uint16_t l4_offset = kNoOffset;  // bytes to the L4 header (or unknown protocol's payload); kNoOffset: none or cut off
  uint16_t vlan_tci = 0;           // outermost tag
  uint32_t ip_bytes = 0;           // length of the IP packet as its header says; frame bytes after it are padding
  uint16_t flags = 0;              // Flags
  uint8_t vlan_count = 0;
  uint8_t ttl = 0;  // or hop limit
};
static_assert(sizeof(Headers) == 64 && std::is_trivially_copyable_v<Headers>);

namespace parse_detail {

// True when the walk meets a loose or strict source route; `bad` when an option runs past the header. `bytes` is a
// multiple of 4, and not 0.
SLUICE_HD bool has_source_route(const uint8_t* options, uint32_t bytes, bool& bad) {
  bad = false;
  // Most lists are one option and, behind it, their end.
  const uint32_t length = options[1];
  if (options[0] > kIpv4OptionNop && options[0] != kIpv4OptionLooseSourceRoute &&
      options[0] != kIpv4OptionStrictSourceRoute && length >= 2 && length <= bytes &&
      (length == bytes || options[length] == kIpv4OptionEnd)) {
    return false;
  }
  bool found = false;
  OptionWalk walk{options, bytes};
  OptionStep step = walk.step();
  for (; step == OptionStep::kNext; step = walk.step()) {
    found |= walk.type == kIpv4OptionLooseSourceRoute || walk.type == kIpv4OptionStrictSourceRoute;
  }
  bad = step == OptionStep::kBad;
  return found;
}

// Stores "nothing found" past the link layer and passes the status on: a failed parse leaves no half-filled key.
SLUICE_HD ParseStatus fail(ParseStatus status, const Link& link, uint16_t flags, Headers& out) {
  out = Headers{};
  out.ether_type = link.ether_type;
  out.l3_offset = static_cast<uint16_t>(link.l3);
  out.vlan_tci = link.vlan_tci;
  out.flags = flags;
  out.vlan_count = link.vlan_count;
  return status;
}

// The fields of an L4 header of which the packet has `bytes` bytes, fewer than the fixed header.
SLUICE_HD void parse_short_l4(const uint8_t* l4, uint32_t bytes, bool icmp, FlowKey& key, uint16_t& flags) {
  flags |= Headers::kL4Truncated;
  key.bits |= FlowKey::kShortL4;
  const bool tcp = key.protocol == kProtocolTcp;
  bool absent = false;
  if (icmp) {
    if (bytes >= 1) key.icmp = static_cast<uint16_t>(l4[0] << 8);
    if (bytes >= 2) key.icmp |= l4[1];
    key.bits |= static_cast<uint8_t>((bytes < 1 ? FlowKey::kNoIcmpType : 0) | (bytes < 2 ? FlowKey::kNoFlags : 0));
    absent = bytes < 2;
  } else if (bytes >= 4) {
    key.src_port = load_be16(l4);
    key.dst_port = load_be16(l4 + 2);
    key.bits |= FlowKey::kHasPorts;
  } else {
    absent = true;
  }
  if (tcp && bytes >= 14) key.flags = static_cast<uint16_t>(l4[13] << 8);
  if (tcp && bytes < 14) key.bits |= FlowKey::kNoFlags;
  if ((key.bits & FlowKey::kFragment) != 0 && (tcp || absent)) flags |= Headers::kTinyFragment;
}

// Fills ports, TCP flags or ICMP type of `key`, and `l4_offset`, from `offset` of a packet that ends at `end`. Returns
// false when they were not captured. The fragment bits of `key` are there already.
[[gnu::always_inline]] SLUICE_HD bool parse_l4(const uint8_t* frame, uint32_t captured, uint32_t offset, uint32_t end,
                                               uint8_t icmp_protocol, FlowKey& key, uint16_t& flags,
                                               uint16_t& l4_offset) {
  const uint8_t protocol = key.protocol;
  const uint32_t need = l4_header_bytes(protocol, icmp_protocol);
  if (end - offset < need) {
    if (captured < end) return false;
    parse_short_l4(frame + offset, end - offset, protocol == icmp_protocol, key, flags);
    return true;
  }
  if (captured < offset + need) return false;
  l4_offset = static_cast<uint16_t>(offset);
  if (need == 0) return true;
  const uint8_t* l4 = frame + offset;
  const uint32_t first = load_le32(l4);
  if (protocol == icmp_protocol) {
    key.icmp = swap16(static_cast<uint16_t>(first));
    return true;
  }
  key.src_port = swap16(static_cast<uint16_t>(first));
  key.dst_port = swap16(static_cast<uint16_t>(first >> 16));
  key.bits |= FlowKey::kHasPorts;
  // Every protocol with ports has a byte 7; only TCP's byte 13 is flags. No branch: TCP and UDP come mixed.
  const bool tcp = protocol == kProtocolTcp;
  const uint32_t tcp_flags = l4[tcp ? 13 : 7];
  key.flags = static_cast<uint16_t>(tcp_flags << 8 & (tcp ? 0xff00u : 0u));
  return true;
}

// Precondition of both: link.l3 <= captured <= wire, link.l3 <= kMaxL3Offset.
// They store `out` only when they return kOk.
inline constexpr uint32_t kMaxL3Offset = 32768;

[[gnu::always_inline]] SLUICE_HD void store(const FlowKey& key, const Link& link, uint16_t l4_offset, uint32_t ip_bytes,
                                            uint16_t flags, uint8_t ttl, Headers& out) {
  out.key = key;
  out.ether_type = link.ether_type;
  out.l3_offset = static_cast<uint16_t>(link.l3);
  out.l4_offset = l4_offset;
  out.vlan_tci = link.vlan_tci;
  out.ip_bytes = ip_bytes;
  out.flags = flags;
  out.vlan_count = link.vlan_count;
  out.ttl = ttl;
}

[[gnu::always_inline]] SLUICE_HD ParseStatus parse_ipv4(const uint8_t* frame, uint32_t captured, uint32_t wire,
                                                        const Link& link, uint16_t flags, bool verify_checksum,
                                                        Headers& out) {
  const uint32_t l3 = link.l3;
  const uint32_t link_bytes = wire - l3;
  if (link_bytes < kIpv4HeaderBytes) return ParseStatus::kIpv4TooShort;
  if (captured - l3 < kIpv4HeaderBytes) return ParseStatus::kCapturedTooShort;
  const uint8_t* ip = frame + l3;
  const uint64_t w0 = load_le64(ip);
  const uint64_t w1 = load_le64(ip + 8);
  const uint32_t w2 = load_le32(ip + 16);
  uint32_t header_bytes = kIpv4HeaderBytes;
  if ((w0 & 0xff) == 0x45) {
    if (verify_checksum && !ipv4_checksum_ok20(w0, w1, w2)) return ParseStatus::kIpv4BadChecksum;
  } else {
    header_bytes = static_cast<uint32_t>(w0 & 0xf) * 4;
    if (verify_checksum) {
      // The checksum comes before IHL in RFC 1812, but covers what IHL says: a header length that the frame cannot hold
      // leaves nothing to verify, and one below 5 words is summed as the least legal header.
      const uint32_t summed = header_bytes < kIpv4HeaderBytes ? kIpv4HeaderBytes : header_bytes;
      if (summed > link_bytes) return ParseStatus::kIpv4BadHeaderLength;
      if (summed > captured - l3) return ParseStatus::kCapturedTooShort;
      if (!ipv4_checksum_ok(ip, summed)) return ParseStatus::kIpv4BadChecksum;
    }
    if ((w0 & 0xf0) != 0x40) return ParseStatus::kIpv4BadVersion;
    if (header_bytes < kIpv4HeaderBytes || header_bytes > link_bytes) return ParseStatus::kIpv4BadHeaderLength;
  }
  const uint32_t total = swap16(static_cast<uint16_t>(w0 >> 16));
  if (total < header_bytes) return ParseStatus::kIpv4BadTotalLength;
  if (total > link_bytes) return ParseStatus::kIpv4TruncatedFrame;
  if (header_bytes > kIpv4HeaderBytes) {
    if (header_bytes > captured - l3) return ParseStatus::kCapturedTooShort;
    bool bad;
    flags |= Headers::kIpv4Options;
    if (has_source_route(ip + kIpv4HeaderBytes, header_bytes - kIpv4HeaderBytes, bad)) flags |= Headers::kSourceRoute;
    if (bad) flags |= Headers::kBadOptions;
  }
  const uint32_t fragment = swap16(static_cast<uint16_t>(w0 >> 48));
  const uint32_t destination = swap32(w2);
  flags |= (fragment & kIpv4DontFragment) != 0 ? Headers::kDontFragment : 0;
  flags |= is_ipv4_multicast(destination) ? Headers::kIpMulticast : 0;
  FlowKey key;
  key.src_lo = swap32(static_cast<uint32_t>(w1 >> 32));
  key.dst_lo = destination;
  key.protocol = static_cast<uint8_t>(w1 >> 8);
  key.dscp = static_cast<uint8_t>(w0 >> 10 & 0x3f);
  key.family = 4;
  uint16_t l4_offset = Headers::kNoOffset;
  const uint8_t ttl = static_cast<uint8_t>(w1);
  if ((fragment & (kIpv4MoreFragments | kIpv4OffsetMask)) != 0) {
    key.bits = FlowKey::kFragment;
    if ((fragment & kIpv4OffsetMask) != 0) {
      key.bits = FlowKey::kFragment | FlowKey::kLaterFragment;
      if ((fragment & kIpv4OffsetMask) == 1 && key.protocol == kProtocolTcp) flags |= Headers::kTinyFragment;
      store(key, link, l4_offset, total, flags, ttl, out);
      return ParseStatus::kOk;
    }
  }
  if (!parse_l4(frame, captured, l3 + header_bytes, l3 + total, kProtocolIcmp, key, flags, l4_offset)) {
    return ParseStatus::kCapturedTooShort;
  }
  store(key, link, l4_offset, total, flags, ttl, out);
  return ParseStatus::kOk;
}

[[gnu::always_inline]] SLUICE_HD ParseStatus parse_ipv6(const uint8_t* frame, uint32_t captured, uint32_t wire,
                                                        const Link& link, uint16_t flags, Headers& out) {
  const uint32_t l3 = link.l3;
  if (wire - l3 < kIpv6HeaderBytes) return ParseStatus::kIpv6TooShort;
  if (captured - l3 < kIpv6HeaderBytes) return ParseStatus::kCapturedTooShort;
  const uint8_t* ip = frame + l3;
  const uint64_t w0 = load_be64(ip);
  if (w0 >> 60 != 6) return ParseStatus::kIpv6BadVersion;
  const uint32_t total = kIpv6HeaderBytes + static_cast<uint32_t>(w0 >> 16 & 0xffff);
  // A jumbo payload (RFC 2675) says 0 here and carries its length in a hop-by-hop option; that option is then past the
  // end of the packet as this field says it, so jumbograms end as kIpv6BadExtensionHeader.
  if (total > wire - l3) return ParseStatus::kIpv6BadPayloadLength;
  const uint32_t end = l3 + total;
  uint8_t next = static_cast<uint8_t>(w0 >> 8);
  uint32_t at = l3 + kIpv6HeaderBytes;
  uint8_t bits = 0;
  for (uint32_t count = 0; is_ipv6_extension(next); ++count) {
    if (count == kMaxIpv6ExtensionHeaders) return ParseStatus::kIpv6TooManyExtensionHeaders;
    // RFC 8200 section 4.1: hop-by-hop options only right after the IPv6 header.
    if (next == kIpv6HopByHop && count != 0) return ParseStatus::kIpv6BadExtensionHeader;
    const ParseStatus past_the_end =
        (bits & FlowKey::kFragment) != 0 ? ParseStatus::kIpv6FragmentedHeaders : ParseStatus::kIpv6BadExtensionHeader;
    if (end - at < 8) return past_the_end;
    if (captured < at + 8) return ParseStatus::kCapturedTooShort;
    flags |= Headers::kExtensionHeaders;
    const uint8_t* header = frame + at;
    uint32_t bytes = 8;
    if (next == kIpv6Fragment) {
      const uint16_t offset_more = load_be16(header + 2);
      if ((offset_more & 0xfff8) != 0) {
        bits |= FlowKey::kFragment | FlowKey::kLaterFragment;
        next = header[0];  // what it is a fragment of; its headers are in the first fragment
        if (offset_more >> 3 == 1 && next == kProtocolTcp) flags |= Headers::kTinyFragment;
        break;
      }
      if ((offset_more & 1) != 0) bits |= FlowKey::kFragment;  // neither: an atomic fragment, RFC 6946
    } else {
      bytes = next == kIpv6Authentication ? (header[1] + 2u) * 4 : (header[1] + 1u) * 8;
      if (bytes > end - at) return past_the_end;
      if (next == kIpv6HopByHop) flags |= Headers::kHopByHop;
      if (next == kIpv6Authentication) bits |= FlowKey::kAfterAh;
      if (next == kIpv6Routing && header[2] == 0 && header[3] != 0) {
        return ParseStatus::kIpv6RoutingType0;
      }
    }
    next = header[0];
    at += bytes;
  }
  FlowKey key;
  key.src_hi = load_be64(ip + 8);
  key.src_lo = load_be64(ip + 16);
  key.dst_hi = load_be64(ip + 24);
  key.dst_lo = load_be64(ip + 32);
  key.protocol = next;
  key.dscp = static_cast<uint8_t>(w0 >> 54 & 0x3f);
  key.family = 6;
  key.bits = bits;
  flags |= is_ipv6_multicast(key.dst_hi) ? Headers::kIpMulticast : 0;
  uint16_t l4_offset = Headers::kNoOffset;
  const bool has_l4 = (bits & FlowKey::kLaterFragment) == 0 && next != kIpv6NoNextHeader;
  if (has_l4 && !parse_l4(frame, captured, at, end, kProtocolIcmpv6, key, flags, l4_offset)) {
    return ParseStatus::kCapturedTooShort;
  }
  store(key, link, l4_offset, total, flags, static_cast<uint8_t>(w0), out);
  return ParseStatus::kOk;
}

// The packet that a data plane sees most, without the general path's branches: unicast Ethernet, IPv4 without options
// or fragmentation, TCP or UDP, its headers captured. Returns false, with `out` untouched, for everything else and for
// everything wrong: the general path then judges it. Both give the same Headers (parse_test, "plain path").
//
// Where the number of tags is a constant at the call, every offset is one too.
[[gnu::always_inline]] SLUICE_HD bool parse_plain(const uint8_t* frame, uint32_t captured, uint32_t wire,
                                                  const Link& link, uint32_t tags, bool verify_checksum, Headers& out) {
  const uint32_t l3 = kEtherHeaderBytes + kVlanTagBytes * tags;
  if (captured < l3 + kIpv4HeaderBytes + sizeof(TcpHeader)) return false;
  const uint32_t l4 = l3 + kIpv4HeaderBytes;
  const uint64_t w0 = load_le64(frame + l3);
  const uint64_t w1 = load_le64(frame + l3 + 8);
  const uint32_t w2 = load_le32(frame + l3 + 16);
  // In memory order: version and IHL 45, and of byte 6..7 all but the reserved bit and DF.
  const uint64_t unusual =
      (uint64_t{link.ether_type} ^ kEtherTypeIpv4) | ((w0 ^ 0x45u) & 0xff) | (w0 >> 48 & 0xff3fu) | (frame[0] & 1u);
  const uint32_t protocol = static_cast<uint32_t>(w1 >> 8) & 0xff;
  const bool tcp = protocol == kProtocolTcp;
  if (unusual != 0 || (!tcp && protocol != kProtocolUdp)) return false;
  const uint32_t total = swap16(static_cast<uint16_t>(w0 >> 16));
  if (total < (tcp ? kIpv4HeaderBytes + sizeof(TcpHeader) : kIpv4HeaderBytes + sizeof(UdpHeader))) return false;
  if (total > wire - l3) return false;
  if (verify_checksum && !ipv4_checksum_ok20(w0, w1, w2)) return false;
  const uint32_t destination = swap32(w2);
  const uint32_t ports = swap32(load_le32(frame + l4));  // source above destination
  const uint64_t tcp_flags = frame[l4 + 13] & (tcp ? 0xffu : 0u);
  const uint64_t flags =
      (w0 >> 54 & 1) * Headers::kDontFragment | (is_ipv4_multicast(destination) ? uint64_t{Headers::kIpMulticast} : 0);
  // Eight whole words, each stored straight from its register: the fields one by one are twice the stores, and an array
  // in between is read back in 16-byte pieces that no store buffer forwards.
  uint8_t* to = reinterpret_cast<uint8_t*>(&out);
  store_le64(to, 0);
  store_le64(to + 8, swap32(static_cast<uint32_t>(w1 >> 32)));
  store_le64(to + 16, 0);
  store_le64(to + 24, destination);
  store_le64(to + 32,
             (ports >> 16 | ports << 16) | tcp_flags << 40 | uint64_t{protocol} << 48 | (w0 >> 10 & 0x3f) << 56);
  store_le64(to + 40, 4 | FlowKey::kHasPorts << 8);
  store_le64(to + 48, kEtherTypeIpv4 | l3 << 16 | uint64_t{l4} << 32 | (tags != 0 ? uint64_t{link.vlan_tci} << 48 : 0));
  store_le64(to + 56, total | flags << 32 | uint64_t{tags} << 48 | (w1 & 0xff) << 56);
  return true;
}
static_assert(offsetof(FlowKey, src_lo) == 8 && offsetof(FlowKey, dst_lo) == 24 && offsetof(FlowKey, src_port) == 32 &&
              offsetof(FlowKey, dst_port) == 34 && offsetof(FlowKey, flags) == 36 &&
              offsetof(FlowKey, protocol) == 38 && offsetof(FlowKey, dscp) == 39 && offsetof(FlowKey, family) == 40 &&
              offsetof(FlowKey, bits) == 41);
static_assert(offsetof(Headers, ether_type) == 48 && offsetof(Headers, l3_offset) == 50 &&
              offsetof(Headers, l4_offset) == 52 && offsetof(Headers, ip_bytes) == 56 &&
              offsetof(Headers, flags) == 60 && offsetof(Headers, vlan_count) == 62 && offsetof(Headers, ttl) == 63);

// `flags`: what the link layer said.
[[gnu::always_inline]] SLUICE_HD ParseStatus parse_behind(const uint8_t* frame, uint32_t captured, uint32_t wire,
                                                          const Link& link, uint16_t flags, bool verify_checksum,
                                                          Headers& out) {
  if (link.ether_type == kEtherTypeIpv4) return parse_ipv4(frame, captured, wire, link, flags, verify_checksum, out);
  if (link.ether_type == kEtherTypeIpv6) return parse_ipv6(frame, captured, wire, link, flags, out);
  return ParseStatus::kNotIp;
}

// Looks at the version nibble and hands over to the family's parser.
[[gnu::always_inline]] SLUICE_HD ParseStatus parse_network(const uint8_t* frame, uint32_t captured, uint32_t wire,
                                                           uint32_t l3, bool verify_checksum, Link& link,
                                                           Headers& out) {
  if (l3 > wire || l3 > kMaxL3Offset) return ParseStatus::kTruncatedL2;
  link.l3 = l3;
  if (l3 >= captured) return l3 == wire ? ParseStatus::kIpv4TooShort : ParseStatus::kCapturedTooShort;
  if (frame[l3] >> 4 == 6) return parse_ipv6(frame, captured, wire, link, 0, out);
  return parse_ipv4(frame, captured, wire, link, 0, verify_checksum, out);
}

}  // namespace parse_detail

// Parses an IP packet that starts at `l3_offset` (at most 32,768) of a frame of which `captured_bytes` are readable and
// `wire_bytes` were on the link; a captured length above the wire length counts as the wire length. A version nibble of
// 6 is read as IPv6, anything else is judged as IPv4. The link fields of `out` are zero but l3_offset.
// `verify_checksum` false trusts the IPv4 header checksum (a card has verified it). Errors: kTruncatedL2 when l3_offset
// is past the frame or the limit; else one of the IP statuses.
SLUICE_HD ParseStatus parse_ip(const uint8_t* frame, uint32_t captured_bytes, uint32_t wire_bytes, uint32_t l3_offset,
                               Headers& out, bool verify_checksum = true) {
  const uint32_t captured = captured_bytes < wire_bytes ? captured_bytes : wire_bytes;
  Link link;
  const ParseStatus status =
      parse_detail::parse_network(frame, captured, wire_bytes, l3_offset, verify_checksum, link, out);
  if (status == ParseStatus::kOk) return status;
  return parse_detail::fail(status, link, 0, out);
}

// Parses an Ethernet frame (without its FCS) of which `captured_bytes` are readable and `wire_bytes` were on the link;
// a captured length above the wire length counts as the wire length. The EtherType decides the family.
SLUICE_HD ParseStatus parse_ethernet(const uint8_t* frame, uint32_t captured_bytes, uint32_t wire_bytes, Headers& out,
                                     bool verify_checksum = true) {
  const uint32_t captured = captured_bytes < wire_bytes ? captured_bytes : wire_bytes;
  if (captured >= kEtherHeaderBytes + kVlanTagBytes) {
    const Link plain = read_plain_link(frame);
    const bool done = plain.vlan_count != 0
                          ? parse_detail::parse_plain(frame, captured, wire_bytes, plain, 1, verify_checksum, out)
                          : parse_detail::parse_plain(frame, captured, wire_bytes, plain, 0, verify_checksum, out);
    if (done) return ParseStatus::kOk;
  }
  Link link;
  const LinkStatus found = read_link(frame, captured, link);
  const uint64_t destination = captured < kEtherHeaderBytes ? 0 : load_le64(frame) & 0xffffffffffffull;
  uint16_t flags = 0;
  if ((destination & 1) != 0) {
    flags = destination == 0xffffffffffffull ? Headers::kLinkBroadcast : Headers::kLinkMulticast;
  }
  ParseStatus status = ParseStatus::kTooManyVlans;
  if (found == LinkStatus::kOk) {
    status = parse_detail::parse_behind(frame, captured, wire_bytes, link, flags, verify_checksum, out);
    if (status == ParseStatus::kOk) return status;
  } else {
    if (found == LinkStatus::kCut) {
      status = wire_bytes < link.l3 ? ParseStatus::kTruncatedL2 : ParseStatus::kCapturedTooShort;
    }
    link.l3 = 0;
  }
  return parse_detail::fail(status, link, flags, out);
}

}  // namespace sluice

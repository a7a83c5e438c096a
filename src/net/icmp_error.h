// Builds ICMP errors about packets that cannot be forwarded: RFC 792 and RFC 1812 section 4.3 (IPv4), RFC 4443 (IPv6),
// RFC 1191 (the MTU in "fragmentation needed"). Host and device; no allocation. Rate limiting is the caller's.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "net/bytes.h"
#include "net/checksum.h"
#include "net/ipv4.h"
#include "net/ipv6.h"
#include "net/l4.h"
#include "net/martian.h"
#include "net/parse.h"
#include "net/types.h"

namespace sluice {

// What happened to the packet; each is the type and code of its family. Stable numbers.
enum class IcmpError : uint8_t {
  kTimeExceeded = 0,         // 11/0;  3/0
  kNetUnreachable = 1,       // 3/0;   1/0 no route to destination
  kHostUnreachable = 2,      // 3/1;   1/3 address unreachable
  kAdminProhibited = 3,      // 3/13;  1/1
  kPacketTooBig = 4,         // 3/4 fragmentation needed and DF set;  2/0. `parameter` is the next hop's MTU
  kParameterProblem = 5,     // 12/0;  4/0 erroneous header field. `parameter` is the offset of the octet in the packet
  kPortUnreachable = 6,      // 3/3;   1/4
  kProtocolUnreachable = 7,  // 3/2;   4/1 unrecognised next header, with its offset in the packet
  kSourceRouteFailed = 8,    // 3/5;   1/7 (RFC 6554)
};
inline constexpr unsigned kIcmpErrorCount = 9;

// Why an error must not be sent, in the order in which the rules are asked. Stable numbers.
enum class IcmpSuppressed : uint8_t {
  kNo = 0,                // it may be sent
  kNotIp = 1,             // the packet did not parse: RFC 1812 section 4.3.2.7, failed header validation
  kAboutIcmpError = 2,    // about an ICMP error or redirect, or an ICMP packet too short to tell
  kLaterFragment = 3,     // a fragment other than the first
  kGroupDestination = 4,  // to an IP multicast or broadcast address, or sent as a link-layer one
  kInvalidSource = 5,     // the source does not name one host: unspecified, loopback, multicast, broadcast, class E
};

inline constexpr uint32_t kIcmpv4ErrorMaxBytes = 576;              // RFC 1812 section 4.3.2.3
inline constexpr uint32_t kIcmpv6ErrorMaxBytes = kIpv6MinimumMtu;  // RFC 4443 section 2.4 (c)

// Whether an error of this kind may be sent about a packet that parsed into `packet`: RFC 1812 section 4.3.2.7, RFC
// 4443 section 2.4 (e). IPv6 answers "packet too big" to multicast as well. Directed broadcasts and anycast sources are
// not known here.
SLUICE_HD IcmpSuppressed icmp_error_suppressed(const Headers& packet, IcmpError error) {
  const FlowKey& key = packet.key;
  if (key.family != 4 && key.family != 6) return IcmpSuppressed::kNotIp;
  const bool v4 = key.family == 4;
  if (key.protocol == (v4 ? kProtocolIcmp : kProtocolIcmpv6) && (key.bits & FlowKey::kLaterFragment) == 0) {
    const uint32_t type = key.icmp >> 8;
    const bool unknown = packet.l4_offset == Headers::kNoOffset;
    // Destination unreachable, source quench, redirect, time exceeded, parameter problem; IPv6: below 128, and
    // redirect.
    const bool v4_error = type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
    const bool v6_error = type < 128 || type == 137;
    if (unknown || (v4 ? v4_error : v6_error)) return IcmpSuppressed::kAboutIcmpError;
  }
  if ((key.bits & FlowKey::kLaterFragment) != 0 && v4) return IcmpSuppressed::kLaterFragment;
  const bool group =
      (packet.flags & (Headers::kLinkMulticast | Headers::kLinkBroadcast | Headers::kIpMulticast)) != 0 ||
      is_limited_broadcast(key);
  if (group && (v4 || error != IcmpError::kPacketTooBig)) return IcmpSuppressed::kGroupDestination;
  const Martian rule = martian(key);
  if (is_source_martian(rule) && rule != Martian::kSourceLinkLocal) return IcmpSuppressed::kInvalidSource;
  return IcmpSuppressed::kNo;
}

namespace icmp_error_detail {

// Where an IPv6 packet, of which `readable` bytes are there, says what follows its extension headers.
SLUICE_HD uint32_t next_header_at(const uint8_t* ip, uint32_t readable) {
  uint32_t at = 6;
  uint32_t header = kIpv6HeaderBytes;
  while (is_ipv6_extension(ip[at]) && header + 2 <= readable) {
    const uint8_t type = ip[at];
    const uint32_t length = ip[header + 1];
    at = header;
    header += type == kIpv6Fragment ? 8 : type == kIpv6Authentication ? (length + 2) * 4 : (length + 1) * 8;
  }
  return at;
}

struct Head {
  uint8_t type = 0, code = 0;
  uint32_t rest = 0;
};

// The ICMP header of an error about the packet at `ip`, of which `quote` bytes are quoted.
SLUICE_HD Head head_of(IcmpError error, bool v4, uint32_t parameter, const uint8_t* ip, uint32_t quote) {
  switch (error) {
    case IcmpError::kTimeExceeded:
      return v4 ? Head{11, 0} : Head{3, 0};
    case IcmpError::kNetUnreachable:
      return v4 ? Head{3, 0} : Head{1, 0};
    case IcmpError::kHostUnreachable:
      return v4 ? Head{3, 1} : Head{1, 3};
    case IcmpError::kAdminProhibited:
      return v4 ? Head{3, 13} : Head{1, 1};
    case IcmpError::kPacketTooBig:
      return v4 ? Head{3, 4, parameter < 0xffff ? parameter : 0xffff} : Head{2, 0, parameter};
    case IcmpError::kParameterProblem:
      return v4 ? Head{12, 0, parameter << 24} : Head{4, 0, parameter};
    case IcmpError::kPortUnreachable:
      return v4 ? Head{3, 3} : Head{1, 4};
    case IcmpError::kProtocolUnreachable:
      return v4 ? Head{3, 2} : Head{4, 1, next_header_at(ip, quote)};
    case IcmpError::kSourceRouteFailed:
      return v4 ? Head{3, 5} : Head{1, 7};
  }
  return {};
}

}  // namespace icmp_error_detail

// Writes the error about the packet at frame + packet.l3_offset, of which `captured_bytes` of the frame are readable,
// as an IP packet (no link header) from `source`, the router's own address of the packet's family, to the packet's
// source. It quotes as much of the packet as was captured and fits 576 bytes (IPv4) or 1280 (IPv6), without Ethernet
// padding. `parameter`: see IcmpError. `out` must not overlap the frame. The IPv4 header has DSCP CS6 (RFC 1812
// section 4.3.2.5), DF, and ID 0, which RFC 6864 allows for packets that cannot be fragmented; TTL and hop limit
// are 64. Returns the bytes written; 0 when the error must not be sent, `source` is of the other family, or `capacity`
// is too small for the headers and the quoted IP header; a smaller capacity than the maximum just shortens the quote.
SLUICE_HD uint32_t build_icmp_error(const uint8_t* frame, uint32_t captured_bytes, const Headers& packet,
                                    IcmpError error, uint32_t parameter, const IpAddress& source, uint8_t* out,
                                    uint32_t capacity) {
  if (icmp_error_suppressed(packet, error) != IcmpSuppressed::kNo || source.family != packet.key.family) return 0;
  const bool v4 = packet.key.family == 4;
  const uint32_t l3 = packet.l3_offset;
  const uint32_t ip_header_bytes = v4 ? kIpv4HeaderBytes : kIpv6HeaderBytes;
  const uint32_t headers = ip_header_bytes + 8;
  const uint32_t maximum = v4 ? kIcmpv4ErrorMaxBytes : kIcmpv6ErrorMaxBytes;
  const uint32_t room = capacity < maximum ? capacity : maximum;
  if (captured_bytes < l3 + ip_header_bytes) return 0;
  const uint32_t quoted_header_bytes = v4 ? (frame[l3] & 0xfu) * 4 : kIpv6HeaderBytes;
  uint32_t quote = captured_bytes - l3 < packet.ip_bytes ? captured_bytes - l3 : packet.ip_bytes;
  if (room < headers) return 0;
  quote = quote < room - headers ? quote : room - headers;
  if (quote < quoted_header_bytes) return 0;
  const uint32_t icmp_bytes = 8 + quote;
  const icmp_error_detail::Head head = icmp_error_detail::head_of(error, v4, parameter, frame + l3, quote);

  uint8_t* icmp = out + ip_header_bytes;
  icmp[0] = head.type;
  icmp[1] = head.code;
  store_be16(icmp + 2, 0);
  store_be32(icmp + 4, head.rest);
  memcpy(icmp + 8, frame + l3, quote);
  uint32_t pseudo = 0;
  if (v4) {
    out[0] = 0x45;
    out[1] = 48 << 2;
    store_be16(out + 2, static_cast<uint16_t>(headers + quote));
    store_be32(out + 4, kIpv4DontFragment);  // ID 0, DF
    out[8] = 64;
    out[9] = kProtocolIcmp;
    store_be16(out + 10, 0);
    store_be32(out + 12, static_cast<uint32_t>(source.lo));
    store_be32(out + 16, static_cast<uint32_t>(packet.key.src_lo));
    store_be16(out + 10, ipv4_header_checksum(out, kIpv4HeaderBytes));
  } else {
    store_be32(out, 0x60000000u);
    store_be16(out + 4, static_cast<uint16_t>(icmp_bytes));
    out[6] = kProtocolIcmpv6;
    out[7] = 64;
    store_be64(out + 8, source.hi);
    store_be64(out + 16, source.lo);
    store_be64(out + 24, packet.key.src_hi);
    store_be64(out + 32, packet.key.src_lo);
    pseudo = pseudo_sum_v6(source.hi, source.lo, packet.key.src_hi, packet.key.src_lo, kProtocolIcmpv6, icmp_bytes);
  }
  store_be16(icmp + 2, l4_checksum(pseudo, icmp, icmp_bytes));
  return headers + quote;
}

}  // namespace sluice

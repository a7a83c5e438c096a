// The IPv4 header as it lies in the packet (RFC 791, RFC 2474, RFC 3168).
#pragma once

#include <cstdint>

#include "net/types.h"

namespace sluice {

struct Ipv4Header {
  uint8_t version_ihl;  // version 4 bits, header length in 32-bit words 4 bits
  uint8_t dscp_ecn;     // DSCP 6 bits, ECN 2 bits
  Be16 total_length;    // bytes, header included
  Be16 id;
  Be16 fragment;  // 0, DF, MF, then the offset in units of 8 bytes (13 bits)
  uint8_t ttl;
  uint8_t protocol;
  Be16 checksum;
  Be32 source;
  Be32 destination;
};

inline constexpr uint32_t kIpv4HeaderBytes = 20;  // without options
inline constexpr uint32_t kIpv4MaxHeaderBytes = 60;
inline constexpr uint16_t kIpv4DontFragment = 0x4000;
inline constexpr uint16_t kIpv4MoreFragments = 0x2000;
inline constexpr uint16_t kIpv4OffsetMask = 0x1fff;
inline constexpr uint32_t kIpv4MinimumMtu = 68;  // RFC 791 section 3.2: every link carries so much

// Option types that matter to a router (RFC 791 section 3.1): bit 7 says "copied into fragments".
inline constexpr uint8_t kIpv4OptionEnd = 0;
inline constexpr uint8_t kIpv4OptionNop = 1;
inline constexpr uint8_t kIpv4OptionRecordRoute = 7;
inline constexpr uint8_t kIpv4OptionTimestamp = 68;
inline constexpr uint8_t kIpv4OptionLooseSourceRoute = 131;
inline constexpr uint8_t kIpv4OptionStrictSourceRoute = 137;
inline constexpr uint8_t kIpv4OptionRouterAlert = 148;
inline constexpr uint8_t kIpv4OptionCopied = 0x80;

static_assert(sizeof(Ipv4Header) == kIpv4HeaderBytes);

SLUICE_HD bool is_ipv4_multicast(uint32_t address) {
  return address >> 28 == 0xe;
}
inline constexpr uint32_t kIpv4LimitedBroadcast = 0xffffffffu;

}  // namespace sluice

// Transport and ICMP headers as they lie in the packet, and the protocol numbers that the parser knows.
#pragma once

#include <cstdint>

#include "net/types.h"

namespace sluice {

inline constexpr uint8_t kProtocolIcmp = 1;
inline constexpr uint8_t kProtocolTcp = 6;
inline constexpr uint8_t kProtocolUdp = 17;
inline constexpr uint8_t kProtocolDccp = 33;
inline constexpr uint8_t kProtocolGre = 47;
inline constexpr uint8_t kProtocolEsp = 50;
inline constexpr uint8_t kProtocolIcmpv6 = 58;
inline constexpr uint8_t kProtocolSctp = 132;
inline constexpr uint8_t kProtocolUdpLite = 136;

// RFC 9293
struct TcpHeader {
  Be16 source_port;
  Be16 destination_port;
  Be32 sequence;
  Be32 acknowledgement;
  uint8_t data_offset;  // header length in 32-bit words in the upper 4 bits
  uint8_t flags;        // CWR ECE URG ACK PSH RST SYN FIN, from bit 7 down
  Be16 window;
  Be16 checksum;
  Be16 urgent;
};

// RFC 768; RFC 3828 reads `length` as the checksum's coverage
struct UdpHeader {
  Be16 source_port;
  Be16 destination_port;
  Be16 length;
  Be16 checksum;
};

// RFC 792, RFC 4443
struct IcmpHeader {
  uint8_t type;
  uint8_t code;
  Be16 checksum;
};

inline constexpr uint8_t kTcpFin = 0x01;
inline constexpr uint8_t kTcpSyn = 0x02;
inline constexpr uint8_t kTcpRst = 0x04;
inline constexpr uint8_t kTcpPsh = 0x08;
inline constexpr uint8_t kTcpAck = 0x10;
inline constexpr uint8_t kTcpUrg = 0x20;

static_assert(sizeof(TcpHeader) == 20 && sizeof(UdpHeader) == 8 && sizeof(IcmpHeader) == 4);

SLUICE_HD bool protocol_has_ports(uint8_t protocol) {
  return protocol == kProtocolTcp || protocol == kProtocolUdp || protocol == kProtocolDccp ||
         protocol == kProtocolSctp || protocol == kProtocolUdpLite;
}

// The fixed L4 header: TCP 20, UDP and UDP-Lite 8, SCTP and DCCP 12, the family's own ICMP 8, 0 for the rest.
SLUICE_HD uint32_t l4_header_bytes(uint8_t protocol, uint8_t icmp_protocol) {
  uint32_t bytes = 0;
  bytes = protocol == icmp_protocol ? 8u : bytes;
  bytes = protocol == kProtocolSctp || protocol == kProtocolDccp ? 12u : bytes;
  bytes = protocol == kProtocolUdp || protocol == kProtocolUdpLite ? 8u : bytes;
  bytes = protocol == kProtocolTcp ? 20u : bytes;
  return bytes;
}

}  // namespace sluice

// Builds packets field by field, with right lengths and checksums unless told otherwise. Host only; for tests and the
// traffic generator.
//
//   auto frame = udp4("10.0.0.1", "192.0.2.7").ports(1000, 53).ttl(1).vlan(5).dscp(46).payload(18).size(64).build();
//
// Setters may come in any order. What a setter makes wrong stays wrong: a length or checksum that was set explicitly is
// written as it is, and the other fields are computed around it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "net/types.h"

namespace sluice {

class PacketBuilder {
 public:
  // An Ethernet frame of this type with only a payload.
  static PacketBuilder ether(uint16_t ether_type);
  // An IP packet; the family is the addresses' own (SLUICE_CHECK: both the same). Protocols TCP, UDP, UDP-Lite, SCTP,
  // DCCP, ICMP (IPv4) and ICMPv6 (IPv6) get their header; any other protocol is followed by the payload at once.
  static PacketBuilder ip(IpAddress source, IpAddress destination, uint8_t protocol);

  // -- link
  PacketBuilder& macs(const MacAddress& destination, const MacAddress& source);
  // Adds a tag; the first call is the outermost.
  PacketBuilder& vlan(uint16_t id, uint8_t priority = 0, uint16_t tag_type = 0x8100);
  PacketBuilder& ether_type(uint16_t type);
  PacketBuilder& no_link();  // build() starts at the IP header; tags and MACs are not written

  // -- IP
  PacketBuilder& ttl(uint8_t value);  // hop limit too; default 64
  PacketBuilder& dscp(uint8_t value);
  PacketBuilder& ecn(uint8_t value);
  PacketBuilder& id(uint16_t value);
  PacketBuilder& flow_label(uint32_t value);
  PacketBuilder& dont_fragment(bool set = true);
  // IPv4: MF and offset. IPv6: adds a fragment header where it stands in the order of calls. `offset_bytes` is a
  // multiple of 8; past 0 the packet has no L4 header, only the payload.
  PacketBuilder& fragment(uint32_t offset_bytes, bool more, uint32_t id = 0x1234);
  // IPv4 options, padded with End to 4 bytes (SLUICE_CHECK: at most 40 in all).
  PacketBuilder& ipv4_options(std::span<const uint8_t> bytes);
  // IPv6 extension headers, in the order of calls. `units` is the header's length in 8-byte units, at least 1.
  PacketBuilder& hop_by_hop(uint32_t units = 1);
  PacketBuilder& destination_options(uint32_t units = 1);
  PacketBuilder& routing(uint8_t type, uint8_t segments_left, uint32_t units = 1);
  PacketBuilder& authentication(uint32_t words = 6);  // 32-bit words, at least 2

  // -- L4
  PacketBuilder& ports(uint16_t source, uint16_t destination);
  PacketBuilder& tcp_flags(uint8_t flags);
  PacketBuilder& sequence(uint32_t sequence, uint32_t acknowledgement = 0);
  PacketBuilder& icmp(uint8_t type, uint8_t code, uint32_t rest = 0);  // `rest`: the header's second word
  PacketBuilder& no_udp_checksum();

  // -- bytes
  PacketBuilder& payload(size_t bytes);  // counting pattern
  PacketBuilder& payload(std::vector<uint8_t> bytes);
  // The whole frame, in memory (no FCS). Without a payload() the payload grows to fill it; with one, zero padding
  // follows the IP packet. A packet that is larger already stays as it is.
  PacketBuilder& size(size_t frame_bytes);

  // -- wrong on purpose
  PacketBuilder& ip_version(uint8_t version);
  PacketBuilder& ihl(uint8_t words);
  PacketBuilder& total_length(uint16_t bytes);
  PacketBuilder& payload_length(uint16_t bytes);
  PacketBuilder& ip_checksum(uint16_t value);
  PacketBuilder& bad_ip_checksum();  // off by one bit
  PacketBuilder& bad_l4_checksum();
  PacketBuilder& truncate(size_t frame_bytes);  // cuts the finished frame

  std::vector<uint8_t> build() const;

 private:
  struct Vlan {
    uint16_t tci;
    uint16_t tag_type;
  };
  struct Extension {
    uint8_t type;
    std::vector<uint8_t> bytes;  // the first is overwritten with the next header
  };

  std::vector<uint8_t> build_l4(uint32_t payload_bytes) const;
  uint32_t l4_header_bytes() const;

  std::optional<uint16_t> ether_type_;
  MacAddress destination_mac_{{0x02, 0, 0, 0, 0, 2}};
  MacAddress source_mac_{{0x02, 0, 0, 0, 0, 1}};
  std::vector<Vlan> vlans_;
  bool link_ = true;

  IpAddress source_;
  IpAddress destination_;
  uint8_t protocol_ = 0;
  uint8_t ttl_ = 64;
  uint8_t dscp_ = 0;
  uint8_t ecn_ = 0;
  uint16_t id_ = 0;
  uint32_t flow_label_ = 0;
  uint16_t fragment_ = 0;  // IPv4's field
  bool later_fragment_ = false;
  bool any_fragment_ = false;
  std::vector<uint8_t> options_;
  std::vector<Extension> extensions_;

  uint16_t source_port_ = 1000;
  uint16_t destination_port_ = 2000;
  uint8_t tcp_flags_ = 0x10;
  uint32_t sequence_ = 0;
  uint32_t acknowledgement_ = 0;
  uint8_t icmp_type_ = 8;
  uint8_t icmp_code_ = 0;
  uint32_t icmp_rest_ = 0;
  bool udp_checksum_ = true;

  std::optional<std::vector<uint8_t>> payload_;
  size_t size_ = 0;
  std::optional<uint8_t> version_;
  std::optional<uint8_t> ihl_;
  std::optional<uint16_t> total_length_;
  std::optional<uint16_t> ip_checksum_;
  uint16_t ip_checksum_flip_ = 0;
  bool bad_l4_checksum_ = false;
  std::optional<size_t> truncate_;
};

// Addresses as text of the named family (SLUICE_CHECK: they parse).
PacketBuilder ip4(std::string_view source, std::string_view destination, uint8_t protocol);
PacketBuilder ip6(std::string_view source, std::string_view destination, uint8_t protocol);
PacketBuilder udp4(std::string_view source, std::string_view destination);
PacketBuilder udp6(std::string_view source, std::string_view destination);
PacketBuilder tcp4(std::string_view source, std::string_view destination);
PacketBuilder tcp6(std::string_view source, std::string_view destination);
PacketBuilder icmp4(std::string_view source, std::string_view destination);  // echo request
PacketBuilder icmp6(std::string_view source, std::string_view destination);  // echo request

}  // namespace sluice

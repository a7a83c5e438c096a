// Link types of captures: what is not Ethernet is shown to the graph as Ethernet, and can be turned back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

// Numbers of the files' own (LINKTYPE_..., https://www.tcpdump.org/linktypes.html). kNull and kLoop: BSD loopback, the
// address family in the byte order of the machine that wrote it or of the network. kPpp, kPppHdlc: RFC 1661, RFC 1662.
// kSll, kSll2: what Linux gives for "any". kRaw, kIpv4, kIpv6: the IP header comes first.
enum class LinkType : uint16_t {
  kNull = 0,
  kEthernet = 1,
  kPpp = 9,
  kPppHdlc = 50,
  kRaw = 101,
  kLoop = 108,
  kSll = 113,
  kIpv4 = 228,
  kIpv6 = 229,
  kSll2 = 276,
};

// Nothing: not one of them.
std::optional<LinkType> link_type_of(uint32_t number);
// As tcpdump lists it: "LINUX_SLL2 (276)".
std::string to_string(LinkType type);

// A packet of another link type as an Ethernet frame: a header of kBytes in place of its own. The type field is what
// its own header says of the payload (0xffff: nothing that Ethernet has a number for). The address fields carry the
// rest of that header, so that it can be written again:
//
//   cooked      source: the sender's link-layer address. Destination: ff:ff:ff:ff:ff:ff for a broadcast of Ethernet;
//               (SLL alone), else a first byte whose lowest bit, the group bit, is set for a broadcast or multicast
//               packet. SLL: packet type << 1, ARPHRD type, length of the address, its last 2 bytes. SLL2: length of
//               the address << 4 | packet type << 1, ARPHRD type, the low 24 bits of the interface's index
//   null, loop  destination: 2, 0, the 4 bytes of the family
//   PPP         destination: 2, the length of the header, its bytes
//   raw, IPv4, IPv6  destination 2, 0, 0, 0, 0, 0
class LinkHeader {
 public:
  static constexpr uint32_t kBytes = 14;
  static constexpr uint32_t kMostBytes = 20;  // of any type's own header

  // How long the header of `type` at `data` is; nothing where `captured` bytes are too few for it.
  static std::optional<uint32_t> length(LinkType type, const uint8_t* data, uint32_t captured);
  // Writes the Ethernet header of a packet whose own header is at `data`, `captured` >= length(...).
  static void to_ethernet(LinkType type, const uint8_t* data, uint32_t captured, uint8_t ethernet[kBytes]);
  // The other way: writes the header of `type` and returns its length. An address of more than 6 bytes (SLL2), an
  // interface index past 24 bits and an ARPHRD type past 16 bits are not kept.
  static uint32_t from_ethernet(LinkType type, const uint8_t ethernet[kBytes], uint8_t own[kMostBytes]);
};

}  // namespace sluice

#include "ports/pcap/link_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace sluice {
namespace {

constexpr uint16_t kTypeIpv4 = 0x0800, kTypeIpv6 = 0x86dd, kTypeNone = 0xffff;
constexpr uint16_t kPppIpv4 = 0x0021, kPppIpv6 = 0x0057;
constexpr uint16_t kArpHardwareEthernet = 1;
constexpr uint8_t kToBroadcast = 1, kToMulticast = 2;  // packet types of cooked captures
constexpr uint8_t kPrivate = 2;                        // first byte of a made address: locally administered, unicast

uint16_t get16(const uint8_t* at) {
  return static_cast<uint16_t>(at[0] << 8 | at[1]);
}
void put16(uint8_t* at, uint32_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}

// Address families of the systems that write these captures: 2 is IPv4 everywhere, IPv6 is 10 (Linux), 24 (NetBSD,
// OpenBSD), 28 (FreeBSD) and 30 (Darwin).
uint16_t type_of_family(uint32_t family) {
  if (family == 2) return kTypeIpv4;
  return family == 10 || family == 24 || family == 28 || family == 30 ? kTypeIpv6 : kTypeNone;
}
uint16_t type_of_version(const uint8_t* data, uint32_t captured) {
  if (captured == 0) return kTypeNone;
  return data[0] >> 4 == 4 ? kTypeIpv4 : data[0] >> 4 == 6 ? kTypeIpv6 : kTypeNone;
}

// The PPP header: an address and a control field (ff 03), which may have been left out, and a protocol of two bytes, or
// of one, which is odd then (RFC 1661 section 6.5).
uint32_t ppp_bytes(const uint8_t* data, uint32_t captured) {
  const uint32_t framing = captured >= 2 && data[0] == 0xff && data[1] == 0x03 ? 2 : 0;
  if (captured <= framing) return framing + 2;
  return framing + ((data[framing] & 1) != 0 ? 1 : 2);
}

struct Cooked {
  uint8_t packet_type, address_bytes;
  uint16_t hardware, protocol;
  uint32_t interface;
  uint8_t address[8];
};

// What an Ethernet broadcast's header has, all of it.
bool is_plain_broadcast(const Cooked& c, bool wide) {
  return c.packet_type == kToBroadcast && c.hardware == kArpHardwareEthernet && c.address_bytes == 6 &&
         c.address[6] == 0 && c.address[7] == 0 && !wide;
}

}  // namespace

std::optional<LinkType> link_type_of(uint32_t number) {
  switch (static_cast<LinkType>(number)) {
    case LinkType::kNull:
    case LinkType::kEthernet:
    case LinkType::kPpp:
    case LinkType::kPppHdlc:
    case LinkType::kRaw:
    case LinkType::kLoop:
    case LinkType::kSll:
    case LinkType::kIpv4:
    case LinkType::kIpv6:
    case LinkType::kSll2:
      return number <= 0xffff ? std::optional(static_cast<LinkType>(number)) : std::nullopt;
  }
  // What systems call raw IP among themselves (DLT_RAW: Linux and others, OpenBSD), and some programs in files.
  if (number == 12 || number == 14) return LinkType::kRaw;
  return std::nullopt;
}

std::string to_string(LinkType type) {
  const char* name = "?";
  switch (type) {
    case LinkType::kNull:
      name = "NULL";
      break;
    case LinkType::kEthernet:
      name = "EN10MB";
      break;
    case LinkType::kPpp:
      name = "PPP";
      break;
    case LinkType::kPppHdlc:
      name = "PPP_SERIAL";
      break;
    case LinkType::kRaw:
      name = "RAW";
      break;
    case LinkType::kLoop:
      name = "LOOP";
      break;
    case LinkType::kSll:
      name = "LINUX_SLL";
      break;
    case LinkType::kIpv4:
      name = "IPV4";
      break;
    case LinkType::kIpv6:
      name = "IPV6";
      break;
    case LinkType::kSll2:
      name = "LINUX_SLL2";
      break;
  }
  return fmt::format("{} ({})", name, static_cast<unsigned>(type));
}

std::optional<uint32_t> LinkHeader::length(LinkType type, const uint8_t* data, uint32_t captured) {
  uint32_t bytes = 0;
  switch (type) {
    case LinkType::kEthernet:
      bytes = kBytes;
      break;
    case LinkType::kNull:
    case LinkType::kLoop:
      bytes = 4;
      break;
    case LinkType::kPpp:
    case LinkType::kPppHdlc:
      bytes = ppp_bytes(data, captured);
      break;
    case LinkType::kSll:
      bytes = 16;
      break;
    case LinkType::kSll2:
      bytes = 20;
      break;
    case LinkType::kRaw:
    case LinkType::kIpv4:
    case LinkType::kIpv6:
      break;
  }
  if (bytes > captured) return std::nullopt;
  return bytes;
}

void LinkHeader::to_ethernet(LinkType type, const uint8_t* data, uint32_t captured, uint8_t ethernet[kBytes]) {
  std::memset(ethernet, 0, kBytes);
  ethernet[0] = kPrivate;
  uint16_t protocol = kTypeNone;
  switch (type) {
    case LinkType::kEthernet:
      std::memcpy(ethernet, data, kBytes);
      return;
    case LinkType::kRaw:
      protocol = type_of_version(data, captured);
      break;
    case LinkType::kIpv4:
      protocol = kTypeIpv4;
      break;
    case LinkType::kIpv6:
      protocol = kTypeIpv6;
      break;
    case LinkType::kNull:
    case LinkType::kLoop: {
      // Families are small numbers: the byte order is the one that makes it small.
      const uint32_t big = uint32_t{get16(data)} << 16 | get16(data + 2);
      const uint32_t family = big >> 16 == 0 ? big : __builtin_bswap32(big);
      protocol = type_of_family(family);
      std::memcpy(ethernet + 2, data, 4);
      break;
    }
    case LinkType::kPpp:
    case LinkType::kPppHdlc: {
      const uint32_t bytes = ppp_bytes(data, captured);
      const uint32_t framing = bytes > 2 ? 2 : 0;  // a protocol alone takes two bytes at most
      const uint32_t number = bytes - framing == 1 ? data[framing] : get16(data + framing);
      protocol = number == kPppIpv4 ? kTypeIpv4 : number == kPppIpv6 ? kTypeIpv6 : kTypeNone;
      ethernet[1] = static_cast<uint8_t>(bytes);
      std::memcpy(ethernet + 2, data, bytes);
      break;
    }
    case LinkType::kSll:
    case LinkType::kSll2: {
      Cooked c{};
      if (type == LinkType::kSll) {
        c.packet_type = static_cast<uint8_t>(std::min<uint16_t>(get16(data), 127));
        c.hardware = get16(data + 2);
        c.address_bytes = static_cast<uint8_t>(std::min<uint16_t>(get16(data + 4), 255));
        std::memcpy(c.address, data + 6, 8);
        c.protocol = get16(data + 14);
      } else {
        c.protocol = get16(data);
        c.interface = uint32_t{get16(data + 4)} << 16 | get16(data + 6);
        c.hardware = get16(data + 8);
        c.packet_type = data[10];
        c.address_bytes = data[11];
        std::memcpy(c.address, data + 12, 8);
      }
      protocol = c.protocol;
      std::memcpy(ethernet + 6, c.address, 6);
      if (is_plain_broadcast(c, type == LinkType::kSll2)) {
        std::memset(ethernet, 0xff, 6);
        break;
      }
      const bool group = c.packet_type == kToBroadcast || c.packet_type == kToMulticast;
      if (type == LinkType::kSll) {
        ethernet[0] = static_cast<uint8_t>(c.packet_type << 1 | (group ? 1 : 0));
        put16(ethernet + 1, c.hardware);
        ethernet[3] = c.address_bytes;
        std::memcpy(ethernet + 4, c.address + 6, 2);
      } else {
        // 3 bits of packet type and 4 of length above the group bit.
        const auto length = static_cast<uint8_t>(std::min<uint8_t>(c.address_bytes, 15));
        ethernet[0] = static_cast<uint8_t>(length << 4 | (c.packet_type & 7) << 1 | (group ? 1 : 0));
        put16(ethernet + 1, c.hardware);
        ethernet[3] = static_cast<uint8_t>(c.interface >> 16);
        put16(ethernet + 4, c.interface);
      }
      break;
    }
  }
  put16(ethernet + 12, protocol);
}

uint32_t LinkHeader::from_ethernet(LinkType type, const uint8_t ethernet[kBytes], uint8_t own[kMostBytes]) {
  const uint16_t protocol = get16(ethernet + 12);
  switch (type) {
    case LinkType::kEthernet:
      std::memcpy(own, ethernet, kBytes);
      return kBytes;
    case LinkType::kRaw:
    case LinkType::kIpv4:
    case LinkType::kIpv6:
      return 0;
    case LinkType::kNull:
    case LinkType::kLoop:
      std::memcpy(own, ethernet + 2, 4);
      return 4;
    case LinkType::kPpp:
    case LinkType::kPppHdlc: {
      const uint32_t bytes = std::clamp<uint32_t>(ethernet[1], 1, 4);
      std::memcpy(own, ethernet + 2, bytes);
      return bytes;
    }
    case LinkType::kSll:
    case LinkType::kSll2:
      break;
  }
  Cooked c{};
  static constexpr std::array<uint8_t, 6> kAll = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  std::memcpy(c.address, ethernet + 6, 6);
  if (type == LinkType::kSll) {
    if (std::memcmp(ethernet, kAll.data(), 6) == 0) {
      c.packet_type = kToBroadcast;
      c.hardware = kArpHardwareEthernet;
      c.address_bytes = 6;
    } else {
      c.packet_type = ethernet[0] >> 1;
      c.hardware = get16(ethernet + 1);
      c.address_bytes = ethernet[3];
      std::memcpy(c.address + 6, ethernet + 4, 2);
    }
    put16(own, c.packet_type);
    put16(own + 2, c.hardware);
    put16(own + 4, c.address_bytes);
    std::memcpy(own + 6, c.address, 8);
    put16(own + 14, protocol);
    return 16;
  }
  put16(own, protocol);
  put16(own + 2, 0);
  own[4] = 0;
  std::memcpy(own + 5, ethernet + 3, 3);
  std::memcpy(own + 8, ethernet + 1, 2);
  own[10] = ethernet[0] >> 1 & 7;
  own[11] = ethernet[0] >> 4;
  std::memcpy(own + 12, c.address, 8);
  return 20;
}

}  // namespace sluice

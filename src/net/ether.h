// Ethernet II and IEEE 802.1Q headers as they lie in the frame.
#pragma once

#include <cstdint>

#include "net/types.h"

namespace sluice {

struct EtherHeader {
  MacAddress destination;
  MacAddress source;
  Be16 ether_type;
};

// What follows a tag protocol identifier: the tag's control information and the next EtherType.
struct VlanTag {
  Be16 tci;  // PCP 3 bits, DEI 1 bit, VLAN id 12 bits
  Be16 ether_type;
};

inline constexpr uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr uint16_t kEtherTypeArp = 0x0806;
inline constexpr uint16_t kEtherTypeVlan = 0x8100;  // 802.1Q
inline constexpr uint16_t kEtherTypeIpv6 = 0x86dd;
inline constexpr uint16_t kEtherTypeQinQ = 0x88a8;     // 802.1ad
inline constexpr uint16_t kEtherTypeOldQinQ = 0x9100;  // before 802.1ad, still met
inline constexpr uint16_t kEtherTypeFirst = 0x0600;    // below it the field is an 802.3 length
inline constexpr uint32_t kEtherHeaderBytes = 14;
inline constexpr uint32_t kVlanTagBytes = 4;
inline constexpr uint32_t kMaxVlanTags = 4;  // a fifth tag is not followed

static_assert(sizeof(EtherHeader) == kEtherHeaderBytes && sizeof(VlanTag) == kVlanTagBytes);

SLUICE_HD bool is_vlan_ether_type(uint16_t type) {
  return type == kEtherTypeVlan || type == kEtherTypeQinQ || type == kEtherTypeOldQinQ;
}

}  // namespace sluice

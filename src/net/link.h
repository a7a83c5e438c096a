// What stands before the network header of an Ethernet frame: 802.1Q and QinQ tags, and the EtherType behind them. The
// one place that reads them: any frame (read_link), with one tag at most (read_plain_link), a common frame without a
// branch (fast_link), and columns of common frames (fast_link_columns). Host and device; the fast ones host.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "net/bytes.h"
#include "net/ether.h"

namespace sluice {

struct Link {
  uint32_t l3 = 0;          // where the network header begins
  uint16_t ether_type = 0;  // of the network header
  uint16_t vlan_tci = 0;    // of the outermost tag
  uint8_t vlan_count = 0;
};

enum class LinkStatus : uint8_t {
  kOk,
  kCut,           // fewer than `l3` bytes are there, and at least as many are needed
  kTooManyVlans,  // more than kMaxVlanTags tags
};

// Reads no byte at or past `bytes`. Tags are counted as far as they were read, whatever the status; the EtherType is
// there with kOk alone. Precondition: `link` is as it is made.
[[gnu::always_inline]] SLUICE_HD LinkStatus read_link(const uint8_t* frame, uint32_t bytes, Link& link) {
  link.l3 = kEtherHeaderBytes;
  if (bytes < kEtherHeaderBytes) return LinkStatus::kCut;
  uint16_t type = load_be16(frame + kEtherHeaderBytes - 2);
  while (is_vlan_ether_type(type)) {
    if (link.vlan_count == kMaxVlanTags) return LinkStatus::kTooManyVlans;
    const uint8_t* tag = frame + link.l3;
    link.l3 += kVlanTagBytes;
    if (bytes < link.l3) return LinkStatus::kCut;
    if (link.vlan_count == 0) link.vlan_tci = load_be16(tag);
    type = load_be16(tag + 2);
    ++link.vlan_count;
  }
  link.ether_type = type;
  return LinkStatus::kOk;
}

// The same with at most one tag, an 802.1Q one, as most frames have it; others end at what is no EtherType of a network
// header. Precondition: 18 bytes are there.
[[gnu::always_inline]] SLUICE_HD Link read_plain_link(const uint8_t* frame) {
  Link link;
  const bool tagged = load_le16(frame + 12) == swap16(kEtherTypeVlan);
  link.l3 = tagged ? kEtherHeaderBytes + kVlanTagBytes : kEtherHeaderBytes;
  link.ether_type = load_be16(frame + (tagged ? 16 : 12));
  link.vlan_tci = tagged ? load_be16(frame + 14) : uint16_t{0};
  link.vlan_count = tagged ? 1 : 0;
  return link;
}

#if !defined(__CUDACC__)
inline constexpr uint32_t kFastL3 = kEtherHeaderBytes;  // where the network header of an untagged frame lies
inline constexpr uint32_t kFastMostTags = 2;

// What stands before the network header of a unicast Ethernet frame, if that is at most two tags.
struct FastLink {
  uint32_t l3;      // 14, 18 or 22
  uint32_t tci;     // of the outermost tag; 0: there is none
  uint32_t family;  // 4 or 6 by the EtherType, or 0: not such a frame, and the others hold nothing
};
// Reads the first 24 bytes at `frame`, whatever the frame's length is.
[[gnu::always_inline]] inline FastLink fast_link(const uint8_t* frame) {
  const uint64_t types = load_le64(frame + 12);  // type, tag, type, tag
  const auto is_tag = [](uint32_t type) {
    return (type == swap16(kEtherTypeVlan)) | (type == swap16(kEtherTypeQinQ)) | (type == swap16(kEtherTypeOldQinQ));
  };
  const auto outer = static_cast<uint16_t>(types), middle = static_cast<uint16_t>(types >> 32);
  const bool one = is_tag(outer);
  const bool two = one & is_tag(middle);
  FastLink link;
  link.l3 = kFastL3 + kVlanTagBytes * (uint32_t{one} + uint32_t{two});
  link.tci = one ? swap16(static_cast<uint16_t>(types >> 16)) : 0u;
  const uint16_t type = two ? load_le16(frame + 20) : one ? middle : outer;
  const uint32_t family = (type == swap16(kEtherTypeIpv4) ? 4u : 0u) | (type == swap16(kEtherTypeIpv6) ? 6u : 0u);
  link.family = (frame[0] & 1) != 0 ? 0 : family;
  return link;
}

#if defined(__x86_64__)
#define SLUICE_LINK_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
// fast_link of 16 frames, a lane each.
struct FastLinkColumns {
  using Lanes = uint32_t __attribute__((vector_size(64)));
  Lanes l3, tci;
  Lanes is_ipv4, is_ipv6;  // all ones, or 0; neither: not such a frame
};
// All ones where the type, in memory order, is a tag's.
template <typename Lanes>
SLUICE_LINK_AVX512 inline Lanes is_tag_type(const Lanes& type) {
  const auto is =
      (type == swap16(kEtherTypeVlan)) | (type == swap16(kEtherTypeQinQ)) | (type == swap16(kEtherTypeOldQinQ));
  return reinterpret_cast<Lanes>(is);
}
// `first` and `type_and_tag` are what the frames hold in bytes 0 to 3 and 12 to 15, in memory order. Only where `any`
// says that some lane has a tag, `behind(middle, last)` is to store bytes 16 to 19 and 20 to 23.
template <typename Lanes, typename Any, typename Behind>
SLUICE_LINK_AVX512 inline void fast_link_columns(const Lanes& first, const Lanes& type_and_tag, Any&& any,
                                                 Behind&& behind, FastLinkColumns& link) {
  Lanes type = type_and_tag & 0xffff;
  link.l3 = Lanes{} + kFastL3;
  link.tci = Lanes{};
  const Lanes tagged = is_tag_type(type);
  if (any(tagged)) {
    Lanes middle, last;
    behind(middle, last);
    const Lanes outer = type_and_tag >> 16;
    middle &= 0xffff;
    const Lanes both = tagged & is_tag_type(middle);
    link.l3 += (tagged & kVlanTagBytes) + (both & kVlanTagBytes);
    link.tci = tagged & ((outer >> 8 | outer << 8) & 0xffff);
    type = (type & ~tagged) | (middle & tagged & ~both) | (last & 0xffff & both);
  }
  const auto unicast = (first & 1) == 0;
  link.is_ipv4 = reinterpret_cast<Lanes>((type == swap16(kEtherTypeIpv4)) & unicast);
  link.is_ipv6 = reinterpret_cast<Lanes>((type == swap16(kEtherTypeIpv6)) & unicast);
}
#undef SLUICE_LINK_AVX512
#endif
#endif

}  // namespace sluice

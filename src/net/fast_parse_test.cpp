#include "net/fast_parse.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "net/edit.h"
#include "net/packet_builder.h"
#include "net/parse.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

// What the parser for every packet says of the same frame: whether it is common, by the words of fast_parse.h. `any`:
// with options, or a fragment, of IPv4. `header`: bytes of the network header.
bool common(const Headers& h, ParseStatus status, bool any, uint32_t header) {
  if (status != ParseStatus::kOk || h.vlan_count > kFastMostTags) return false;
  const bool six = h.key.family == 6;
  any = any && !six;
  const uint32_t allowed = Headers::kDontFragment | (any ? uint32_t{Headers::kIpv4Options} : 0u);
  if ((h.flags & ~allowed) != 0 || (!any && (h.key.bits & FlowKey::kFragment) != 0)) return false;
  if ((h.key.bits & FlowKey::kLaterFragment) != 0 && h.ip_bytes < header + 8) return false;
  const bool icmp = h.key.protocol == (six ? kProtocolIcmpv6 : kProtocolIcmp) && h.ip_bytes >= header + 8;
  if (!icmp && h.key.protocol != kProtocolTcp && h.key.protocol != kProtocolUdp) return false;
  if (six) {
    for (const uint64_t address : {h.key.src_hi, h.key.dst_hi}) {
      const uint64_t first = address >> 56;
      if (first == 0 || first >= 0xfe) return false;
    }
    return true;
  }
  for (const uint64_t address : {h.key.src_lo, h.key.dst_lo}) {
    const uint64_t first = address >> 24;
    if (first == 0 || first > 223 || first == 127 || first == 169) return false;
  }
  return true;
}

// "" when both agree. The frame lies in a block of exactly its size: reading past it shows.
template <bool kAny>
std::string difference_of(const Bytes& frame) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[frame.size()]);
  if (!frame.empty()) std::memcpy(exact.get(), frame.data(), frame.size());
  const auto bytes = static_cast<uint32_t>(frame.size());
  Headers h;
  const ParseStatus status = parse_ethernet(exact.get(), bytes, bytes, h);
  uint8_t start[24] = {};
  std::memcpy(start, exact.get(), std::min(frame.size(), sizeof start));
  const FastLink link = fast_link(start);
  bool fast = link.family != 0 && bytes > link.l3;
  FlowKey key;
  uint32_t ip_bytes = 0, hop = 0, header = kIpv6HeaderBytes;
  bool places_l4 = true;
  if (fast && link.family == 4) {
    Key4 found{};
    fast = parse_common4<kAny>(exact.get() + link.l3, bytes - link.l3, found, ip_bytes, hop, header);
    places_l4 = has_l4(found);
    key = unpack_key4(found);
  } else if (fast) {
    FastKey6 found{};
    fast = parse_fast6(exact.get() + link.l3, bytes - link.l3, found, ip_bytes, hop);
    key = unpack_key4({0, 0, found.ports, found.rest});
    key.family = 6;
    key.src_hi = found.source_high;
    key.src_lo = found.source_low;
    key.dst_hi = found.destination_high;
    key.dst_lo = found.destination_low;
  }
  // The reserved bit of IPv4's fragment word keeps a packet from being common; the other parser does not show it.
  const bool four = status == ParseStatus::kOk && h.key.family == 4;
  const bool reserved = !kAny && four && (exact[h.l3_offset + 6] & 0x80) != 0;
  const uint32_t parsed_header = four ? (exact[h.l3_offset] & 15u) * 4 : kIpv6HeaderBytes;
  if (fast != (common(h, status, kAny, parsed_header) && !reserved))
    return fast ? "taken, but not common" : "common, but not taken";
  if (!fast) return "";
  if (!(key == h.key)) return "another key";
  if (ip_bytes != h.ip_bytes) return "another length";
  if (static_cast<uint8_t>(hop) != h.ttl) return "another TTL";
  const uint8_t* ip = exact.get() + h.l3_offset;
  if (link.family == 4 && hop != load_le32(ip + kHopWord)) return "another word around the TTL";
  if (header != parsed_header) return "another header";
  const uint32_t l4 = places_l4 ? h.l3_offset + header : uint32_t{Headers::kNoOffset};
  if (link.l3 != h.l3_offset || h.l4_offset != l4) return "another place";
  if (link.tci != h.vlan_tci || (link.l3 - 14) / 4 != h.vlan_count) return "another tag";
  return "";
}

std::string difference(const Bytes& frame) {
  const std::string plain = difference_of<false>(frame);
  return plain.empty() ? difference_of<true>(frame) : plain;
}

// Whether a frame is taken.
template <bool kAny>
bool taken(const Bytes& frame) {
  uint8_t start[24] = {};
  std::memcpy(start, frame.data(), std::min(frame.size(), sizeof start));
  const FastLink link = fast_link(start);
  const auto bytes = static_cast<uint32_t>(frame.size());
  if (link.family == 0 || bytes <= link.l3) return false;
  Key4 key4{};
  FastKey6 key6{};
  uint32_t ip_bytes = 0, hop = 0, header = 0;
  return link.family == 4 ? parse_common4<kAny>(frame.data() + link.l3, bytes - link.l3, key4, ip_bytes, hop, header)
                          : parse_fast6(frame.data() + link.l3, bytes - link.l3, key6, ip_bytes, hop);
}

std::vector<Bytes> frames() {
  std::vector<Bytes> all;
  for (const uint32_t size : {42u, 46u, 60u, 61u, 128u, 1514u}) {
    for (const bool tcp : {false, true}) {
      auto b = tcp ? tcp4("10.1.2.3", "192.0.2.9").ports(1000, 80).tcp_flags(0x12)
                   : udp4("10.1.2.3", "192.0.2.9").ports(53, 5353);
      b.macs(MacAddress{{2, 0, 0, 0, 0, 9}}, MacAddress{{2, 0, 0, 0, 0, 8}}).dscp(46).ttl(7);
      if (size >= 60) b.size(size + 4);
      all.push_back(b.build());
      all.push_back(b.dont_fragment().build());
    }
    auto ping = icmp4("10.1.2.3", "192.0.2.9").icmp(3, 13).ttl(9).payload(size - 42);
    ping.macs(MacAddress{{2, 0, 0, 0, 0, 9}}, MacAddress{{2, 0, 0, 0, 0, 8}});
    all.push_back(ping.build());
    all.push_back(ping.vlan(7, 3).build());
    all.push_back(tcp4("10.1.2.3", "192.0.2.9").vlan(9, 1, 0x88a8).vlan(4).tcp_flags(2).size(size + 22).build());
    for (const unsigned tags : {0u, 1u, 2u}) {
      auto tcp = tcp6("2001:db8::1", "2001:db8::2").ports(1000, 80).tcp_flags(0x12).dscp(46).ttl(7).payload(size - 42);
      auto udp = udp6("2001:db8::1", "2001:db8::2").ports(53, 5353).ttl(255).payload(size - 42);
      auto echo = icmp6("2001:db8::1", "2001:db8::2").icmp(3, 13).payload(size - 42);
      for (PacketBuilder* b : {&tcp, &udp, &echo}) {
        for (unsigned t = 0; t < tags; ++t) b->vlan(static_cast<uint16_t>(5 + t), 2, t == 0 ? 0x9100 : 0x8100);
        all.push_back(b->build());
      }
    }
  }
  return all;
}

// Fragments, and packets with options. `damaged`: also those that are left to the other parser.
std::vector<Bytes> odd_frames(bool damaged) {
  const MacAddress to{{2, 0, 0, 0, 0, 9}}, from{{2, 0, 0, 0, 0, 8}};
  const uint8_t record[] = {7, 7, 4, 0, 0, 0, 0, 0}, alert[] = {148, 4, 0, 0}, nothing[] = {1, 1, 1, 1, 1, 1, 1, 0};
  std::vector<std::span<const uint8_t>> lists = {{}, record, alert, nothing};
  const uint8_t route[] = {131, 7, 4, 10, 0, 0, 1, 0}, strict[] = {137, 3, 4, 0}, cut[] = {7, 9, 4, 0},
                none[] = {7, 1, 4, 0};
  if (damaged) lists.insert(lists.end(), {route, strict, cut, none});
  std::vector<Bytes> all;
  for (const std::span<const uint8_t> list : lists) {
    for (const uint32_t offset : {0u, 8u, 16u, 1480u}) {
      for (const bool more : {false, true}) {
        if (list.empty() && offset == 0 && !more) continue;
        for (const unsigned tags : {0u, 1u, 2u}) {
          auto tcp = tcp4("10.1.2.3", "192.0.2.9").ports(1000, 80).tcp_flags(0x12).dscp(46).ttl(7).payload(24);
          auto udp = udp4("10.1.2.3", "192.0.2.9").ports(53, 5353).dont_fragment().payload(damaged ? 3 : 24);
          auto ping = icmp4("10.1.2.3", "192.0.2.9").icmp(3, 13).payload(24);
          for (PacketBuilder* b : {&tcp, &udp, &ping}) {
            if (!damaged && b == &tcp && offset == 8) continue;
            b->macs(to, from);
            for (unsigned t = 0; t < tags; ++t) b->vlan(static_cast<uint16_t>(5 + t), 2, t == 0 ? 0x9100 : 0x8100);
            if (!list.empty()) b->ipv4_options(list);
            if (offset != 0 || more) b->fragment(offset, more);
            all.push_back(b->build());
          }
        }
      }
    }
  }
  return all;
}

// With the right checksum where its header is whole.
void mend(Bytes& frame) {
  const uint32_t header = std::max(20u, (frame[14] & 15u) * 4);
  if (frame[12] == 8 && frame.size() >= 14 + header)
    store_be16(frame.data() + 24, ipv4_header_checksum(frame.data() + 14, header));
}

TEST(FastParse, TakesFragmentsAndOptionsWhereAsked) {
  for (const Bytes& frame : odd_frames(false)) {
    EXPECT_TRUE(taken<true>(frame)) << frame.size();
    EXPECT_FALSE(taken<false>(frame)) << frame.size();
  }
  for (const Bytes& frame : odd_frames(true)) EXPECT_EQ(difference(frame), "") << frame.size();
}

TEST(FastParse, TakesCommonPackets) {
  for (const Bytes& frame : frames()) {
    EXPECT_TRUE(taken<false>(frame)) << frame.size();
    EXPECT_TRUE(taken<true>(frame)) << frame.size();
    EXPECT_EQ(difference(frame), "") << frame.size();
  }
}

TEST(FastParse, LeavesEveryOtherKind) {
  const MacAddress to{{2, 0, 0, 0, 0, 9}}, from{{2, 0, 0, 0, 0, 8}};
  const uint8_t options[] = {1, 1, 1, 0};
  const std::vector<Bytes> others = {
      udp4("10.1.2.3", "192.0.2.9").macs(to, from).vlan(5).vlan(6).vlan(7).build(),
      udp4("10.1.2.3", "192.0.2.9").macs(to, from).ipv4_options(options).build(),
      udp4("10.1.2.3", "192.0.2.9").macs(to, from).fragment(0, true).build(),
      udp4("10.1.2.3", "192.0.2.9").macs(to, from).fragment(8, false).payload(30).build(),
      udp4("10.1.2.3", "192.0.2.9").macs(to, from).bad_ip_checksum().build(),
      udp4("10.1.2.3", "192.0.2.9").macs(MacAddress{{255, 255, 255, 255, 255, 255}}, from).build(),
      udp4("127.0.0.1", "192.0.2.9").macs(to, from).build(),
      udp4("10.1.2.3", "224.0.0.9").macs(to, from).build(),
      udp4("169.254.2.3", "192.0.2.9").macs(to, from).build(),
      ip4("10.1.2.3", "192.0.2.9", kProtocolGre).macs(to, from).payload(30).build(),
      udp6("2001:db8::1", "2001:db8::2").macs(to, from).hop_by_hop().build(),
      udp6("2001:db8::1", "2001:db8::2").macs(to, from).fragment(0, true).build(),
      udp6("fe80::1", "2001:db8::2").macs(to, from).build(),
      udp6("2001:db8::1", "ff02::2").macs(to, from).build(),
      PacketBuilder::ether(0x0806).macs(to, from).payload(60).build(),
  };
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_FALSE(taken<false>(others[i])) << i;
    EXPECT_EQ(difference(others[i]), "") << i;
  }
}

TEST(FastParse, EveryBitOfAHeaderMatters) {
  std::vector<Bytes> all = frames();
  const std::vector<Bytes> odd = odd_frames(true);
  all.insert(all.end(), odd.begin(), odd.end());
  for (const Bytes& frame : all) {
    if (frame.size() > 90) continue;
    for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
      Bytes changed = frame;
      changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      ASSERT_EQ(difference(changed), "") << frame.size() << " bit " << bit;
      if (frame[12] != 8) continue;
      mend(changed);
      ASSERT_EQ(difference(changed), "") << frame.size() << " bit " << bit << ", checksum mended";
    }
    for (size_t size = 0; size <= frame.size(); ++size) {
      ASSERT_EQ(difference(Bytes(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size))), "") << size;
    }
  }
}

TEST(FastParse, AgreesWithTheParserForEveryPacket) {
  auto all = frames();
  const auto odd = odd_frames(true);
  all.insert(all.end(), odd.begin(), odd.end());
  EXPECT_TRUE(rc::check("mutations", [&] {
    for (int round = 0; round < 20; ++round) {
      Bytes frame = *rc::gen::elementOf(all);
      const auto edits = *rc::gen::inRange(0, 4);
      for (int i = 0; i < edits; ++i)
        frame[*rc::gen::inRange<size_t>(0, std::min<size_t>(42, frame.size()))] = *rc::gen::arbitrary<uint8_t>();
      if (*rc::gen::inRange(0, 4) != 0) mend(frame);
      frame.resize(*rc::gen::inRange<size_t>(frame.size() / 2, frame.size() + 1));
      RC_ASSERT(difference(frame) == "");
    }
  }));
}

}  // namespace
}  // namespace sluice

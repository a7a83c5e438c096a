#include "net/ipv4_fragment.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <vector>

#include "net/packet_builder.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

uint32_t header_of(const Bytes& p) {
  return (p[0] & 15u) * 4;
}

// RFC 791 section 3.2 as it is written there: the first fragment, and the rest, which is fragmented in turn.
std::vector<Bytes> by_the_rfc(const Bytes& datagram, uint32_t mtu) {
  if (datagram.size() <= mtu) return {datagram};
  const uint32_t ihl = header_of(datagram);
  const uint32_t nfb = (mtu - ihl) / 8;
  const uint16_t field = load_be16(&datagram[6]);
  auto finish = [](Bytes& p, uint16_t fragment) {
    store_be16(&p[2], static_cast<uint16_t>(p.size()));
    store_be16(&p[6], fragment);
    store_be16(&p[10], ipv4_header_checksum(p.data(), header_of(p)));
  };
  Bytes first(datagram.begin(), datagram.begin() + ihl + nfb * 8);
  finish(first, field | kIpv4MoreFragments);
  Bytes rest(datagram.begin(), datagram.begin() + 20);
  for (uint32_t at = 20; at < ihl && datagram[at] != 0;) {
    const uint32_t length = datagram[at] == 1 ? 1 : datagram[at + 1];
    if ((datagram[at] & 128) != 0) rest.insert(rest.end(), &datagram[at], &datagram[at] + length);
    at += length;
  }
  while (rest.size() % 4 != 0) rest.push_back(0);
  rest[0] = static_cast<uint8_t>(0x40 | rest.size() / 4);
  rest.insert(rest.end(), datagram.begin() + ihl + nfb * 8, datagram.end());
  finish(rest, static_cast<uint16_t>(field + nfb));
  std::vector<Bytes> all = by_the_rfc(rest, mtu);
  all.insert(all.begin(), first);
  return all;
}

FragmentVerdict verdict(const Bytes& p, uint32_t mtu, bool honour_df = true) {
  return Ipv4Fragments().start(p.data(), static_cast<uint32_t>(p.size()), mtu, honour_df);
}

std::vector<Bytes> cut(const Bytes& datagram, uint32_t mtu, bool honour_df = true) {
  Ipv4Fragments fragments;
  if (fragments.start(datagram.data(), static_cast<uint32_t>(datagram.size()), mtu, honour_df) != FragmentVerdict::kCut)
    return {datagram};
  std::vector<Bytes> all;
  for (Ipv4Fragments::Piece piece; fragments.next(piece);) {
    Bytes p(piece.header_bytes);
    fragments.write_header(piece, p.data());
    const auto from = datagram.begin() + fragments.first_header_bytes() + piece.from;
    p.insert(p.end(), from, from + piece.bytes);
    all.push_back(p);
  }
  return all;
}

// What the receiver makes of them: payload by offset, and whether the end is there.
Bytes together(const std::vector<Bytes>& fragments) {
  std::map<uint32_t, Bytes> pieces;
  for (const Bytes& f : fragments) {
    pieces[(load_be16(&f[6]) & kIpv4OffsetMask) * 8u] = Bytes(f.begin() + header_of(f), f.end());
  }
  Bytes payload;
  for (const auto& [offset, bytes] : pieces) {
    EXPECT_EQ(offset, payload.size());
    payload.insert(payload.end(), bytes.begin(), bytes.end());
  }
  return payload;
}

TEST(Ipv4Fragments, Rfc791Section32TheFirstHasTheOptionsAndTheOthersTheCopiedOnes) {
  // Record route (not copied), No Operation, router alert (copied), End.
  const uint8_t options[] = {7, 7, 4, 0, 0, 0, 0, 1, 148, 4, 0, 0};
  const Bytes packet =
      udp4("10.0.0.1", "192.0.2.7").id(0xbeef).ttl(9).ipv4_options(options).payload(120).no_link().build();
  ASSERT_EQ(packet.size(), 160u);
  const auto all = cut(packet, 100);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].size(), 32u + 64);
  EXPECT_EQ(Bytes(all[0].begin() + 20, all[0].begin() + 32), Bytes(options, options + 12));
  EXPECT_EQ(all[1].size(), 24u + 64);
  EXPECT_EQ(Bytes(all[1].begin() + 20, all[1].begin() + 24), (Bytes{148, 4, 0, 0}));
  for (const Bytes& p : all) {
    EXPECT_EQ(load_be16(&p[4]), 0xbeef);  // RFC 6864: the ID is that of the datagram
    EXPECT_EQ(p[8], 9);
    EXPECT_TRUE(ipv4_checksum_ok(p.data(), header_of(p)));
  }
  EXPECT_EQ(load_be16(&all[0][6]), kIpv4MoreFragments);
  EXPECT_EQ(load_be16(&all[1][6]), 8);
  EXPECT_EQ(together(all), Bytes(packet.begin() + 32, packet.end()));
}

TEST(Ipv4Fragments, SaysWhyItDoesNotCut) {
  const PacketBuilder udp = udp4("10.0.0.1", "192.0.2.7").payload(200).no_link();
  const Bytes packet = udp.build();
  EXPECT_EQ(verdict(packet, 228), FragmentVerdict::kFits);
  EXPECT_EQ(verdict(packet, 227), FragmentVerdict::kCut);
  EXPECT_EQ(verdict(packet, 28), FragmentVerdict::kCut);
  EXPECT_EQ(verdict(packet, 27), FragmentVerdict::kNoRoom);
  Bytes df = PacketBuilder(udp).dont_fragment().build();
  EXPECT_EQ(verdict(df, 100), FragmentVerdict::kDontFragment);
  EXPECT_EQ(verdict(df, 100, false), FragmentVerdict::kCut);
  for (const Bytes& p : cut(df, 100, false))
    EXPECT_NE(load_be16(&p[6]) & kIpv4DontFragment, 0);  // RFC 6864: never cleared
  EXPECT_EQ(verdict(Bytes(packet.begin(), packet.begin() + 19), 100), FragmentVerdict::kBadHeader);
  EXPECT_EQ(verdict(PacketBuilder(udp).ihl(4).build(), 100), FragmentVerdict::kBadHeader);
  EXPECT_EQ(verdict(PacketBuilder(udp).total_length(19).build(), 10), FragmentVerdict::kBadHeader);
  const uint8_t wrong[] = {1, 7, 9, 4};
  Ipv4Fragments fragments;
  const Bytes bad = PacketBuilder(udp).ipv4_options(wrong).build();
  EXPECT_EQ(fragments.start(bad.data(), static_cast<uint32_t>(bad.size()), 100, true), FragmentVerdict::kBadOptions);
  EXPECT_EQ(fragments.option_at(), 21u);
}

TEST(Ipv4Fragments, NoPieceStartsPastTheOffsetField) {
  // The last offset that 13 bits hold is 65,528 bytes.
  const PacketBuilder udp = udp4("10.0.0.1", "192.0.2.7").payload(160).no_link();
  EXPECT_EQ(verdict(PacketBuilder(udp).fragment(65528 - 80, false).build(), 100), FragmentVerdict::kCut);
  EXPECT_EQ(verdict(PacketBuilder(udp).fragment(65528 - 72, false).build(), 100), FragmentVerdict::kPastEnd);
  EXPECT_EQ(verdict(PacketBuilder(udp).fragment(65528, false).build(), 100), FragmentVerdict::kPastEnd);
}

// Valid lists of options of all sorts.
Bytes some_options() {
  Bytes list;
  const int count = *rc::gen::inRange(0, 5);
  for (int i = 0; i < count; ++i) {
    const uint8_t type = *rc::gen::element<uint8_t>(1, 7, 68, 130, 148, 25, 205);
    const int length = type == 1 ? 1 : *rc::gen::inRange(2, 14);
    if (list.size() + static_cast<size_t>(length) > 40) break;
    list.push_back(type);
    if (type == 1) continue;
    list.push_back(static_cast<uint8_t>(length));
    for (int k = 2; k < length; ++k) list.push_back(static_cast<uint8_t>(16 * i + k));
  }
  return list;
}

TEST(Ipv4Fragments, AreThoseOfTheRfcsOwnAlgorithm) {
  EXPECT_TRUE(rc::check([] {
    const Bytes options = some_options();
    const auto offset = static_cast<uint32_t>(*rc::gen::inRange(0, 500)) * 8;
    const bool more = *rc::gen::arbitrary<bool>();
    const auto payload = static_cast<size_t>(*rc::gen::inRange(1, 3000));
    const auto mtu = static_cast<uint32_t>(*rc::gen::inRange(68, 1600));
    PacketBuilder builder = ip4("10.0.0.1", "192.0.2.7", 99).ipv4_options(options).payload(payload).no_link();
    if (offset != 0 || more) builder.fragment(offset, more);
    const Bytes packet = builder.id(77).build();
    const auto got = cut(packet, mtu);
    const auto want = by_the_rfc(packet, mtu);
    RC_ASSERT(got == want);
    // Each in turn meets a smaller link, and the receiver sees none of it.
    std::vector<Bytes> smaller;
    for (const Bytes& f : got) {
      RC_ASSERT(f.size() <= mtu);
      for (Bytes& g : cut(f, 68)) smaller.push_back(std::move(g));
    }
    const auto twice = cut(packet, 68);
    Bytes a, b;
    for (const Bytes& f : smaller) a.insert(a.end(), f.begin() + header_of(f), f.end());
    for (const Bytes& f : twice) b.insert(b.end(), f.begin() + header_of(f), f.end());
    RC_ASSERT(a == b);
    for (const Bytes& f : smaller) {
      const bool last = &f == &smaller.back();
      RC_ASSERT((last || (f.size() - header_of(f)) % 8 == 0));
      RC_ASSERT(((load_be16(&f[6]) & kIpv4MoreFragments) != 0) == (!last || more));
    }
  }));
}

}  // namespace
}  // namespace sluice

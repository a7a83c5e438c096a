#include <gtest/gtest.h>

#include "elements/testing.h"

namespace sluice {
namespace {

using testing::expect;

std::string set(unsigned dscp) {
  return "IPInput -> SetIPDSCP(" + std::to_string(dscp) + ")";
}

// Every codepoint, over some of each field that it stands beside.
TEST(SetIPDSCP, WritesTheCodepointAndNothingElse) {
  for (unsigned dscp = 0; dscp < 64; ++dscp) {
    for (unsigned ecn = 0; ecn < 4; ++ecn) {
      const auto before = static_cast<uint8_t>(dscp * 37 % 64);
      const auto v4 = [&](uint8_t d) {
        return tcp4("10.0.0.1", "192.0.2.7").dscp(d).ecn(static_cast<uint8_t>(ecn)).id(static_cast<uint16_t>(dscp));
      };
      const auto v6 = [&](uint8_t d) {
        return udp6("2001:db8::1", "2001:db8::2").dscp(d).ecn(static_cast<uint8_t>(ecn)).flow_label(0xabcde);
      };
      for (const auto& [sent, wanted] : {std::pair{v4(before).build(), v4(static_cast<uint8_t>(dscp)).build()},
                                         std::pair{v6(before).build(), v6(static_cast<uint8_t>(dscp)).build()}}) {
        const auto p = expect(sent).through(set(dscp)).passes();
        ASSERT_EQ(p.bytes(), wanted) << dscp << " " << ecn;
        ASSERT_EQ(p.packet.key.dscp, dscp);
      }
    }
  }
}

TEST(SetIPDSCP, FindsTheHeaderBehindTagsAndOptions) {
  const std::vector<uint8_t> options(8, 1);  // no operation
  const auto packet = [&](uint8_t dscp) {
    return udp4("10.0.0.1", "192.0.2.7").vlan(7).ipv4_options(options).dscp(dscp).build();
  };
  EXPECT_EQ(expect(packet(0)).through(set(46)).passes().bytes(), packet(46));
  const auto bare = [&](uint8_t dscp) { return udp4("10.0.0.1", "192.0.2.7").no_link().dscp(dscp).build(); };
  EXPECT_EQ(expect(bare(3)).through("CheckIPHeader -> SetIPDSCP(46)").passes().bytes(), bare(46));
}

TEST(SetIPDSCP, LetsPassWhatHasNoHeader) {
  const auto arp = std::vector<uint8_t>(60, 9);
  EXPECT_EQ(expect(arp).through("MarkIPHeader(14) -> SetIPDSCP(46)").passes().bytes(), arp);
  // Its header is cut off before the checksum: bytes that are not of the packet are not touched.
  const auto whole = udp4("10.0.0.1", "192.0.2.7").build();
  for (uint32_t length : {14u, 25u, 26u}) {
    auto p = expect(whole).through("IPInput -> Truncate(" + std::to_string(length) + ") -> SetIPDSCP(46)").passes();
    const bool there = length == 26;
    EXPECT_EQ(p.packet.key.dscp, there ? 46 : 0) << length;
    p.packet.end = static_cast<uint32_t>(whole.size());
    EXPECT_EQ(p.bytes() == whole, !there) << length;
  }
}

// Later elements go by what the packet says now.
TEST(SetIPDSCP, IsSeenByPatternsAndListsBehindIt) {
  for (const PacketBuilder& packet : {udp4("10.0.0.1", "192.0.2.7"), udp6("2001:db8::1", "2001:db8::2")}) {
    expect(packet).through(set(46) + " -> IPFilter(allow ip dscp 46)").passes();
    expect(packet).through(set(45) + " -> IPFilter(allow ip dscp 46)").drops(DropReason::kClassifierNoMatch);
    expect(packet).through(set(46) + " -> IPFilter(allow ip dscp 0)").drops(DropReason::kClassifierNoMatch);
  }
}

TEST(SetIPDSCP, TakesSixBits) {
  EXPECT_EQ(testing::findings("InfiniteSource -> IPInput -> SetIPDSCP(63) -> Discard;"), "");
  EXPECT_NE(testing::findings("InfiniteSource -> IPInput -> SetIPDSCP(64) -> Discard;").find("'64'"),
            std::string::npos);
  EXPECT_NE(testing::findings("InfiniteSource -> SetIPDSCP(1) -> Discard;").find("CheckIPHeader"), std::string::npos);
}

}  // namespace
}  // namespace sluice

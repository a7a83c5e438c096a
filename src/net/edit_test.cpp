#include "net/edit.h"

#include <gtest/gtest.h>

#include <vector>

#include "net/packet_builder.h"
#include "net/parse.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(Edit, DecrementTtlEqualsAPacketBuiltWithOneLess) {
  for (unsigned ttl = 1; ttl < 256; ++ttl) {
    Bytes frame = udp4("10.0.0.1", "192.0.2.7").ttl(static_cast<uint8_t>(ttl)).id(0x1234).build();
    EXPECT_EQ(decrement_ttl_ipv4(frame.data() + 14), ttl - 1);
    EXPECT_EQ(frame, udp4("10.0.0.1", "192.0.2.7").ttl(static_cast<uint8_t>(ttl - 1)).id(0x1234).build());
  }
}

TEST(Edit, ATtlOfZeroStays) {
  const Bytes frame = udp4("10.0.0.1", "192.0.2.7").ttl(0).build();
  Bytes edited = frame;
  EXPECT_EQ(decrement_ttl_ipv4(edited.data() + 14), 0);
  EXPECT_EQ(edited, frame);
  const Bytes frame6 = udp6("2001:db8::1", "2001:db8::2").ttl(0).build();
  Bytes edited6 = frame6;
  EXPECT_EQ(decrement_hop_limit_ipv6(edited6.data() + 14), 0);
  EXPECT_EQ(edited6, frame6);
}

TEST(Edit, DecrementHopLimitTouchesNothingElse) {
  for (unsigned ttl = 1; ttl < 256; ++ttl) {
    Bytes frame = udp6("2001:db8::1", "2001:db8::2").ttl(static_cast<uint8_t>(ttl)).build();
    EXPECT_EQ(decrement_hop_limit_ipv6(frame.data() + 14), ttl - 1);
    EXPECT_EQ(frame, udp6("2001:db8::1", "2001:db8::2").ttl(static_cast<uint8_t>(ttl - 1)).build());
  }
}

// RFC 2474 section 3 and RFC 3168 section 5: DSCP is six bits, ECN is not ours. Every DSCP over every DSCP and ECN.
TEST(Edit, RemarkingKeepsEcnAndEveryOtherBit) {
  for (unsigned before = 0; before < 64; ++before) {
    for (unsigned ecn = 0; ecn < 4; ++ecn) {
      for (unsigned after = 0; after < 64; after += 7) {
        auto v4 = [&](unsigned dscp) {
          return tcp4("10.0.0.1", "192.0.2.7").dscp(static_cast<uint8_t>(dscp)).ecn(static_cast<uint8_t>(ecn)).build();
        };
        auto v6 = [&](unsigned dscp) {
          return tcp6("2001:db8::1", "2001:db8::2")
              .dscp(static_cast<uint8_t>(dscp))
              .ecn(static_cast<uint8_t>(ecn))
              .flow_label(0xfffff)
              .build();
        };
        Bytes frame = v4(before);
        set_dscp_ipv4(frame.data() + 14, static_cast<uint8_t>(after));
        ASSERT_EQ(frame, v4(after));
        frame = v6(before);
        set_dscp_ipv6(frame.data() + 14, static_cast<uint8_t>(after));
        ASSERT_EQ(frame, v6(after));
      }
    }
  }
  Bytes frame = tcp4("10.0.0.1", "192.0.2.7").build();
  set_dscp_ipv4(frame.data() + 14, 0xff);  // bits above the sixth do not reach ECN or anything else
  EXPECT_EQ(frame, tcp4("10.0.0.1", "192.0.2.7").dscp(63).build());
}

TEST(Edit, MacsAreWrittenInWireOrder) {
  const MacAddress to{{1, 2, 3, 4, 5, 6}};
  const MacAddress from{{7, 8, 9, 10, 11, 12}};
  Bytes frame = udp4("10.0.0.1", "192.0.2.7").build();
  set_macs(frame.data(), to, from);
  EXPECT_EQ(frame, udp4("10.0.0.1", "192.0.2.7").macs(to, from).build());
}

}  // namespace
}  // namespace sluice

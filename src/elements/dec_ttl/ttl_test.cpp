#include <gtest/gtest.h>

#include "elements/testing.h"
#include "net/checksum.h"

namespace sluice {
namespace {

using testing::expect;

TEST(DecIPTTL, DecrementsAndKeepsTheChecksumRight) {
  for (int ttl = 2; ttl < 256; ++ttl) {
    const auto p =
        expect(udp4("10.0.0.1", "192.0.2.7").ttl(static_cast<uint8_t>(ttl)).id(static_cast<uint16_t>(ttl * 257)))
            .through("IPInput -> DecIPTTL")
            .passes();
    const auto bytes = p.bytes();
    EXPECT_EQ(bytes[14 + 8], ttl - 1);
    EXPECT_TRUE(ipv4_checksum_ok(bytes.data() + 14, 20)) << ttl;
    EXPECT_EQ(p.packet.ttl, ttl - 1);
  }
  EXPECT_EQ(expect(udp6("2001:db8::1", "2001:db8::2").ttl(9)).through("IPInput -> DecIPTTL").passes().bytes()[14 + 7],
            8);
}

TEST(DecIPTTL, DropsWhatMustNotLiveOn) {
  for (uint8_t ttl : {0, 1}) {
    const auto frame = udp4("10.0.0.1", "192.0.2.7").ttl(ttl).build();
    EXPECT_EQ(expect(frame).through("IPInput -> DecIPTTL").drops(DropReason::kTtlExpired).leaves_by(1).bytes(), frame);
    expect(udp6("2001:db8::1", "2001:db8::2").ttl(ttl))
        .through("IPInput -> DecIP6HLIM")
        .drops(DropReason::kHopLimitExpired)
        .leaves_by(1);
  }
  expect(udp4("10.0.0.1", "192.0.2.7").ttl(2))
      .through("IPInput -> DecIPTTL -> DecIPTTL")
      .drops(DropReason::kTtlExpired);
}

TEST(DecIPTTL, MulticastCanPassUnchanged) {
  const auto frame = udp4("10.0.0.1", "224.0.0.5").ttl(1).build();
  EXPECT_EQ(expect(frame).through("CheckIPHeader(14) -> DecIPTTL(MULTICAST false)").passes().bytes(), frame);
  expect(frame).through("CheckIPHeader(14) -> DecIPTTL").drops(DropReason::kTtlExpired);
}

}  // namespace
}  // namespace sluice

#include <gtest/gtest.h>

#include "elements/testing.h"
#include "net/text.h"

namespace sluice {
namespace {

using testing::expect;

TEST(GetIPAddress, TakesFourBytesOfThePacket) {
  EXPECT_EQ(expect(udp4("10.0.0.1", "192.0.2.7")).through("GetIPAddress(30)").passes().packet.key.dst_lo,
            *parse_ipv4("192.0.2.7"));
  EXPECT_EQ(expect(udp4("10.0.0.1", "192.0.2.7")).through("Strip(14) -> GetIPAddress(12)").passes().packet.key.dst_lo,
            *parse_ipv4("10.0.0.1"));
  EXPECT_EQ(expect({1, 2, 3, 4, 5}).through("GetIPAddress(OFFSET 1)").passes().packet.key.dst_lo, 0x02030405u);
}

TEST(GetIPAddress, TakesAnAddressOfTheHeader) {
  EXPECT_EQ(expect(udp4("10.0.0.1", "192.0.2.7")).through("IPInput -> GetIPAddress(IP src)").passes().packet.key.dst_lo,
            *parse_ipv4("10.0.0.1"));
  EXPECT_EQ(expect(udp4("10.0.0.1", "192.0.2.7")).through("IPInput -> GetIPAddress(IP dst)").passes().packet.key.dst_lo,
            *parse_ipv4("192.0.2.7"));
}

TEST(GetIPAddress, LookupsGoByIt) {
  const std::string routes = "r :: IPLookup(10.0.0.0/8 0, 192.0.2.0/24 1); r[1] -> Discard;";
  expect(udp4("10.0.0.1", "192.0.2.7")).through("GetIPAddress(30) -> r", routes).leaves_by(1);
  expect(udp4("10.0.0.1", "192.0.2.7")).through("GetIPAddress(26) -> r", routes).leaves_by(0);
}

TEST(GetIPAddress, DropsWhatIsTooShort) {
  expect(std::vector<uint8_t>(34)).through("GetIPAddress(30)").passes();
  expect(std::vector<uint8_t>(33)).through("GetIPAddress(30)").drops(DropReason::kIpv4TooShort);
  expect(std::vector<uint8_t>(33)).captured_of(60).through("GetIPAddress(30)").drops(DropReason::kCapturedTooShort);
  expect(udp4("10.0.0.1", "192.0.2.7"))
      .through("IPInput -> Truncate(20) -> GetIPAddress(IP dst)")
      .drops(DropReason::kCapturedTooShort);
  expect(udp4("10.0.0.1", "192.0.2.7"))
      .through("IPInput -> Strip(40) -> GetIPAddress(IP dst)")
      .drops(DropReason::kIpv4TooShort);
}

TEST(GetIPAddress, SaysWhatItCannotHave) {
  EXPECT_NE(testing::findings_of("GetIPAddress()").find("OFFSET or IP is needed, and not both"), std::string::npos);
  EXPECT_NE(testing::findings_of("GetIPAddress(16, IP src)").find("not both"), std::string::npos);
  EXPECT_NE(testing::findings_of("GetIPAddress(16, 4)").find("ANNO cannot name another place"), std::string::npos);
  EXPECT_NE(testing::findings_of("GetIPAddress(IP src)").find("network header"), std::string::npos);
}

}  // namespace
}  // namespace sluice

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "elements/ip_input/stage.h"
#include "elements/testing.h"

namespace sluice {
namespace {

using testing::expect;

PacketBuilder good4() {
  return udp4("10.0.0.1", "192.0.2.7").ports(1000, 53).ttl(7);
}
PacketBuilder good6() {
  return udp6("2001:db8::1", "2001:db8::2").ports(1000, 53);
}

TEST(IPInput, SetsRegistersFromTheFrame) {
  const auto p = expect(good4().vlan(5).payload(20)).through("IPInput").passes();
  EXPECT_EQ(p.packet.l3, 18);
  EXPECT_EQ(p.packet.l4, 38);
  EXPECT_EQ(p.packet.key.family, 4);
  EXPECT_EQ(p.packet.key.dst_lo, 0xc0000207u);
  EXPECT_EQ(p.packet.key.dst_port, 53);
  EXPECT_EQ(p.packet.ttl, 7);
  EXPECT_EQ(p.packet.vlan_count, 1);
  EXPECT_EQ(p.packet.data, 0);
  EXPECT_EQ(expect(good6()).through("IPInput").passes().packet.key.family, 6);
}

TEST(IPInput, TrimsEthernetPadding) {
  const auto frame = good4().payload(0).size(60).build();
  ASSERT_EQ(frame.size(), 60u);
  const auto p = expect(frame).through("IPInput").passes();
  EXPECT_EQ(p.packet.end, 42u);
  EXPECT_EQ(p.packet.wire_end, 42u);
}

TEST(IPInput, DropsWhatIsNotWellFormed) {
  expect(PacketBuilder::ether(0x0806).payload(28)).through("IPInput").drops(DropReason::kNotIp).leaves_by(1);
  expect(good4().truncate(13)).through("IPInput").drops(DropReason::kTruncatedL2);
  expect(good4().truncate(30)).through("IPInput").drops(DropReason::kIpv4TooShort);
  expect(good4().bad_ip_checksum()).through("IPInput").drops(DropReason::kIpv4BadChecksum);
  expect(good4().ip_version(5)).through("IPInput").drops(DropReason::kIpv4BadVersion);
  expect(good4().total_length(10)).through("IPInput").drops(DropReason::kIpv4BadTotalLength);
  expect(good4().total_length(1400)).through("IPInput").drops(DropReason::kIpv4TruncatedFrame);
  expect(good6().payload_length(1400)).through("IPInput").drops(DropReason::kIpv6BadPayloadLength);
  expect(good6().ip_version(7)).through("IPInput").drops(DropReason::kIpv6BadVersion);
  expect(good6().routing(0, 1)).through("IPInput").drops(DropReason::kIpv6RoutingType0);
  expect(good4().truncate(30)).captured_of(60).through("IPInput").drops(DropReason::kCapturedTooShort);
}

TEST(IPInput, DropsWhatARouterMustNotForward) {
  expect(udp4("127.0.0.1", "192.0.2.7")).through("IPInput").drops(DropReason::kMartianSource);
  expect(udp4("10.0.0.1", "127.0.0.1")).through("IPInput").drops(DropReason::kMartianDestination);
  expect(udp4("10.0.0.1", "224.0.0.5")).through("IPInput").drops(DropReason::kMulticastDestination);
  expect(udp4("10.0.0.1", "255.255.255.255")).through("IPInput").drops(DropReason::kMulticastDestination);
  expect(udp6("fe80::1", "2001:db8::2")).through("IPInput").drops(DropReason::kMartianSource);
  expect(good4().macs(MacAddress{{255, 255, 255, 255, 255, 255}}, MacAddress{{2, 0, 0, 0, 0, 1}}))
      .through("IPInput")
      .drops(DropReason::kLinkBroadcast);
  const uint8_t source_route[] = {131, 7, 4, 10, 0, 0, 9};
  expect(good4().ipv4_options(source_route)).through("IPInput").drops(DropReason::kSourceRoute);
  expect(good4().ipv4_options(source_route)).through("IPInput(SOURCE_ROUTES true)").passes();
  expect(udp4("127.0.0.1", "192.0.2.7")).through("IPInput(MARTIANS false)").passes();
}

// Each judgement has a switch of its own.
TEST(IPInput, AJudgementThatIsSwitchedOffIsNotMade) {
  const uint8_t source_route[] = {131, 7, 4, 10, 0, 0, 9};
  const struct {
    PacketBuilder packet;
    const char* off;
    DropReason reason;
  } cases[] = {
      {good4().bad_ip_checksum(), "CHECKSUM false", DropReason::kIpv4BadChecksum},
      {udp4("10.0.0.1", "224.0.0.5"), "MULTICAST true", DropReason::kMulticastDestination},
      {udp4("10.0.0.1", "255.255.255.255"), "MULTICAST true, MARTIANS false", DropReason::kMulticastDestination},
      {udp6("2001:db8::1", "ff02::1"), "MULTICAST true", DropReason::kMulticastDestination},
      {good4().macs(MacAddress{{255, 255, 255, 255, 255, 255}}, MacAddress{{2, 0, 0, 0, 0, 1}}), "LINK_BROADCAST true",
       DropReason::kLinkBroadcast},
      {udp4("127.0.0.1", "192.0.2.7"), "MARTIANS false", DropReason::kMartianSource},
      {good4().ipv4_options(source_route), "SOURCE_ROUTES true", DropReason::kSourceRoute},
  };
  const std::vector<std::string> all = {"CHECKSUM false", "MULTICAST true",     "LINK_BROADCAST true",
                                        "MARTIANS false", "SOURCE_ROUTES true", "PADDING true"};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.off);
    expect(c.packet).through("IPInput").drops(c.reason);
    expect(c.packet).through(fmt::format("IPInput({})", c.off)).passes();
    // The switches of other judgements do not let it pass.
    std::string others;
    for (const std::string& one : all) {
      if (std::string(c.off).find(one) == std::string::npos) others += (others.empty() ? "" : ", ") + one;
    }
    expect(c.packet).through("IPInput(" + others + ")").drops(c.reason);
  }
  EXPECT_EQ(expect(good4().payload(0).size(60)).through("IPInput(PADDING true)").passes().packet.end, 60u);
}

TEST(IPInput, ABadPacketKeepsNoKey) {
  const auto p = expect(good4().bad_ip_checksum()).through("IPInput");
  EXPECT_EQ(p.packet.key, FlowKey{});
  EXPECT_EQ(p.packet.ttl, 0);
}

TEST(IPInput, ReadsALinkHeaderThatWasPushedIntoTheHeadroom) {
  const auto p =
      expect(good4().no_link()).through("EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02) -> IPInput").passes();
  EXPECT_EQ(p.packet.data, -14);
  EXPECT_EQ(p.packet.l3, 0);
}

TEST(CheckIPHeader, AHeaderInTheHeadroomCannotBeNamed) {
  // The network header itself lies before the frame: offsets from the frame cannot say so.
  const auto ip = good4().no_link().build();
  testing::Passage p = expect(ip).through("Null");
  p.packet.data = -20;
  std::copy(ip.begin(), ip.begin() + 20, p.packet.frame - 20);
  p.packet.frame[-20 + 2] = 0;
  p.packet.frame[-20 + 3] = 20;  // a packet of only its header
  HeaderCheckStage stage;
  stage.verify_checksum = 0;
  EXPECT_EQ(stage(p.packet), 1);
  EXPECT_EQ(p.packet.reason, DropReason::kNoHeadroom);
}

TEST(CheckIPHeader, TakesTheHeaderAtItsOffset) {
  expect(good4()).through("CheckIPHeader").drops(DropReason::kIpv4BadChecksum).leaves_by(1);
  for (const char* chain : {"CheckIPHeader(14)", "CheckIPHeader(OFFSET 14)", "Strip(14) -> CheckIPHeader",
                            "CheckIPHeader(14, VERBOSE true)"}) {
    const auto p = expect(good4()).through(chain).passes();
    EXPECT_EQ(p.packet.l3, 14) << chain;
    EXPECT_EQ(p.packet.l4, 34) << chain;
    EXPECT_EQ(p.packet.key.dst_lo, 0xc0000207u) << chain;
  }
}

TEST(CheckIPHeader, ChecksumIsOnUnlessToldOtherwise) {
  expect(good4().bad_ip_checksum()).through("CheckIPHeader(14)").drops(DropReason::kIpv4BadChecksum);
  expect(good4().bad_ip_checksum()).through("CheckIPHeader(14, CHECKSUM false)").passes();
  expect(good4().bad_ip_checksum()).through("CheckIPHeader2(14)").passes();
  expect(good4().bad_ip_checksum()).through("CheckIPHeader2(14, CHECKSUM true)").drops(DropReason::kIpv4BadChecksum);
}

TEST(CheckIPHeader, EachFamilyHasItsCheck) {
  expect(good6()).through("CheckIPHeader(14)").drops(DropReason::kIpv4BadVersion);
  expect(good6()).through("CheckIP6Header(14)").passes();
  expect(good4()).through("CheckIP6Header(14)").drops(DropReason::kIpv6BadVersion);
  expect(good6().truncate(40)).through("CheckIP6Header(14)").drops(DropReason::kIpv6TooShort);
  expect(good4().truncate(14)).through("Strip(14) -> CheckIPHeader").drops(DropReason::kIpv4TooShort);
  expect(good6().truncate(14)).through("Strip(14) -> CheckIP6Header").drops(DropReason::kIpv6TooShort);
  expect(good4()).through("CheckIPHeader(1000)").drops(DropReason::kIpv4TooShort);
}

TEST(CheckIPHeader, BadSourcesAndGoodDestinations) {
  expect(good4()).through("CheckIPHeader(14, BADSRC 10.9.9.9 10.0.0.1)").drops(DropReason::kMartianSource);
  expect(good4()).through("CheckIPHeader(14, BADSRC 10.0.0.1, GOODDST 192.0.2.7)").passes();
  const char* interfaces = "CheckIPHeader(14, INTERFACES 10.0.0.9/24 192.0.2.7/28)";
  expect(good4()).through(interfaces).passes();
  expect(udp4("10.0.0.255", "203.0.113.1")).through(interfaces).drops(DropReason::kMartianSource);
  expect(udp4("10.0.0.255", "192.0.2.7")).through(interfaces).passes();
  expect(udp4("192.0.2.15", "203.0.113.1")).through(interfaces).drops(DropReason::kMartianSource);
  expect(udp4("255.255.255.255", "203.0.113.1")).through(interfaces).drops(DropReason::kMartianSource);
}

TEST(MarkIPHeader, NeverDropsAndNeverTrims) {
  EXPECT_EQ(expect(good4().payload(0).size(60)).through("MarkIPHeader(14)").passes().packet.end, 60u);
  EXPECT_EQ(expect(good4().bad_ip_checksum()).through("MarkIPHeader(14)").passes().packet.key.family, 4);
  const auto p = expect(std::vector<uint8_t>(20)).through("MarkIPHeader(14)").passes();
  EXPECT_EQ(p.packet.key, FlowKey{});
  EXPECT_EQ(p.packet.l3, 14);
  // An offset past the packet: the header is inside all the same, so that nothing behind it reads past the end.
  EXPECT_LE(expect(std::vector<uint8_t>(20)).through("MarkIPHeader(3000)").passes().packet.l3, 20);
  expect(std::vector<uint8_t>(20)).through("MarkIPHeader(14) -> DecIPTTL").drops(DropReason::kTtlExpired);
}

}  // namespace
}  // namespace sluice

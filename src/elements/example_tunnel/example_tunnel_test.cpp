#include <gtest/gtest.h>

#include "elements/testing.h"
#include "net/text.h"

namespace sluice {
namespace {

using testing::expect;
using Bytes = std::vector<uint8_t>;

const char* const kEncap = "ExampleTunnelEncap(192.0.2.1, 198.51.100.2)";
const char* const kDecap = "ExampleTunnelDecap(198.51.100.2, 192.0.2.1)";
const char* const kFar = "ExampleTunnelDecap(198.51.100.3, 192.0.2.1)";

Bytes inner4() {
  return udp4("10.0.0.1", "10.0.0.2").no_link().payload(33).build();
}
Bytes inner6() {
  return udp6("2001:db8::1", "2001:db8::2").no_link().payload(33).build();
}
// The packet between the ends, from the builder and not from the stage.
Bytes outer(const Bytes& inner, uint8_t protocol) {
  return PacketBuilder::ip(*parse_ip("192.0.2.1"), *parse_ip("198.51.100.2"), protocol)
      .no_link()
      .id(0)
      .ttl(64)
      .dont_fragment()
      .payload(inner)
      .build();
}

TEST(ExampleTunnel, WritesTheOuterHeaderThatThePacketBuilderWrites) {
  EXPECT_EQ(expect(inner4()).through(kEncap).passes().bytes(), outer(inner4(), 4));
  EXPECT_EQ(expect(inner6()).through(kEncap).passes().bytes(), outer(inner6(), 41));
}

TEST(ExampleTunnel, GivesTheInnerPacketBack) {
  for (const Bytes& inner : {inner4(), inner6()})
    EXPECT_EQ(expect(inner).through(std::string(kEncap) + " -> " + kDecap).passes().bytes(), inner);
}

TEST(ExampleTunnel, LeavesPacketsOfOthersAsTheyAre) {
  EXPECT_EQ(expect(outer(inner4(), 4)).through(kFar).leaves_by(1).bytes(), outer(inner4(), 4));
  EXPECT_EQ(expect(inner4()).through(kDecap).leaves_by(1).bytes(), inner4());
}

TEST(ExampleTunnel, DropsDamagedPacketsOfItsOwn) {
  Bytes damaged = outer(inner4(), 4);
  damaged[8] ^= 1;  // the TTL, which the checksum covers
  expect(damaged).through(kDecap).drops(DropReason::kIpv4BadChecksum);
  expect(outer(inner6(), 4)).through(kDecap).drops(DropReason::kIpv4BadVersion);
  expect(outer({}, 4)).through(kDecap).drops(DropReason::kIpv4BadVersion);
  const Bytes whole = outer(inner4(), 4);
  for (size_t bytes = 20; bytes < whole.size(); ++bytes)
    expect(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes)))
        .through(kDecap)
        .drops(DropReason::kIpv4BadTotalLength);
}

TEST(ExampleTunnel, DropsWhatIsNoIpPacket) {
  for (const Bytes& no_ip : {Bytes{}, Bytes(19, 0x45), Bytes(39, 0x60), Bytes(60, 0)})
    expect(no_ip).through(kEncap).drops(DropReason::kNotIp);
}

TEST(ExampleTunnel, NeedsItsEnds) {
  EXPECT_NE(testing::findings_of("ExampleTunnelEncap(192.0.2.1)").find("REMOTE"), std::string::npos);
}

}  // namespace
}  // namespace sluice

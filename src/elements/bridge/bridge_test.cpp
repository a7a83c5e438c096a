#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "elements/bridge/stage.h"
#include "elements/testing.h"

namespace sluice {
namespace {

using BridgeFrame = std::vector<uint8_t>;

// A frame through IPInput, both of whose outputs lead to Bridge.
testing::Passage bridged(const BridgeFrame& frame, const std::string& pass = "") {
  const std::string before = fmt::format(
      "input :: IPInput(MARTIANS false, SOURCE_ROUTES true, CHECKSUM false, MULTICAST true, LINK_BROADCAST true, "
      "PADDING true); bridge :: Bridge{}; input[1] -> bridge; bridge[1] -> Discard;",
      pass.empty() ? "" : fmt::format("(PASS {})", pass));
  return testing::expect(frame).through("input -> bridge", before);
}

BridgeFrame to(uint64_t mac, uint16_t type, size_t bytes = 60) {
  BridgeFrame frame = PacketBuilder::ether(type).size(bytes).build();
  for (size_t i = 0; i < 6; ++i) frame[i] = static_cast<uint8_t>(mac >> (40 - 8 * i));
  return frame;
}
BridgeFrame tagged(BridgeFrame frame, unsigned tags) {
  for (; tags > 0; --tags) frame.insert(frame.begin() + 12, {0x81, 0, 0, 7});
  return frame;
}

constexpr uint64_t kBroadcast = 0xffffffffffff, kReserved = 0x0180c2000000, kPerVlanTree = 0x01000ccccccd,
                   kHost = 0x020000000002;

TEST(Bridge, IpPacketsAreForTheList) {
  for (const PacketBuilder& packet :
       {udp4("10.0.0.1", "192.0.2.7"), tcp6("2001:db8::1", "2001:db8::2"), udp4("0.0.0.0", "255.255.255.255"),
        ip6("fe80::1", "ff02::16", 58).icmp(143, 0), udp4("127.0.0.1", "224.0.0.251")}) {
    const BridgeFrame frame = packet.build();
    for (const char* pass : {"", "all", "none"}) bridged(frame, pass).passes().leaves_by(0);
    bridged(tagged(frame, 2)).passes().leaves_by(0);
  }
}

TEST(Bridge, ArpAndSpanningTreePassUnlessTheyAreNotNamed) {
  for (const BridgeFrame& frame : {to(kBroadcast, 0x0806), tagged(to(kHost, 0x0806), 1), to(kReserved, 38),
                                   to(kReserved + 8, 38), to(kPerVlanTree, 50), tagged(to(kPerVlanTree, 50), 1)}) {
    const testing::Passage passage = bridged(frame);
    passage.passes().leaves_by(1);
    EXPECT_EQ(passage.packet.reason, DropReason::kNone);
    EXPECT_EQ(passage.bytes(), frame);
    const bool reserved = frame[0] == 1 && frame[1] == 0x80;
    bridged(frame, "none").drops(reserved ? DropReason::kLinkControl : DropReason::kNotIp);
  }
}

TEST(Bridge, OtherKindsPassWhereTheyAreNamed) {
  struct Kind {
    BridgeFrame frame;
    const char* name;
    DropReason reason;
  };
  for (const Kind& kind :
       {Kind{to(kReserved + 0xe, 0x88cc), "lldp", DropReason::kLinkControl},
        Kind{to(kReserved + 2, 0x8809), "lacp", DropReason::kLinkControl},
        Kind{to(kReserved + 3, 0x888e), "eapol", DropReason::kLinkControl},
        Kind{to(0x01000ccccccc, 80), "llc", DropReason::kNotIp}, Kind{to(kHost, 0x8847), "0x8847", DropReason::kNotIp},
        Kind{tagged(to(kHost, 0x88f7), 4), "0x8847 0x88F7", DropReason::kNotIp}}) {
    SCOPED_TRACE(kind.name);
    bridged(kind.frame).drops(kind.reason);
    bridged(kind.frame, kind.name).passes().leaves_by(1);
    bridged(kind.frame, "all").passes().leaves_by(1);
    bridged(kind.frame, "arp nd stp 0x1234").drops(kind.reason);
  }
}

TEST(Bridge, PauseNeverPasses) {
  bridged(to(kReserved + 1, 0x8808), "all 0x8808").drops(DropReason::kLinkControl);
  bridged(to(kReserved + 1, 0x1234), "all").drops(DropReason::kLinkControl);
  bridged(to(kHost, 0x8808), "all").drops(DropReason::kLinkControl);
}

TEST(Bridge, MalformedPacketsAreDroppedForWhatIsWrongWithThem) {
  for (const char* pass : {"", "all"}) {
    bridged(BridgeFrame(10), pass).drops(DropReason::kTruncatedL2);
    bridged(BridgeFrame(), pass).drops(DropReason::kTruncatedL2);
    bridged(tagged(to(kBroadcast, 0x0806), 5), pass).drops(DropReason::kTooManyVlans);
    bridged(udp4("10.0.0.1", "192.0.2.7").ihl(4).build(), pass).drops(DropReason::kIpv4BadHeaderLength);
    bridged(udp6("2001:db8::1", "2001:db8::2").truncate(50).build(), pass).drops(DropReason::kIpv6TooShort);
  }
}

PacketBuilder discovery(uint8_t type, uint8_t code = 0) {
  return ip6("fe80::1", "ff02::1:ff00:2", 58).icmp(type, code).ttl(255).payload(16);
}

TEST(Bridge, NeighborDiscoveryPassesWithoutTheListOnlyAsItIsValid) {
  for (uint8_t type = 133; type <= 137; ++type) {
    bridged(discovery(type).build()).passes().leaves_by(1);
    bridged(tagged(discovery(type).build(), 2)).passes().leaves_by(1);
    bridged(discovery(type).build(), "arp stp").passes().leaves_by(0);
    bridged(discovery(type).ttl(254).build()).passes().leaves_by(0);
    bridged(discovery(type, 1).build()).passes().leaves_by(0);
    bridged(discovery(type).hop_by_hop().build()).passes().leaves_by(0);
    bridged(discovery(type).fragment(0, false).build()).passes().leaves_by(0);
  }
  for (const uint8_t type : {128, 130, 132, 138, 143}) bridged(discovery(type).build()).passes().leaves_by(0);
  // ICMP of IPv4 with the same numbers.
  bridged(ip4("10.0.0.1", "10.0.0.2", 1).icmp(135, 0).ttl(255).build()).passes().leaves_by(0);
}

TEST(Bridge, BurstsAreJudgedAsPacketsAre) {
  BridgeStage stage;
  stage.nd = 1;
  auto burst = std::make_unique<FastBurst>();
  burst->clear();
  burst->family = 6;
  std::vector<Packet> packets;
  std::vector<BridgeFrame> frames;
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) {
    auto packet =
        i % 5 == 0 ? udp6("2001:db8::1", "2001:db8::2") : discovery(static_cast<uint8_t>(130 + i % 9), i == 7);
    packet.ttl(i % 4 == 3 ? 64 : 255);
    if (i % 7 == 6) packet.hop_by_hop();
    frames.push_back(packet.build());
    Packet& p = packets.emplace_back();
    p.frame = frames.back().data();
    p.end = p.wire_end = static_cast<uint32_t>(frames.back().size());
    Headers h;
    ASSERT_EQ(parse_ethernet(p.frame, p.end, p.end, h, true), ParseStatus::kOk);
    p.key = h.key;
    p.l3 = h.l3_offset;
    p.l4 = h.l4_offset;
    p.ttl = h.ttl;
    burst->set_key(i, p.key);
    burst->hop[i] = p.ttl;
    burst->places[i] = p.l3 | uint32_t{p.l4} << 16;
  }
  burst->count = FastBurst::kLanes;
  const uint32_t listed = stage.burst(*burst, ~uint32_t{0});
  uint32_t passed = 0;
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) {
    const uint8_t output = stage(packets[i]);
    EXPECT_EQ(listed >> i & 1, output == 0 ? 1u : 0u) << i;
    if (output != 0) {
      EXPECT_EQ(burst->output[i], output);
    }
    passed += output;
  }
  EXPECT_GT(passed, 0u);
  EXPECT_LT(passed, FastBurst::kLanes);
}

TEST(Bridge, KindsAreCheckedWhereTheyStand) {
  const auto wrong = [](const std::string& pass) {
    return testing::findings("InfiniteSource -> IPInput -> b :: Bridge(PASS " + pass +
                             ") -> Discard; b[1] -> Discard;");
  };
  EXPECT_EQ(wrong("arp 0x8847"), "");
  EXPECT_NE(wrong("arp lldpd").find("1:51: 'lldpd' is not a kind of frame"), std::string::npos) << wrong("arp lldpd");
  EXPECT_NE(wrong("1500").find("not a kind"), std::string::npos);
  for (const char* judged : {"0x0800", "0x86dd", "0x8100", "0x88a8"})
    EXPECT_NE(wrong(judged).find("the access list judges"), std::string::npos) << judged;
  std::string many;
  for (int i = 0; i < 17; ++i) many += fmt::format("{}0x88{:02x}", i == 0 ? "" : " ", i);
  EXPECT_NE(wrong(many).find("more than 16 EtherTypes"), std::string::npos);
  // What it passes has to go somewhere.
  EXPECT_NE(testing::findings("InfiniteSource -> IPInput -> Bridge -> Discard;").find("output 1"), std::string::npos);
}

}  // namespace
}  // namespace sluice

#include <gtest/gtest.h>

#include <random>

#include "elements/ordered_testing.h"
#include "elements/testing.h"
#include "flows/flow_table.h"
#include "net/parse.h"

namespace sluice {
namespace {

using testing::outputs_in_order;
using testing::TimedPacket;

TimedPacket at(double seconds, const PacketBuilder& packet) {
  return {static_cast<uint64_t>(seconds * 1e9), packet.build()};
}
PacketBuilder there(uint8_t flags) {
  return tcp4("10.0.0.1", "192.0.2.7").ports(4000, 80).tcp_flags(flags);
}
PacketBuilder back(uint8_t flags) {
  return tcp4("192.0.2.7", "10.0.0.1").ports(80, 4000).tcp_flags(flags);
}

TEST(ConnTrack, EachStateHasItsOutput) {
  const std::vector<TimedPacket> packets = {
      at(0, there(kTcpSyn)), at(1, back(kTcpSyn | kTcpAck)), at(2, there(kTcpAck)), at(3, back(kTcpSyn)),
      at(4, icmp4("198.51.100.1", "10.0.0.1").icmp(3, 1).payload(there(kTcpAck).no_link().build()))};
  EXPECT_EQ(outputs_in_order("ConnTrack", packets, 8), (std::vector<int>{0, 1, 1, 3, 2}));
}

TEST(ConnTrack, APacketThatIsNotIpIsInvalid) {
  EXPECT_EQ(outputs_in_order("ConnTrack", {at(0, PacketBuilder::ether(0x0806).payload(46))}, 8), (std::vector<int>{3}));
}

TEST(ConnTrack, AFullTableHasItsOutput) {
  std::vector<TimedPacket> packets;
  for (uint16_t port = 1; port <= 3; ++port) packets.push_back(at(port, udp4("10.0.0.1", "192.0.2.7").ports(port, 53)));
  packets.push_back(packets[0]);
  EXPECT_EQ(outputs_in_order("ConnTrack(CAPACITY 2)", packets, 8), (std::vector<int>{0, 0, 4, 0}));
}

TEST(ConnTrack, TimeoutsAreThoseThatWereAskedFor) {
  const auto udp = [](bool reply) {
    return reply ? udp4("192.0.2.7", "10.0.0.1").ports(53, 9) : udp4("10.0.0.1", "192.0.2.7").ports(9, 53);
  };
  const std::vector<TimedPacket> packets = {at(0, udp(false)), at(1, udp(true)), at(5, udp(false)),
                                            at(10.1, udp(false))};
  EXPECT_EQ(outputs_in_order("ConnTrack(UDP_TIMEOUT 5s)", packets, 8), (std::vector<int>{0, 1, 1, 0}));
}

TEST(ConnTrack, GivesTheSameAnswersForEveryCutIntoBatches) {
  std::mt19937_64 random(3);
  const auto below = [&](uint64_t n) { return random() % n; };
  std::vector<TimedPacket> packets;
  std::vector<int> expected;
  FlowTable table({.capacity = 20});
  uint64_t now = 1'000'000, latest = 0;
  constexpr uint8_t kFlags[] = {kTcpSyn, kTcpSyn | kTcpAck, kTcpAck, kTcpFin | kTcpAck, kTcpRst};
  for (int i = 0; i < 4000; ++i) {
    now += below(20) == 0 ? below(200'000'000'000) : below(1'000'000'000);
    const auto port = static_cast<uint16_t>(1 + below(16));
    const bool reply = below(2) != 0;
    const char *from = reply ? "192.0.2.7" : "10.0.0.1", *to = reply ? "10.0.0.1" : "192.0.2.7";
    const uint16_t source = reply ? 80 : port, destination = reply ? port : 80;
    PacketBuilder builder = udp4(from, to).ports(source, destination);
    if (below(2) != 0) builder = tcp4(from, to).ports(source, destination).tcp_flags(kFlags[below(std::size(kFlags))]);
    packets.push_back({now - below(3) * 100'000, builder.build()});
    // One packet after another.
    const auto& frame = packets.back().frame;
    Headers h;
    const auto bytes = static_cast<uint32_t>(frame.size());
    ASSERT_EQ(parse_ethernet(frame.data(), bytes, bytes, h), ParseStatus::kOk);
    const TrackedPacket p = tracked_packet(h.key, frame.data(), h.l3_offset, h.l4_offset, bytes);
    latest = std::max(latest, packets.back().at_ns);
    const auto answer = table.take(p, table.hash(p.ends), bytes, latest, [] { return true; });
    expected.push_back(answer.refused == FlowTable::Refused::kFull ? 4 : static_cast<int>(answer.state));
  }
  for (const uint32_t batch : {1u, 3u, 64u, 100u, 1024u})
    EXPECT_EQ(outputs_in_order("ConnTrack(CAPACITY 20)", packets, batch), expected) << batch;
}

}  // namespace
}  // namespace sluice

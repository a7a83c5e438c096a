#include <gtest/gtest.h>

#include <map>
#include <random>

#include "elements/example_flow/flows.h"
#include "elements/ordered_testing.h"
#include "elements/testing.h"

namespace sluice {
namespace {

using testing::outputs_in_order;
using testing::TimedPacket;

TimedPacket packet(uint64_t at_s, uint16_t source_port) {
  return {at_s * 1'000'000'000, udp4("10.0.0.1", "192.0.2.7").ports(source_port, 53).build()};
}

// From the text of the element's summary, without its table.
std::vector<int> expected(const std::vector<TimedPacket>& packets, const std::vector<uint16_t>& ports, uint64_t limit,
                          uint64_t timeout_ns, size_t capacity) {
  struct Flow {
    uint64_t last_ns = 0, packets = 0;
  };
  std::map<uint16_t, Flow> flows;
  std::vector<int> outputs;
  uint64_t now = 0;
  for (size_t i = 0; i < packets.size(); ++i) {
    now = std::max(now, packets[i].at_ns);
    std::erase_if(flows, [&](const auto& one) { return now - one.second.last_ns >= timeout_ns; });
    if (!flows.contains(ports[i]) && flows.size() >= capacity) {
      outputs.push_back(1);
      continue;
    }
    Flow& flow = flows[ports[i]];
    flow.last_ns = now;
    outputs.push_back(flow.packets < limit ? 0 : 1);
    if (flow.packets < limit) ++flow.packets;
  }
  return outputs;
}

TEST(ExampleFlow, LetsTheFirstPacketsOfEachFlowPass) {
  const std::vector<TimedPacket> packets = {packet(0, 1), packet(0, 2), packet(1, 1), packet(1, 2), packet(2, 1)};
  EXPECT_EQ(outputs_in_order("ExampleFlow(2)", packets, 8), (std::vector<int>{0, 0, 0, 0, 1}));
}

TEST(ExampleFlow, BeginsAFlowAnewAfterItsTimeout) {
  const std::vector<TimedPacket> packets = {packet(0, 1), packet(1, 1), packet(3, 1)};
  EXPECT_EQ(outputs_in_order("ExampleFlow(1, TIMEOUT 2s)", packets, 8), (std::vector<int>{0, 1, 0}));
}

TEST(ExampleFlow, KeepsTheFlowsOfAFullTable) {
  const std::vector<TimedPacket> packets = {packet(0, 1), packet(0, 2), packet(0, 1)};
  EXPECT_EQ(outputs_in_order("ExampleFlow(9, CAPACITY 1)", packets, 8), (std::vector<int>{0, 1, 0}));
}

TEST(ExampleFlow, GivesTheSameAnswersForEveryCutIntoBatches) {
  std::mt19937_64 random(7);
  std::vector<TimedPacket> packets;
  std::vector<uint16_t> ports;
  uint64_t now = 1'000'000;
  for (int i = 0; i < 3000; ++i) {
    now += random() % 400'000'000;
    ports.push_back(static_cast<uint16_t>(1 + random() % 40));
    // Time stamps go back now and then.
    packets.push_back({now - random() % 3 * 100'000, udp4("10.0.0.1", "192.0.2.7").ports(ports.back(), 53).build()});
  }
  const std::vector<int> one_by_one = expected(packets, ports, 3, 4'000'000'000, 12);
  for (const uint32_t batch : {1u, 3u, 64u, 100u, 1024u})
    EXPECT_EQ(outputs_in_order("ExampleFlow(3, TIMEOUT 4s, CAPACITY 12)", packets, batch), one_by_one) << batch;
}

TEST(ExampleFlow, CountsFragmentsOfAPacketAsOneFlow) {
  const auto fragment = [](uint32_t offset, bool more) {
    return TimedPacket{0, udp4("10.0.0.1", "192.0.2.7").ports(1, 53).fragment(offset, more).payload(64).build()};
  };
  EXPECT_EQ(outputs_in_order("ExampleFlow(1)", {fragment(0, true), fragment(64, false)}, 8), (std::vector<int>{0, 1}));
}

TEST(ExampleFlow, NeedsItsLimit) {
  EXPECT_NE(testing::findings_of("ExampleFlow()").find("LIMIT"), std::string::npos);
}

}  // namespace
}  // namespace sluice

// host only
// The harness of ordered_testing.h.
#include "elements/ordered_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/assert.h"
#include "elements/ip_input/stage.h"
#include "elements/testing.h"

namespace sluice::testing {
namespace {

Batch batch_of(const TimedPacket* packets, uint32_t count) {
  auto made = Batch::create(count, count * Batch::arena_need(2048));
  SLUICE_CHECK(made.ok());
  Batch batch = std::move(*made);
  for (uint32_t i = 0; i < count; ++i) {
    const auto bytes = static_cast<uint32_t>(packets[i].frame.size());
    uint8_t* const frame = batch.reserve_clean(bytes);
    SLUICE_CHECK(frame != nullptr);
    std::memcpy(frame, packets[i].frame.data(), bytes);
    batch.push(frame, bytes, bytes, packets[i].at_ns, i);
  }
  const IpInputStage parse{};
  BatchView view = batch.view();
  for (uint32_t i = 0; i < count; ++i) {
    Packet p;
    view.load(i, 0, p);
    (void)parse(p);
    view.store(i, kFieldKey, p);
  }
  return batch;
}

}  // namespace

std::vector<int> outputs_in_order(const std::string& element, const std::vector<TimedPacket>& packets, uint32_t batch) {
  const std::string text = "InfiniteSource(LIMIT 0) -> IPInput -> it :: " + element + " -> Discard;";
  auto graph = parse_click(text, "test.click");
  SLUICE_CHECK(graph.ok());
  auto router = build_router(*graph, all_elements(), text);
  EXPECT_TRUE(router.ok()) << to_string(router.error());
  if (!router) return {};
  const Element& it = *router->find("it");
  const std::unique_ptr<Element::Ordered> ordered = it.make_ordered();
  struct Step {
    Batch batch;
    Selection packets;
    std::unique_ptr<Element::Ordered::Prepared> prepared;
  };
  std::vector<Step> steps;
  for (size_t at = 0; at < packets.size(); at += batch) {
    const auto count = static_cast<uint32_t>(std::min<size_t>(batch, packets.size() - at));
    Step step{batch_of(&packets[at], count), {}, ordered->make_prepared()};
    step.packets.fill(count);
    if (step.prepared != nullptr) ordered->prepare(step.batch, nullptr, step.packets, *step.prepared);
    steps.push_back(std::move(step));
  }
  const unsigned outputs = it.element_class->outputs.max;
  std::vector<int> left;
  for (Step& step : steps) {
    std::vector<Selection> out(outputs);
    ordered->process(step.batch, nullptr, step.packets, step.prepared.get(), out);
    for (uint32_t i = 0; i < step.batch.size(); ++i) {
      const auto by = std::ranges::find_if(out, [&](const Selection& one) { return one.has(i); });
      left.push_back(by == out.end() ? -1 : static_cast<int>(by - out.begin()));
    }
  }
  return left;
}

TEST(OrderedHarness, PoliceGivesTheSameAnswersForEveryCutIntoBatches) {
  std::vector<TimedPacket> packets;
  for (uint64_t i = 0; i < 500; ++i)
    packets.push_back({i * 1'000'000 + i % 7 * 300'000, udp4("10.0.0.1", "192.0.2.7").payload(i % 200).build()});
  const std::vector<int> one_by_one = outputs_in_order("Police(1Mbps, 1500)", packets, 1);
  EXPECT_GT(std::ranges::count(one_by_one, 0), 50);
  EXPECT_GT(std::ranges::count(one_by_one, 2), 20);
  for (const uint32_t batch : {3u, 64u, 100u, 256u})
    EXPECT_EQ(outputs_in_order("Police(1Mbps, 1500)", packets, batch), one_by_one) << batch;
}

}  // namespace sluice::testing

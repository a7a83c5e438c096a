// What the planner sends to a device, and as which records.
#include "exec/device/offload.h"

#include <gtest/gtest.h>

#include <string>

#include "elements/register_all.h"
#include "graph/router.h"

namespace sluice {
namespace {

// The first segment of a graph in which `chain` stands between a source and c :: Counter; `tables`: declared before it.
Offload offload_of(const std::string& chain, RecordChoice choice, const std::string& tables = {}) {
  Registry registry;
  register_elements(registry);
  const std::string text = tables + "out :: Counter -> Discard; FromDump(a.pcap) -> " + chain + " -> out;";
  auto graph = parse_click(text, "g");
  EXPECT_TRUE(graph.ok()) << text;
  if (!graph.ok()) return {};
  auto router = build_router(*graph, registry, text);
  EXPECT_TRUE(router.ok()) << chain << (router.ok() ? "" : to_string(router.error()));
  if (!router.ok()) return {};
  auto plan = make_plan(*router);
  EXPECT_TRUE(plan.ok()) << chain;
  if (!plan.ok()) return {};
  const std::vector<Offload> all = plan_offloads(*plan, *router, choice);
  for (size_t n = 0; n < all.size(); ++n) {
    if (plan->nodes[n].type == PlanNode::Type::kSegment) return all[n];
  }
  ADD_FAILURE() << "no segment: " << text;
  return {};
}

// Patterns have no code on keys, although these read no more: they stay on the host, and the lookup behind them goes.
TEST(Offload, KeepsStagesWithoutCodeOnKeysOnTheHost) {
  const std::string tables = "RouteTable(fib, FILE rib); ";
  for (const RecordChoice choice : {RecordChoice::kKey, RecordChoice::kAuto}) {
    const Offload o =
        offload_of("IPInput -> IPFilter(deny dst port 80, allow all) -> r :: IPRoute(TABLE fib)", choice, tables);
    EXPECT_TRUE(o.on_device && o.keys) << o.why;
    EXPECT_EQ(o.begin, 2);
    EXPECT_EQ(o.end, 4) << "and what follows it";
  }
  // So many of them are an access list, which has.
  std::string many = "IPInput -> IPFilter(";
  for (int port = 1; port < 40; ++port) many += "deny src port " + std::to_string(1000 * port) + ", ";
  const Offload o = offload_of(many + "allow all) -> r :: IPRoute(TABLE fib)", RecordChoice::kKey, tables);
  EXPECT_TRUE(o.on_device && o.keys) << o.why;
  EXPECT_EQ(o.begin, 1);
  EXPECT_EQ(o.end, 4);
}

}  // namespace
}  // namespace sluice

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

// The gateway of a next hop is found on the host, for the one next hop that comes back.
TEST(Offload, KeysCarryOneLookupWithGateways) {
  const std::string lookup = " :: IPLookup(10.0.0.0/8 192.0.2.1 0, 0.0.0.0/0 0)";
  const Offload one = offload_of("CheckIPHeader(14) -> a" + lookup, RecordChoice::kAuto);
  EXPECT_TRUE(one.on_device && one.keys) << one.why;
  EXPECT_EQ(one.begin, 1);
  const Offload two = offload_of("CheckIPHeader(14) -> a" + lookup + " -> b" + lookup, RecordChoice::kAuto);
  EXPECT_TRUE(two.on_device && two.keys) << two.why;
  EXPECT_EQ(two.begin, 2) << "the second, and what follows it";
  EXPECT_EQ(two.end, 4);
}

// What neither a key nor a frame carries, and why.
TEST(Offload, SaysWhyASegmentStaysOnTheHost) {
  const auto why = [](const std::string& chain, RecordChoice choice) {
    const Offload o = offload_of(chain, choice);
    EXPECT_FALSE(o.on_device) << chain;
    return o.why;
  };
  EXPECT_EQ(why("EtherMirror", RecordChoice::kAuto), "no lookup: the transfer would cost more than the work");
  EXPECT_EQ(why("EtherMirror", RecordChoice::kKey), "no lookup by key");
  for (const RecordChoice choice : {RecordChoice::kFrame, RecordChoice::kAuto}) {
    EXPECT_EQ(why("SetCRC32 -> m :: EtherMirror", choice),
              "no lookup by key; SetCRC32@4 does not parse frames from their first byte");
  }
}

}  // namespace
}  // namespace sluice

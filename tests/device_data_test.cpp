// All real tables through every device, mode and transport: each lookup equals the host's. The folder of test data may
// hold its files packed (.xz) or plain.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "elements/register_all.h"
#include "exec/device/drive.h"
#include "exec/device/offload.h"
#include "exec/plan.h"
#include "formats/classbench.h"
#include "formats/route_text.h"
#include "formats/trace.h"
#include "graph/click/parser.h"
#include "graph/router.h"
#include "tables/acl/acl_test_support.h"
#include "tables/lpm/algorithms.h"
#include "tests/testing/devices.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

std::optional<std::string> text_of(const std::string& relative) {
  if (const auto plain = test_data(relative.c_str())) return testing::read_file(*plain);
  const auto packed = test_data((relative + ".xz").c_str());
  if (!packed) return std::nullopt;
  std::FILE* pipe = popen(("xz -dc '" + *packed + "'").c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  char block[1 << 16];
  for (size_t n; (n = fread(block, 1, sizeof block, pipe)) != 0;) text.append(block, n);
  if (pclose(pipe) != 0) return std::nullopt;
  return text;
}

// With SLUICE_TEST_SCALE or a GPU the largest sets too, and more keys.
bool thorough() {
  const char* scale = std::getenv("SLUICE_TEST_SCALE");
  return (scale != nullptr && std::atoi(scale) > 1) || testing::device_kinds().size() > 1;
}
bool watched() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return true;
#else
  return false;
#endif
}

struct Way {
  DeviceMode mode;
  Transport transport;
};
constexpr Way kWays[] = {
    {DeviceMode::kLaunch, Transport::kStaged},     {DeviceMode::kLaunch, Transport::kZeroCopy},
    {DeviceMode::kLaunch, Transport::kCommList},   {DeviceMode::kLaunch, Transport::kCommPool},
    {DeviceMode::kPersistent, Transport::kTagged}, {DeviceMode::kAdaptive, Transport::kStaged},
};

// Runs the keys through one lookup element over the tables on each device and way; results[i] is that of keys[i].
template <typename Check>
void look_up(const std::string& element, const TableSet& tables, const std::vector<FlowKey>& keys, Check&& check) {
  Registry registry;
  register_elements(registry);
  const std::string text = "InfiniteSource -> IPInput -> lookup :: " + element + " -> Discard; lookup[1] -> Discard;";
  auto graph = parse_click(text, "lookup");
  ASSERT_TRUE(graph.ok()) << to_string(graph.error());
  auto router = build_router(*graph, registry, text);
  ASSERT_TRUE(router.ok()) << to_string(router.error());
  auto plan = make_plan(*router);
  ASSERT_TRUE(plan.ok()) << to_string(plan.error());
  auto snapshot = bind_plan(*plan, *router, tables);
  ASSERT_TRUE(snapshot.ok()) << to_string(snapshot.error());
  const std::vector<Offload> offloads = plan_offloads(*plan, *router, RecordChoice::kKey);
  size_t node = 0;
  while (node < offloads.size() && !offloads[node].on_device) ++node;
  ASSERT_LT(node, offloads.size());
  for (const std::string& kind : testing::device_kinds()) {
    const auto devices = testing::devices_of(kind, 1);
    ASSERT_EQ(devices.size(), 1u);
    auto resident = make_resident(*devices[0], **snapshot, *plan, offloads);
    ASSERT_TRUE(resident.ok()) << to_string(resident.error());
    (*resident)->parity = 1;
    for (const Way& way : kWays) {
      SCOPED_TRACE(kind + " " + to_string(way.mode) + " " + to_string(way.transport));
      ChannelOptions options;
      options.mode = way.mode;
      options.transport = way.transport;
      options.records = 1024;
      options.watchdog_ns = 20'000'000'000;
      auto link = KeyLink::open(*devices[0], **resident, node, options);
      ASSERT_TRUE(link.ok()) << to_string(link.error());
      std::vector<KeyResult> results(keys.size());
      const auto done = (*link)->run(keys, results);
      ASSERT_TRUE(done.ok()) << to_string(done.error());
      size_t wrong = 0;
      for (size_t i = 0; i < keys.size(); ++i) wrong += check(i, results[i]) ? 0 : 1;
      ASSERT_EQ(wrong, 0u) << "of " << keys.size();
    }
  }
}

TEST(DeviceData, AccessLists) {
  std::vector<std::string> names;
  for (const char* size : {"1k", "10k", "100k"}) {
    for (const char* shape :
         {"acl1", "acl2", "acl3", "acl4", "acl5", "fw1", "fw2", "fw3", "fw4", "fw5", "ipc1", "ipc2"}) {
      const std::string name = std::string("acl/") + shape + "_" + size;
      if (!test_data(name.c_str()) && !test_data((name + ".xz").c_str())) continue;
      // A few of each where it would take long.
      if (!thorough() && (std::string(size) == "100k" || (watched() && std::string(size) == "10k"))) continue;
      names.push_back(name);
    }
  }
  if (names.empty()) GTEST_SKIP() << "the large test data is not here (SLUICE_DATA)";
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto text = text_of(name);
    ASSERT_TRUE(text.has_value());
    const auto set = parse_classbench(*text, name);
    ASSERT_TRUE(set.ok()) << to_string(set.error());
    auto image = build_acl(*set, TupleSpaceAcl::kName);
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    const auto shared = std::make_shared<const Image>(std::move(*image));
    acl_test::Random random(7);
    std::vector<FlowKey> keys = acl_test::keys_for(*set, thorough() ? 20'000 : 2000, random);
    if (const auto trace = thorough() ? text_of(name + "_trace") : std::nullopt) {
      const auto more = parse_trace(*trace, name);
      ASSERT_TRUE(more.ok()) << to_string(more.error());
      keys.insert(keys.end(), more->begin(), more->end());
    }
    // What a trace can say and a packet cannot: flags past the eight of TCP.
    for (size_t i = 0; i < keys.size(); i += 50) keys[i].flags |= 3;
    auto view = TupleSpaceView::open(*shared);
    ASSERT_TRUE(view.ok()) << to_string(view.error());
    std::vector<uint32_t> want;
    for (const FlowKey& key : keys) want.push_back(view->lookup(key));
    TableSet tables;
    tables.acls["t"] = shared;
    look_up("ACL(TABLE t, DEFAULT permit)", tables, keys,
            [&](size_t i, const KeyResult& r) { return r.rule == want[i]; });
  }
}

TEST(DeviceData, FullTables) {
  const auto text4 = text_of("rib/ipv4-tier1-2024-01.nh256.txt"), text6 = text_of("rib/ipv6-tier1-2024-01.nh256.txt");
  if (!text4 || !text6) GTEST_SKIP() << "the large test data is not here (SLUICE_DATA)";
  if (watched()) GTEST_SKIP() << "too slow where every access is watched; the optimised build runs it";
  Rib rib;
  ASSERT_TRUE(parse_routes(*text4, "rib4", rib).ok());
  ASSERT_TRUE(parse_routes(*text6, "rib6", rib).ok());
  rib.settle();
  acl_test::Random random(11);
  std::vector<FlowKey> keys(thorough() ? 400'000 : 20'000);
  for (size_t i = 0; i < keys.size(); ++i) {
    FlowKey& key = keys[i];
    key.family = i % 2 == 0 ? 4 : 6;
    const auto routes4 = rib.routes4();
    const auto routes6 = rib.routes6();
    // A quarter from anywhere, the others in or beside a prefix of the table.
    const uint64_t drawn = random();
    if (key.family == 4) {
      key.dst_lo = i % 8 == 0 ? static_cast<uint32_t>(drawn)
                              : routes4[random() % routes4.size()].address ^ static_cast<uint32_t>(drawn & 0x1ff);
    } else {
      const auto& route = routes6[random() % routes6.size()];
      key.dst_hi = i % 8 == 1 ? (uint64_t{1} << 61 | drawn >> 3) : route.hi ^ (drawn & 0xffffff);
      key.dst_lo = random();
    }
  }
  for (const auto& [name4, name6] :
       {std::pair{"dir24", "poptrie"}, std::pair{"poptrie", "poptrie"}, std::pair{"trie", "trie"}}) {
    SCOPED_TRACE(name4);
    auto image = build_routes(rib, name4, name6);
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    const auto shared = std::make_shared<const Image>(std::move(*image));
    std::vector<uint32_t> want(keys.size());
    const auto four = with_fib4(*shared, [&](const auto& view) {
      for (size_t i = 0; i < keys.size(); i += 2) want[i] = view.lookup(static_cast<uint32_t>(keys[i].dst_lo));
    });
    const auto six = with_fib6(*shared, [&](const auto& view) {
      for (size_t i = 1; i < keys.size(); i += 2) want[i] = view.lookup(keys[i].dst_hi, keys[i].dst_lo);
    });
    ASSERT_TRUE(four.ok() && six.ok());
    TableSet tables;
    tables.routes["t"] = shared;
    look_up("IPRoute(TABLE t)", tables, keys, [&](size_t i, const KeyResult& r) { return r.next_hop == want[i]; });
  }
}

}  // namespace
}  // namespace sluice

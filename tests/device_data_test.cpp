// All real tables through every device, mode and transport: each lookup equals the host's. The folder of test data may
// hold its files packed (.xz) or plain.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/test_data.h"
#include "elements/register_all.h"
#include "exec/device/drive.h"
#include "exec/device/offload.h"
#include "exec/walk/plan.h"
#include "formats/classbench.h"
#include "formats/route_text.h"
#include "formats/trace.h"
#include "graph/click/parser.h"
#include "graph/router.h"
#include "net/key4.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/changing_list.h"
#include "tables/acl/conformance.h"
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
#if defined(SLUICE_SANITIZED)
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

// One lookup element on every device: tables come one after another, and a device keeps what it has of them.
class Lookups {
 public:
  explicit Lookups(const std::string& element) { prepare(element); }

  // check(i, result of keys[i]) of the keys in these tables, on each device and way. What was copied to a device for
  // them, most of any, is in uploaded().
  template <typename Check>
  void run(const TableSet& tables, const std::vector<FlowKey>& keys, std::span<const Way> ways, Check&& check) {
    if (::testing::Test::HasFailure()) return;
    auto snapshot = bind_plan(plan_, router_, tables);
    ASSERT_TRUE(snapshot.ok()) << to_string(snapshot.error());
    uploaded_ = 0;
    for (const auto& [kind, device] : devices_) {
      auto resident = make_resident(*device, **snapshot, plan_, offloads_);
      ASSERT_TRUE(resident.ok()) << to_string(resident.error());
      uploaded_ = std::max(uploaded_, (*resident)->uploaded_bytes);
      (*resident)->parity = 1;
      for (const Way& way : ways) {
        SCOPED_TRACE(kind + " " + to_string(way.mode) + " " + to_string(way.transport));
        ChannelOptions options;
        options.mode = way.mode;
        options.transport = way.transport;
        options.records = 1024;
        options.watchdog_ns = 20'000'000'000;
        auto link = KeyLink::open(*device, **resident, node_, options);
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
  size_t uploaded() const { return uploaded_; }

  // The tables on this device alone. Errors: those of bind_plan and make_resident.
  Result<std::shared_ptr<Resident>> bring(Device& device, const TableSet& tables) const {
    auto snapshot = bind_plan(plan_, router_, tables);
    if (!snapshot) return std::move(snapshot).error();
    return make_resident(device, **snapshot, plan_, offloads_);
  }

 private:
  void prepare(const std::string& element) {
    register_elements(registry_);
    const std::string text = "InfiniteSource -> IPInput -> lookup :: " + element + " -> Discard; lookup[1] -> Discard;";
    auto graph = parse_click(text, "lookup");
    ASSERT_TRUE(graph.ok()) << to_string(graph.error());
    auto router = build_router(*graph, registry_, text);
    ASSERT_TRUE(router.ok()) << to_string(router.error());
    router_ = std::move(*router);
    auto plan = make_plan(router_);
    ASSERT_TRUE(plan.ok()) << to_string(plan.error());
    plan_ = std::move(*plan);
    offloads_ = plan_offloads(plan_, router_, RecordChoice::kKey);
    while (node_ < offloads_.size() && !offloads_[node_].on_device) ++node_;
    ASSERT_LT(node_, offloads_.size());
    for (const std::string& kind : testing::device_kinds()) {
      const auto devices = testing::devices_of(kind, 1);
      if (!devices.empty()) devices_.emplace_back(kind, devices[0]);
    }
  }

  Registry registry_;
  Router router_;
  Plan plan_;
  std::vector<Offload> offloads_;
  size_t node_ = 0;
  size_t uploaded_ = 0;
  std::vector<std::pair<std::string, std::shared_ptr<Device>>> devices_;
};

constexpr const char* kAclElement = "ACL(TABLE t, DEFAULT permit)";
TableSet acl_tables(std::shared_ptr<const Image> image) {
  TableSet tables;
  tables.acls["t"] = std::move(image);
  return tables;
}

// The published sets; the largest where there is time.
std::vector<std::string> set_names(std::initializer_list<const char*> sizes) {
  std::vector<std::string> names;
  for (const char* size : sizes) {
    for (const char* shape :
         {"acl1", "acl2", "acl3", "acl4", "acl5", "fw1", "fw2", "fw3", "fw4", "fw5", "ipc1", "ipc2"}) {
      const std::string name = std::string("acl/") + shape + "_" + size;
      if (test_data(name.c_str()) || test_data((name + ".xz").c_str())) names.push_back(name);
    }
  }
  return names;
}
RuleSet set_of(const std::string& name) {
  const auto text = text_of(name);
  if (!text) return {};
  auto set = parse_classbench(*text, name);
  return set.ok() ? std::move(*set) : RuleSet{};
}

// Bursts on the host give `want`; word_of(word that was found) is what stands in it.
template <typename WordOf>
void expect_on_host(const Image& image, const std::vector<FlowKey>& keys, const std::vector<uint32_t>& want,
                    WordOf&& word_of) {
  const auto view = AclView::open(image);
  ASSERT_TRUE(view.ok()) << to_string(view.error());
  auto found = acl_test::in_bursts(keys, [&](auto... a) { view->lookup_burst(a...); });
  for (uint32_t& word : found) word = word_of(word);
  acl_test::expect_same(want, found, keys, "on the host");
}

// Every algorithm's image of `set` gives `want`. Linear searches of long lists take a device longer than all others.
void every_algorithm(Lookups& lookups, const RuleSet& set, const std::vector<FlowKey>& keys,
                     const std::vector<uint32_t>& want, std::span<const Way> ways) {
  for (const std::string& algorithm : acl_algorithm_names()) {
    if (algorithm == LinearAcl::kName && set.rules.size() > 5000) continue;
    SCOPED_TRACE(algorithm);
    auto image = build_acl(set, algorithm);
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    expect_on_host(*image, keys, want, [](uint32_t word) { return word; });
    lookups.run(acl_tables(std::make_shared<const Image>(std::move(*image))), keys, ways,
                [&](size_t i, const KeyResult& r) { return r.rule == want[i]; });
  }
}

TEST(DeviceData, AccessLists) {
  // A few of each where it would take long.
  const auto names = thorough()  ? set_names({"1k", "10k", "100k"})
                     : watched() ? set_names({"1k"})
                                 : set_names({"1k", "10k"});
  if (names.empty()) GTEST_SKIP() << "the large test data is not here (SLUICE_DATA)";
  Lookups lookups(kAclElement);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const RuleSet set = set_of(name);
    ASSERT_FALSE(set.rules.empty());
    acl_test::Random random(7);
    std::vector<FlowKey> keys = acl_test::keys_for(set, thorough() ? 20'000 : 1000, random);
    if (const auto trace = thorough() ? text_of(name + "_trace") : std::nullopt) {
      const auto more = parse_trace(*trace, name);
      ASSERT_TRUE(more.ok()) << to_string(more.error());
      keys.insert(keys.end(), more->begin(), more->end());
    }
    // What a trace can say and a packet cannot: flags past the eight of TCP.
    for (size_t i = 0; i < keys.size(); i += 50) keys[i].flags |= 3;
    // What the host finds, which classbench_sets_test holds to the oracle.
    auto image = build_acl(set, TupleSpaceAcl::kName);
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    auto view = TupleSpaceView::open(*image);
    ASSERT_TRUE(view.ok()) << to_string(view.error());
    std::vector<uint32_t> want;
    for (const FlowKey& key : keys) want.push_back(view->lookup(key));
    every_algorithm(lookups, set, keys, want, kWays);
  }
}

// Lists that change: the patched image, brought to the device as patches, and every algorithm's image of the rules of
// the moment, before and after random updates. With SLUICE_TEST_SCALE=200: 100,000 of each list.
TEST(DeviceData, AccessListsAfterRandomUpdates) {
  const char* text = std::getenv("SLUICE_TEST_SCALE");
  const size_t scale = text == nullptr ? 1 : static_cast<size_t>(std::max(1, std::atoi(text)));
  constexpr size_t kLooks = 4;
  const size_t updates = 500 * scale / kLooks;
  std::vector<std::string> names = thorough() ? set_names({"1k", "10k"}) : set_names({"1k"});
  if (!thorough()) names.resize(std::min<size_t>(names.size(), 1));
  names.push_back("random rules");
  constexpr Way kTwo[] = {kWays[0], kWays[4]};
  Lookups lookups(kAclElement);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    acl_test::Random random(71);
    RuleSet first = name == names.back() ? acl_test::random_set(random, 600) : set_of(name);
    ASSERT_FALSE(first.rules.empty());
    acl_test::ChangingList model(std::move(first.rules));
    auto list = PatchedAcl::create(model.ordered());
    ASSERT_TRUE(list.ok()) << to_string(list.error());
    size_t bytes = 0;
    for (size_t look = 0; look <= kLooks; ++look) {
      for (size_t n = 0; look != 0 && n < updates; ++n) {
        const auto ok = (*list)->apply(model.step(random));
        ASSERT_TRUE(ok.ok()) << to_string(ok.error());
      }
      SCOPED_TRACE("after " + std::to_string(look * updates));
      const RuleSet set = model.set();
      const auto priorities = model.priorities();
      auto keys = acl_test::keys_for(set, 1000, random);
      // As packets have them: ports or ICMP, not both.
      for (FlowKey& key : keys) {
        if (fits_key4(key)) key = unpack_key4(pack_key4(key));
        if (key.family == 0) key.family = 6;  // an element asks about IP packets alone
      }
      const auto want = acl_test::oracle(set, keys);
      const auto image = (*list)->publish();
      ASSERT_TRUE(image.ok()) << to_string(image.error());
      const auto position_of = [&](uint32_t word) -> uint32_t {
        if (word == 0) return 0;
        const auto priority = (*list)->priority_of(word);
        const auto at = std::lower_bound(priorities.begin(), priorities.end(), priority.value_or(~uint64_t{0}));
        return priority && at != priorities.end() && *at == *priority ? static_cast<uint32_t>(at - priorities.begin())
                                                                      : ~0u;
      };
      expect_on_host(**image, keys, want, position_of);
      lookups.run(acl_tables(*image), keys, kTwo,
                  [&](size_t i, const KeyResult& r) { return position_of(r.rule) == want[i]; });
      if (HasFailure()) return;
      // The first two copies are whole; then patches are what comes, unless the list has outgrown its image.
      if (look > 2 && (*image)->bytes().size() == bytes && updates < 1000) {
        EXPECT_LT(lookups.uploaded(), bytes);
      }
      bytes = (*image)->bytes().size();
      if (look == 0 || look == kLooks) every_algorithm(lookups, set, keys, want, kTwo);
      if (HasFailure()) return;
    }
  }
}

// What a thread read of a copy before it let go happens before the copy is patched (a sanitizer for threads sees it).
TEST(DeviceData, ACopyIsPatchedAfterItsReadersHaveLetItGo) {
  acl_test::Random random(73);
  acl_test::ChangingList model(acl_test::random_set(random, 50).rules);
  auto list = PatchedAcl::create(model.ordered());
  ASSERT_TRUE(list.ok()) << to_string(list.error());
  const Lookups lookups(kAclElement);
  auto device = open_device("emu");
  ASSERT_TRUE(device.ok()) << to_string(device.error());
  std::set<const void*> copies;
  uint64_t sum = 0;
  for (int generation = 0; generation < 8; ++generation) {
    const auto ok = (*list)->apply(model.step(random));
    ASSERT_TRUE(ok.ok()) << to_string(ok.error());
    auto image = (*list)->publish();
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    auto resident = lookups.bring(**device, acl_tables(*image));
    ASSERT_TRUE(resident.ok()) << to_string(resident.error());
    // Relaxed on purpose: the flag orders nothing between the threads.
    std::atomic<bool> gone{false};
    std::thread reader([&gone, &sum, &copies, held = std::move(*resident)]() mutable {
      for (const auto& blob : held->blobs) {
        copies.insert(blob->device());
        const auto* bytes = static_cast<const unsigned char*>(blob->device());
        for (size_t i = 0; i < blob->size(); i += 8) sum += bytes[i];
      }
      held.reset();
      gone.store(true, std::memory_order_relaxed);
    });
    while (!gone.load(std::memory_order_relaxed)) std::this_thread::yield();
    auto next = (*list)->apply(model.step(random));
    EXPECT_TRUE(next.ok());
    image = (*list)->publish();
    EXPECT_TRUE(image.ok());
    if (image.ok()) {
      EXPECT_TRUE(lookups.bring(**device, acl_tables(*image)).ok());
    }
    reader.join();
  }
  EXPECT_NE(sum, 0u);
  // One copy was enough, unless the list has outgrown its image.
  EXPECT_LE(copies.size(), 4u);
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
  Lookups lookups("IPRoute(TABLE t)");
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
    lookups.run(tables, keys, kWays, [&](size_t i, const KeyResult& r) { return r.next_hop == want[i]; });
  }
}

}  // namespace
}  // namespace sluice

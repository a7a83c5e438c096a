// Routes of many sources, groups and recursion change while readers look packets up: every answer is that of the
// generation that its reader holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "net/text.h"
#include "tables/adjacency/next_hops.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/patch.h"
#include "tables/lpm/rib_sources.h"

namespace sluice::route_churn_test {
namespace {

// 8,000 changes, times SLUICE_TEST_SCALE (125: a million).
size_t churn_scale() {
  const char* set = std::getenv("SLUICE_TEST_SCALE");
  return set != nullptr ? std::max<size_t>(1, std::strtoull(set, nullptr, 10)) : 1;
}

// What a generation is, beside its images: its routes as a sorted list, its next hops as a model.
struct Generation {
  std::shared_ptr<const Image> routes, adjacencies;
  Rib rib;
  AdjacencyModel model;

  // Flags, or a port: what a packet to the address meets, by the list and the model alone. -1: nowhere.
  int expected(uint32_t address, uint32_t hash) const {
    const uint32_t hop = rib.match({0, address, 4}).next_hop;
    if (hop == 0) return -1;
    const AdjacencyModel::Group& group = model.group(hop);
    if (group.flags != 0) return 0x10000 + group.flags;
    if (group.members.empty()) return -1;
    std::vector<uint32_t> all = group.buckets;
    if (all.empty()) {
      for (const auto& m : group.members) all.insert(all.end(), m.weight, m.neighbour);
    }
    // Weights are divided by their common divisor in the image: the regions of the hash are the same.
    return model.neighbours()[all[(uint64_t{hash} * all.size()) >> 32]].port;
  }
};

TEST(RouteChurn, ReadersSeeTheGenerationThatTheyHold) {
  const size_t generations = 40 * churn_scale();
  constexpr size_t kChangesEach = 200;
  std::mt19937_64 random(4);
  NextHopDefinitions definitions;
  const auto neighbour = [&](uint32_t n) {
    NextHopDefinition d;
    d.neighbours.emplace_back();
    d.neighbours[0].port = static_cast<uint16_t>(n);
    return d;
  };
  for (uint32_t n = 1; n <= 8; ++n) definitions.names["n" + std::to_string(n)] = neighbour(n);
  definitions.names["spread"].members = {{"n1", 1}, {"10.200.0.1", 2}, {"10.200.0.2", 1}, {"n2", 1}};
  definitions.names["spread"].buckets = 128;
  definitions.names["pair"].members = {{"n3", 1}, {"10.200.0.3", 3}};
  SourcedRib rib;
  NextHops hops(definitions);
  const uint8_t sources[] = {rib.source("bgp"), rib.source("ospf"), rib.source("static"), rib.source("control")};
  const uint8_t preferences[] = {20, 110, 1, 0};
  std::unique_ptr<PatchedRoutes> routes;
  std::unique_ptr<PatchedAdjacencies> adjacencies;
  const char* const names[] = {"n4",         "n5+n6*2",    "spread",     "pair",       "blackhole",     "unreachable",
                               "10.200.0.1", "10.200.0.2", "10.200.0.3", "10.201.0.1", "10.200.0.1+n7", "nobody"};
  for (const char* name : names) rib.next_hops().intern(name);
  for (uint32_t n = 1; n <= 8; ++n) rib.next_hops().intern("n" + std::to_string(n));
  hops.extend(rib.next_hops());
  const auto match = [&](const IpAddress& a) { return rib.match(a); };
  std::mutex mutex;  // of the standard library's atomic shared pointers the thread sanitizer sees races (GCC 12)
  std::shared_ptr<const Generation> newest;
  uint64_t sources_gone = 0, regrouped = 0;
  const auto changed = [&](const IpPrefix& prefix) {
    hops.route_changed(prefix);
    if (routes != nullptr) routes->set(prefix, rib.best(prefix));
  };
  const auto change = [&] {
    const auto r = static_cast<uint32_t>(random());
    // Prefixes that cover each other, and those that next hops are resolved through.
    const IpPrefix prefix = r % 8 == 0 ? IpPrefix{{0, 0x0ac80000 + (r >> 8 & 3), 4}, 32}
                            : r % 8 == 1
                                ? IpPrefix{{0, 0x0ac80000 + (r >> 8 & 1) * 0x10000, 4}, 16}
                                : IpPrefix{{0, (0x0a000000 + (r >> 3 & 0xffff00)) & high_mask32(12 + (r >> 28)), 4},
                                           static_cast<uint8_t>(12 + (r >> 28))};
    const size_t who = random() % 4;
    if (random() % 3 == 0) {
      rib.remove(prefix, sources[who], static_cast<uint32_t>(random() % 2));
    } else {
      const auto hop = static_cast<uint16_t>(1 + random() % rib.next_hops().count());
      rib.add(prefix, {static_cast<uint32_t>(random() % 2), hop, sources[who], preferences[who]});
    }
    changed(prefix);
  };
  const auto publish = [&] {
    auto g = std::make_shared<Generation>();
    const NextHops::Changes changes = hops.settle(match);
    g->rib = rib.best_routes();
    if (routes == nullptr) {
      routes = *PatchedRoutes::create(g->rib, {.algorithm4 = "dir24"});
      adjacencies = *PatchedAdjacencies::create(hops.model());
    }
    for (const uint32_t n : changes.neighbours) adjacencies->set_neighbour(n, hops.neighbours()[n]);
    for (const uint32_t id : changes.ids) ASSERT_TRUE(adjacencies->set_group(id, hops.group(id)));
    regrouped += changes.ids.size();
    auto fib = routes->publish();
    ASSERT_TRUE(fib.ok()) << to_string(fib.error());
    auto adj = adjacencies->publish();
    ASSERT_TRUE(adj.ok()) << to_string(adj.error());
    g->routes = *fib;
    g->adjacencies = *adj;
    g->model = hops.model();
    const std::lock_guard lock(mutex);
    newest = std::move(g);
  };
  for (size_t i = 0; i < 1000; ++i) change();
  publish();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> batches{0}, wrong{0}, answered{0};
  std::vector<std::thread> readers;
  for (size_t r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      std::mt19937_64 own(r);
      while (!stop.load()) {
        std::shared_ptr<const Generation> g;
        {
          const std::lock_guard lock(mutex);
          g = newest;
        }
        const auto view = open_adjacencies(*g->adjacencies);
        wrong += view.ok() ? 0 : 1;
        const auto ok = with_fib4(*g->routes, [&](const auto& fib) {
          for (int i = 0; i < 64; ++i) {
            const auto address = 0x0a000000u + static_cast<uint32_t>(own() % (1u << 24));
            const auto hash = static_cast<uint32_t>(own());
            const uint32_t hop = fib.lookup(address);
            const Adjacency* a = view->select(hop, hash);
            const uint32_t flags = view->flags(hop);
            const int got = a != nullptr ? a->port : flags != 0 ? static_cast<int>(0x10000 + flags) : -1;
            wrong += got != g->expected(address, hash) ? 1 : 0;
            answered += got != -1 ? 1 : 0;
          }
        });
        wrong += ok.ok() ? 0 : 1;
        ++batches;
        std::this_thread::yield();
      }
    });
  }
  for (size_t n = 0; n < generations; ++n) {
    for (size_t i = 0; i < kChangesEach; ++i) change();
    if (n % 10 == 9) {
      // A source goes, whole; a neighbour moves; a name means something else.
      const uint8_t gone = sources[random() % 4];
      for (const SourcedRib::Owned& owned : rib.owned(gone)) {
        rib.remove(owned.prefix, gone, owned.metric);
        changed(owned.prefix);
        ++sources_gone;
      }
      hops.define("n" + std::to_string(1 + random() % 8), neighbour(static_cast<uint32_t>(100 + random() % 100)));
      hops.define("n8", random() % 2 == 0 ? NextHopDefinition{} : neighbour(8));
    }
    publish();
    if (::testing::Test::HasFailure()) break;
  }
  while (batches.load() < 100) std::this_thread::yield();
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0u) << "of " << batches.load() * 64;
  EXPECT_GT(answered.load(), batches.load()) << "most addresses lead nowhere";
  EXPECT_GT(sources_gone, 10u);
  EXPECT_GT(regrouped, 10u);
}

}  // namespace
}  // namespace sluice::route_churn_test

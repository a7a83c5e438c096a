// Changes under readers: every batch gets the answers of its generation, whatever changes meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "tables/lpm/algorithms.h"
#include "tables/lpm/live.h"
#include "tables/lpm/lpm_test_tables.h"

namespace sluice {
namespace {

using namespace lpm_test;

size_t scale() {
  const char* set = std::getenv("SLUICE_TEST_SCALE");
  return set != nullptr ? std::max<size_t>(1, std::strtoull(set, nullptr, 10)) : 1;
}

// A random change of a table in which prefixes collide often: all lengths, few bases.
Route4 random_change(std::mt19937_64& random, uint32_t next_hops) {
  const auto length = static_cast<uint8_t>(random() % 4 == 0 ? random() % 17 : random() % 33);
  uint32_t address = 0x0a000000u + (static_cast<uint32_t>(random() % 8) << 14);
  if (random() % 2 == 0) address ^= static_cast<uint32_t>(random()) >> (random() % 32);
  const uint32_t next_hop = random() % 3 == 0 ? 0 : 1 + static_cast<uint32_t>(random() % next_hops);
  return {address & high_mask32(length), static_cast<uint16_t>(next_hop), length, 0};
}

void apply(Rib& rib, const Route4& change) {
  const IpPrefix prefix = prefix4(change.address, change.length);
  if (change.next_hop != 0) {
    rib.add(prefix, change.next_hop);
  } else {
    rib.remove(prefix);
  }
}

// One thread: after every batch of changes the table equals the definition, at the edges of all its prefixes.
TEST(LpmLiveUpdates, EveryGenerationEqualsTheRib) {
  std::mt19937_64 random(41);
  Rib rib;
  intern_ids(rib, 30);
  rib.settle();
  auto live = LiveFib4::create(rib);
  ASSERT_TRUE(live.ok()) << to_string(live.error());
  for (size_t batch = 0; batch < 300; ++batch) {
    const size_t changes = 1 + random() % 40;
    for (size_t i = 0; i < changes; ++i) {
      const Route4 change = random_change(random, 30);
      const uint32_t before = rib.find(prefix4(change.address, change.length));
      EXPECT_EQ(live->find(change.address, change.length), before);
      EXPECT_EQ(live->set(change.address, change.length, change.next_hop), before != change.next_hop);
      apply(rib, change);
    }
    rib.settle();
    ASSERT_TRUE(live->publish().ok());
    EXPECT_EQ(live->size(), rib.routes4().size());
    live->release(live->generation());
    const SailView view = live->view();
    for (uint32_t a : edge_addresses(rib.routes4())) {
      ASSERT_EQ(view.lookup(a), linear_lookup4(rib.routes4(), a)) << std::hex << a << " in batch " << batch;
    }
  }
}

TEST(LpmLiveUpdates, StartsFromATableAndRemovesAllOfIt) {
  Rib rib = random_rib(4, 3000, 20);
  auto live = LiveFib4::create(rib);
  ASSERT_TRUE(live.ok());
  EXPECT_EQ(live->generation(), 1u);
  EXPECT_EQ(live->size(), rib.routes4().size());
  const auto addresses = edge_addresses(rib.routes4());
  const SailView first = live->view();
  for (size_t i = 0; i < addresses.size(); i += 7) {
    ASSERT_EQ(first.lookup(addresses[i]), linear_lookup4(rib.routes4(), addresses[i]));
  }
  for (const Route4& r : rib.routes4()) EXPECT_TRUE(live->set(r.address, r.length, 0));
  EXPECT_EQ(live->size(), 0u);
  // Set, but not published: nothing has changed for readers, and afterwards the old view still answers as before.
  for (int when = 0; when < 2; ++when) {
    for (size_t i = 0; i < addresses.size(); i += 7) {
      ASSERT_EQ(first.lookup(addresses[i]), linear_lookup4(rib.routes4(), addresses[i]));
    }
    if (when == 0) {
      ASSERT_TRUE(live->publish().ok());
    }
  }
  const SailView empty = live->view();
  for (uint32_t a : addresses) ASSERT_EQ(empty.lookup(a), 0u);
}

// Without release() memory runs out: publish() says so, the last generation stands, and release() lets it go on.
TEST(LpmLiveUpdates, MemoryThatReadersHoldIsNotTaken) {
  Rib rib;
  intern_ids(rib, 3);
  rib.settle();
  LiveFib4::Options options;
  options.spare = 40;
  // One shared chunk for all 65,536 /16s leaves many free; use them up with generations.
  auto live = LiveFib4::create(rib, options);
  ASSERT_TRUE(live.ok());
  for (uint32_t slot = 0; slot < 65536; ++slot) live->set(slot << 16, 24, 1);
  ASSERT_TRUE(live->publish().ok());
  const SailView held = live->view();
  const uint64_t held_generation = live->generation();
  bool refused = false;
  for (uint32_t i = 0; i < 100 && !refused; ++i) {
    live->set(i << 16, 32, 2);
    live->set(i << 16 | 0x100, 24, 2);
    refused = !live->publish().ok();
  }
  ASSERT_TRUE(refused);
  for (uint32_t i = 0; i < 100; ++i) {
    ASSERT_EQ(held.lookup(i << 16), 1u);
    ASSERT_EQ(held.lookup(i << 16 | 0x100), 0u);
  }
  EXPECT_EQ(live->view().lookup(0), 2u);
  EXPECT_GT(live->generation(), held_generation);
  live->release(live->generation());
  ASSERT_TRUE(live->publish().ok());
  EXPECT_EQ(live->view().lookup(0x100), 2u);
}

TEST(LpmLiveUpdates, RefusesMoreNextHopsThanItHasRoomFor) {
  Rib rib;
  intern_ids(rib, 11);
  rib.settle();
  LiveFib4::Options options;
  options.next_hops = 10;
  EXPECT_FALSE(LiveFib4::create(rib, options).ok());
}

// Readers take the newest generation, look a batch up and compare it with the trie of that generation, while the writer
// changes, publishes and releases. 100,000 changes, times SLUICE_TEST_SCALE (10: a million).
TEST(LpmLiveUpdates, ReadersSeeTheirBatchesGenerationThroughMixedChanges) {
  struct Generation {
    uint64_t number;
    SailView view;
    Image oracle;
    Trie4View trie;
  };
  constexpr size_t kReaders = 3, kBatch = 256, kChangesEach = 200;
  const size_t generations = 500 * scale();
  std::mt19937_64 random(77);
  Rib rib;
  intern_ids(rib, 100);
  for (size_t i = 0; i < 2000; ++i) apply(rib, random_change(random, 100));
  rib.settle();
  auto live = LiveFib4::create(rib);
  ASSERT_TRUE(live.ok());
  auto generation = [&] {
    auto g = std::make_shared<Generation>();
    g->number = live->generation();
    g->view = live->view();
    g->oracle = std::move(*build_routes(rib, "trie", "trie"));
    g->trie = *Trie4View::open(g->oracle.section(SectionTag::kFib4), rib.next_hop_count());
    return g;
  };
  // A reader says which generation it is in before it takes its view (0: in none), and looks again after that.
  // With a lock: of the standard library's atomic shared pointers the thread sanitizer sees races (GCC 12).
  class {
   public:
    std::shared_ptr<const Generation> load() {
      const std::lock_guard lock(mutex_);
      return newest_;
    }
    void store(std::shared_ptr<const Generation> generation) {
      const std::lock_guard lock(mutex_);
      newest_ = std::move(generation);
    }

   private:
    std::mutex mutex_;
    std::shared_ptr<const Generation> newest_;
  } newest;
  newest.store(generation());
  std::atomic<uint64_t> in_use[kReaders] = {};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> batches{0}, wrong{0}, last_seen{0};
  std::vector<std::thread> readers;
  for (size_t r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] {
      std::mt19937_64 own(r);
      uint32_t addresses[kBatch], got[kBatch];
      while (!stop.load()) {
        std::shared_ptr<const Generation> g;
        for (;;) {
          g = newest.load();
          in_use[r].store(g->number);
          if (newest.load()->number == g->number) break;
        }
        for (uint32_t& a : addresses) {
          a = 0x0a000000u + static_cast<uint32_t>(own() % (1u << 17));
          if (own() % 4 == 0) a = static_cast<uint32_t>(own());
        }
        g->view.lookup_bulk(addresses, got, kBatch);
        for (size_t i = 0; i < kBatch; ++i) wrong += got[i] != g->trie.lookup(addresses[i]) ? 1 : 0;
        ++batches;
        last_seen.store(g->number);
        in_use[r].store(0);
      }
    });
  }
  for (size_t n = 0; n < generations; ++n) {
    for (size_t i = 0; i < kChangesEach; ++i) {
      const Route4 change = random_change(random, 100);
      live->set(change.address, change.length, change.next_hop);
      apply(rib, change);
    }
    rib.settle();
    ASSERT_TRUE(live->publish().ok());
    newest.store(generation());
    uint64_t oldest = live->generation();
    for (const auto& used : in_use) {
      if (const uint64_t g = used.load(); g != 0) oldest = std::min(oldest, g);
    }
    live->release(oldest);
  }
  while (batches.load() < 100) std::this_thread::yield();
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0u) << "of " << batches.load() * kBatch;
  EXPECT_EQ(live->generation(), generations + 1);
  EXPECT_GT(last_seen.load(), 1u);
}

}  // namespace
}  // namespace sluice

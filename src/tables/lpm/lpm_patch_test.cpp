// Patched routes equal the definition after every batch of changes, whatever the algorithms, and readers see the
// version that they hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "tables/lpm/algorithms.h"
#include "tables/lpm/lpm_test_tables.h"
#include "tables/lpm/patch.h"

namespace sluice {
namespace {

using namespace lpm_test;

size_t scale() {
  const char* set = std::getenv("SLUICE_TEST_SCALE");
  return set != nullptr ? std::max<size_t>(1, std::strtoull(set, nullptr, 10)) : 1;
}

struct Change {
  IpPrefix prefix;
  uint32_t next_hop;
};

// What may change: all lengths, few bases, so that prefixes cover each other. A table of them stays as large as it is,
// however many changes it sees, and so does the price of an oracle.
std::vector<IpPrefix> some_prefixes(std::mt19937_64& random, size_t n) {
  std::vector<IpPrefix> out(n);
  for (IpPrefix& p : out) {
    if (random() % 4 == 0) {
      uint64_t hi = 0x20010db800000000ull ^ (random() % 8) << (random() % 40);
      if (random() % 4 == 0) hi ^= random() >> (random() % 64);
      p = prefix6(hi, random() % 2 == 0 ? 0 : random(), static_cast<unsigned>(random() % 129));
      continue;
    }
    const auto length = static_cast<unsigned>(random() % 8 == 0 ? random() % 17 : random() % 33);
    uint32_t address = 0x0a000000u + (static_cast<uint32_t>(random() % 8) << 14);
    if (random() % 2 == 0) address ^= static_cast<uint32_t>(random()) >> (random() % 32);
    p = prefix4(address, length);
  }
  return out;
}

Change random_change(std::mt19937_64& random, const std::vector<IpPrefix>& prefixes, uint32_t next_hops) {
  const uint32_t next_hop = random() % 3 == 0 ? 0 : 1 + static_cast<uint32_t>(random() % next_hops);
  return {prefixes[random() % prefixes.size()], next_hop};
}

void apply(Rib& rib, const Change& change) {
  if (change.next_hop != 0) {
    rib.add(change.prefix, change.next_hop);
  } else {
    rib.remove(change.prefix);
  }
}

// At the edges of prefixes, every `step`th of them.
void expect_equal(const Image& image, const Rib& rib, size_t step) {
  const auto four = with_fib4(image, [&](const auto& view) {
    const auto addresses = edge_addresses(rib.routes4());
    for (size_t i = 0; i < addresses.size(); i += step) {
      ASSERT_EQ(view.lookup(addresses[i]), linear_lookup4(rib.routes4(), addresses[i])) << std::hex << addresses[i];
    }
  });
  ASSERT_TRUE(four.ok()) << to_string(four.error());
  const auto six = with_fib6(image, [&](const auto& view) {
    const auto addresses = edge_addresses(rib.routes6());
    for (size_t i = 0; i < addresses.hi.size(); i += step) {
      ASSERT_EQ(view.lookup(addresses.hi[i], addresses.lo[i]),
                linear_lookup6(rib.routes6(), addresses.hi[i], addresses.lo[i]));
    }
  });
  ASSERT_TRUE(six.ok()) << to_string(six.error());
}

void random_updates(const char* algorithm4, const char* algorithm6, size_t batches, uint64_t seed) {
  SCOPED_TRACE(std::string(algorithm4) + " " + algorithm6);
  std::mt19937_64 random(seed);
  const std::vector<IpPrefix> prefixes = some_prefixes(random, 1000);
  Rib rib = random_rib(seed, 300, 30);
  auto table = PatchedRoutes::create(rib, {.algorithm4 = algorithm4, .algorithm6 = algorithm6});
  ASSERT_TRUE(table.ok()) << to_string(table.error());
  for (size_t batch = 0; batch < batches; ++batch) {
    for (size_t i = random() % 40; i > 0; --i) {
      const Change change = random_change(random, prefixes, 30);
      const uint32_t before = rib.find(change.prefix);
      ASSERT_EQ((*table)->find(change.prefix), before);
      ASSERT_EQ((*table)->set(change.prefix, change.next_hop), before != change.next_hop);
      apply(rib, change);
    }
    rib.settle();
    const auto image = (*table)->publish();
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    ASSERT_EQ((*table)->size(), rib.size());
    expect_equal(**image, rib, 1 + random() % 9);
    if (testing::Test::HasFailure()) {
      FAIL() << "in batch " << batch;
    }
  }
  // As an image from a file, with all checks.
  const auto sealed = (*table)->replicas().seal();
  ASSERT_TRUE(sealed.ok());
  const auto image = Image::from_bytes(sealed->bytes(), ImageKind::kRoutes);
  ASSERT_TRUE(image.ok());
  expect_equal(*image, rib, 1);
  const Rib model = (*table)->rib();
  EXPECT_TRUE(std::ranges::equal(model.routes4(), rib.routes4()));
  EXPECT_TRUE(std::ranges::equal(model.routes6(), rib.routes6()));
}

TEST(PatchedRoutes, EveryVersionEqualsTheRib) {
  random_updates("dir24", "poptrie", 60 * scale(), 51);
  random_updates("sail", "range24", 60 * scale(), 52);
  random_updates("poptrie", "planb", 10, 53);
  random_updates("trie", "linear", 10, 54);
}

TEST(PatchedRoutes, StartsFromATableAndRemovesAllOfIt) {
  for (const char* algorithm : {"dir24", "sail"}) {
    Rib rib = random_rib(4, 3000, 20);
    auto table = PatchedRoutes::create(rib, {.algorithm4 = algorithm});
    ASSERT_TRUE(table.ok());
    const auto first = (*table)->publish();
    ASSERT_TRUE(first.ok());
    expect_equal(**first, rib, 19);
    for (const Route4& r : rib.routes4()) EXPECT_TRUE((*table)->set(prefix4(r.address, r.length), 0));
    for (const Route6& r : rib.routes6()) EXPECT_TRUE((*table)->set(prefix6(r.hi, r.lo, r.length), 0));
    EXPECT_EQ((*table)->size(), 0u);
    const auto second = (*table)->publish();
    ASSERT_TRUE(second.ok());
    expect_equal(**first, rib, 19);  // as it was
    Rib none;
    intern_ids(none, 20);
    expect_equal(**second, none, 1);
    ASSERT_TRUE(with_fib4(**second, [&](const auto& view) {
                  for (const Route4& r : rib.routes4()) ASSERT_EQ(view.lookup(r.address), 0u);
                }).ok());
  }
}

// Past the room of the first image, past 65,535 next hops and blocks, and with next hops that it does not know.
TEST(PatchedRoutes, GrowsIntoALargerImage) {
  for (const char* algorithm : {"dir24", "sail"}) {
    Rib rib;
    intern_ids(rib, 3);
    rib.settle();
    auto table = PatchedRoutes::create(rib, {.algorithm4 = algorithm});
    ASSERT_TRUE(table.ok());
    const auto empty = (*table)->publish();
    ASSERT_TRUE(empty.ok());
    for (uint32_t i = 0; i < 70'000; ++i) {
      const uint32_t address = i * 40'503u << 8 | 3;
      (*table)->set(prefix4(address, 32), 1 + i % 3);
      rib.add(prefix4(address, 32), 1 + i % 3);
    }
    const auto large = (*table)->publish();
    ASSERT_TRUE(large.ok()) << to_string(large.error());
    EXPECT_EQ((*table)->rebuilds(), 1u);
    rib.settle();
    ASSERT_TRUE(with_fib4(**large, [&](const auto& view) {
                  if constexpr (requires { view.wide(); }) {
                    EXPECT_TRUE(view.wide());
                  }
                  for (const Route4& r : rib.routes4()) {
                    ASSERT_EQ(view.lookup(r.address), r.next_hop);
                    ASSERT_EQ(view.lookup(r.address + 1), 0u);
                  }
                }).ok());
    const uint32_t fresh = (*table)->intern("n4");
    EXPECT_EQ(fresh, 4u);
    EXPECT_EQ((*table)->intern("n2"), 2u);
    (*table)->set(prefix4(0, 0), fresh);
    const auto named = (*table)->publish();
    ASSERT_TRUE(named.ok());
    EXPECT_EQ((*table)->rebuilds(), 2u);
    ASSERT_TRUE(with_fib4(**named, [&](const auto& view) { EXPECT_EQ(view.lookup(0x01020304), 4u); }).ok());
    EXPECT_EQ(NextHopNames::open((*named)->section(SectionTag::kNextHopNames))->name(4), "n4");
    ASSERT_TRUE(with_fib4(**empty, [&](const auto& view) { EXPECT_EQ(view.lookup(0x01020304), 0u); }).ok());
  }
}

TEST(PatchedRoutes, SaysWhyNot) {
  Rib rib = random_rib(5, 100, 3);
  const auto unknown = PatchedRoutes::create(rib, {.algorithm4 = "dir42"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(to_string(unknown.error()), testing::HasSubstr("dir24"));
  const auto large = PatchedRoutes::create(rib, {.algorithm4 = "dir24", .max_bytes = 1'000'000});
  ASSERT_FALSE(large.ok());
  EXPECT_THAT(to_string(large.error()), testing::HasSubstr("and 1000000 are allowed"));
}

// Readers take the newest version, look a batch up and compare it with the trie of that version, while the writer
// changes and publishes. 8,000 changes, times SLUICE_TEST_SCALE (125: a million).
TEST(PatchedRoutes, ReadersSeeTheVersionThatTheyHold) {
  struct Version {
    std::shared_ptr<const Image> image;
    Image oracle;
    Trie4View trie;
  };
  constexpr size_t kBatch = 256, kChangesEach = 200;
  const size_t versions = 40 * scale();
  std::mt19937_64 random(77);
  const std::vector<IpPrefix> prefixes = some_prefixes(random, 4000);
  Rib rib;
  intern_ids(rib, 100);
  for (size_t i = 0; i < 3000; ++i) apply(rib, random_change(random, prefixes, 100));
  rib.settle();
  auto table = PatchedRoutes::create(rib, {.algorithm4 = "sail"});
  ASSERT_TRUE(table.ok());
  std::mutex mutex;  // of the standard library's atomic shared pointers the thread sanitizer sees races (GCC 12)
  std::shared_ptr<const Version> newest;
  auto publish = [&] {
    auto v = std::make_shared<Version>();
    auto image = (*table)->publish();
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    v->image = *image;
    v->oracle = *build_routes(rib, "trie", "trie");
    v->trie = *Trie4View::open(v->oracle.section(SectionTag::kFib4), rib.next_hop_count());
    const std::lock_guard lock(mutex);
    newest = std::move(v);
  };
  publish();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> batches{0}, wrong{0};
  std::vector<std::thread> readers;
  for (size_t r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      std::mt19937_64 own(r);
      uint32_t addresses[kBatch], got[kBatch];
      while (!stop.load()) {
        std::shared_ptr<const Version> v;
        {
          const std::lock_guard lock(mutex);
          v = newest;
        }
        for (uint32_t& a : addresses) {
          a = 0x0a000000u + static_cast<uint32_t>(own() % (1u << 17));
          if (own() % 4 == 0) a = static_cast<uint32_t>(own());
        }
        const auto ok = with_fib4(*v->image, [&](const auto& view) { view.lookup_bulk(addresses, got, kBatch); });
        wrong += ok.ok() ? 0 : 1;
        for (size_t i = 0; i < kBatch; ++i) wrong += got[i] != v->trie.lookup(addresses[i]) ? 1 : 0;
        ++batches;
        std::this_thread::yield();
      }
    });
  }
  for (size_t n = 0; n < versions; ++n) {
    for (size_t i = 0; i < kChangesEach; ++i) {
      const Change change = random_change(random, prefixes, 100);
      (*table)->set(change.prefix, change.next_hop);
      apply(rib, change);
    }
    rib.settle();
    publish();
    if (testing::Test::HasFailure()) break;
  }
  while (batches.load() < 100) std::this_thread::yield();
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0u) << "of " << batches.load() * kBatch;
  EXPECT_LE((*table)->replicas().replicas(), 4u);
}

}  // namespace
}  // namespace sluice

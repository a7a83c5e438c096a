// Patched routes at the end of their image's room: chunks, blocks, nodes and lists run out, whatever the algorithms,
// and what is published is what was set; where no larger image may be, nothing is published.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "tables/lpm/algorithms.h"
#include "tables/lpm/lpm_test_tables.h"
#include "tables/lpm/patch.h"

namespace sluice {
namespace {

using namespace lpm_test;

// Routes that change, told by the trie of the same version.
class RoutesTwin {
 public:
  explicit RoutesTwin(PatchedRoutesOptions options, uint32_t next_hops = 5) {
    intern_ids(rib_, next_hops);
    rib_.settle();
    auto made = PatchedRoutes::create(rib_, options);
    EXPECT_TRUE(made.ok()) << to_string(made.error());
    table_ = std::move(*made);
  }
  PatchedRoutes& table() { return *table_; }
  const Rib& rib() const { return rib_; }
  void set(const IpPrefix& prefix, uint32_t next_hop) {
    table_->set(prefix, next_hop);
    next_hop != 0 ? rib_.add(prefix, next_hop) : void(rib_.remove(prefix));
  }
  // At the edges of routes, of some where they are many, and anywhere.
  void look(const Image& image, uint64_t seed) {
    rib_.settle();
    const auto oracle = build_routes(rib_, "trie", "trie");
    ASSERT_TRUE(oracle.ok());
    const auto four = Trie4View::open(oracle->section(SectionTag::kFib4), rib_.next_hop_count());
    const auto six = Trie6View::open(oracle->section(SectionTag::kFib6), rib_.next_hop_count());
    ASSERT_TRUE(four.ok() && six.ok());
    // Those that were asked for first: they are not skipped.
    ASSERT_TRUE(with_fib4(image, [&](const auto& view) {
                  for (uint32_t a : touched4_) ASSERT_EQ(view.lookup(a), four->lookup(a)) << std::hex << a;
                }).ok());
    auto addresses4 = edge_addresses(rib_.routes4());
    for (uint32_t a : uniform4(64, seed)) addresses4.push_back(a);
    const auto addresses6 = edge_addresses(rib_.routes6());
    ASSERT_TRUE(with_fib4(image, [&](const auto& view) {
                  for (size_t i = 0; i < addresses4.size(); i += 1 + addresses4.size() / 2500) {
                    const uint32_t a = addresses4[i];
                    ASSERT_EQ(view.lookup(a), four->lookup(a)) << std::hex << a;
                  }
                }).ok());
    ASSERT_TRUE(with_fib6(image, [&](const auto& view) {
                  for (size_t i = 0; i < addresses6.hi.size(); i += 1 + addresses6.hi.size() / 2500) {
                    ASSERT_EQ(view.lookup(addresses6.hi[i], addresses6.lo[i]),
                              six->lookup(addresses6.hi[i], addresses6.lo[i]));
                  }
                }).ok());
  }
  void look_at(uint32_t address) { touched4_.push_back(address); }
  void publish_and_look(uint64_t seed) {
    const auto image = table_->publish();
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    look(**image, seed);
  }

 private:
  Rib rib_;
  std::unique_ptr<PatchedRoutes> table_;
  std::vector<uint32_t> touched4_;
};

// The room of the first image is passed by one kind of route after another, and left again.
void grow_and_shrink(const std::string& algorithm4, const std::string& algorithm6) {
  SCOPED_TRACE(algorithm4 + " " + algorithm6);
  RoutesTwin twin({.algorithm4 = algorithm4, .algorithm6 = algorithm6});
  const bool paints = algorithm4 == Dir24::kName || algorithm4 == Sail::kName;
  std::vector<IpPrefix> there;
  uint64_t seed = 1;
  std::mt19937_64 random(7);
  // /32s, each in a /24 of its own; /17s, each in a /16 of its own; nested ones; IPv6 of all lengths.
  const auto prefix = [&](int kind, uint32_t n) {
    const uint32_t spread = n * 2654435761u;
    switch (kind) {
      case 0:
        return prefix4(0x0a000000 + (n << 8 | (spread & 255)), 32);
      case 1:
        return prefix4(n << 16 | (n % 2) << 15, 17);
      case 2:
        return prefix4(spread, 9 + n % 24);
      default:
        return prefix6(uint64_t{1} << 61 | uint64_t{spread} << 24, random(), 20 + n % 109);
    }
  };
  for (int kind = 0; kind < 4; ++kind) {
    const uint32_t count = kind < 2 ? 1400 : kind == 2 ? 6000 : 2600;
    for (uint32_t n = 0; n < count; ++n) {
      const IpPrefix p = prefix(kind, n);
      twin.set(p, 1 + n % 5);
      there.push_back(p);
      const bool at_the_end = paints && kind < 2 && n >= 1020 && n < 1030;
      if (n + 1 == count || n % 500 == 499 || at_the_end) twin.publish_and_look(++seed);
      if (testing::Test::HasFailure()) FAIL() << "kind " << kind << ", route " << n;
    }
  }
  EXPECT_GT(twin.table().rebuilds(), 0u) << "the end of the room was met";
  std::shuffle(there.begin(), there.end(), random);
  for (size_t n = 0; n < there.size(); ++n) {
    twin.set(there[n], 0);
    if (n % 1500 == 0) twin.publish_and_look(++seed);
    ASSERT_FALSE(testing::Test::HasFailure()) << "without " << n;
  }
  twin.publish_and_look(++seed);
  EXPECT_EQ(twin.rib().size(), 0u);
}

TEST(PatchedRoutesRoom, EveryAlgorithmGrowsAndShrinks) {
  const auto four = lpm_algorithm_names4(), six = lpm_algorithm_names6();
  for (size_t i = 0; i < std::max(four.size(), six.size()); ++i) {
    grow_and_shrink(four[i % four.size()], six[i % six.size()]);
    if (testing::Test::HasFailure()) return;
  }
}

// No larger image may be built: what does not fit is not published, what was published stays, and when routes have gone
// the image holds all that is left. Of a /16 that gets entries of its own just then, every part is right.
TEST(PatchedRoutesRoom, PublishesNoPatchThatDoesNotFit) {
  for (const char* algorithm : {"dir24", "sail"}) {
    SCOPED_TRACE(algorithm);
    size_t bytes = 0;
    {
      RoutesTwin probe({.algorithm4 = algorithm});
      bytes = (*probe.table().publish())->bytes().size();
    }
    RoutesTwin twin({.algorithm4 = algorithm, .max_bytes = bytes});
    twin.set(prefix4(0, 0), 1);
    twin.publish_and_look(1);
    // All blocks but one, in /16s that have entries of their own.
    for (uint32_t n = 0; n < 1023; ++n) twin.set(prefix4(0x0a000000 + (n << 8), 32), 2);
    twin.publish_and_look(2);
    ASSERT_EQ(twin.table().rebuilds(), 0u);
    const auto before = *twin.table().publish();
    // A /16 without routes of its own gets some, and blocks for two of them, of which there is one.
    twin.set(prefix4(0x30001000, 20), 3);
    twin.set(prefix4(0x30001101, 32), 4);
    twin.set(prefix4(0x30001201, 32), 4);
    for (uint32_t a : {0x30000000u, 0x30001000u, 0x30001101u, 0x30001fffu, 0x30002000u, 0x3000ffffu}) twin.look_at(a);
    for (int i = 0; i < 2; ++i) {
      const auto refused = twin.table().publish();
      ASSERT_FALSE(refused.ok());
      EXPECT_THAT(to_string(refused.error()), testing::HasSubstr("are allowed"));
    }
    ASSERT_TRUE(with_fib4(*before, [](const auto& view) {
                  EXPECT_EQ(view.lookup(0x30001101), 1u);
                  EXPECT_EQ(view.lookup(0x0a000100), 2u);
                }).ok());
    twin.set(prefix4(0x30001201, 32), 0);
    twin.publish_and_look(3);
    EXPECT_EQ(twin.table().rebuilds(), 0u);
    twin.set(prefix4(0x0a000000, 32), 0);
    twin.set(prefix4(0x30001201, 32), 4);
    twin.publish_and_look(4);
    EXPECT_EQ(twin.table().rebuilds(), 0u);
  }
}

}  // namespace
}  // namespace sluice

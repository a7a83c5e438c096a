// Generators are the same everywhere and have the distributions that they promise.
#include "generate/random.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <numeric>

namespace sluice {
namespace {

TEST(RandomTest, SequenceIsFixedForever) {
  Random a(1);
  Random b(1);
  Random other_stream(1, 1);
  Random other_seed(2);
  uint64_t hash = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t v = a.next();
    ASSERT_EQ(v, b.next());
    EXPECT_NE(v, other_stream.next());
    EXPECT_NE(v, other_seed.next());
    hash = mix64(hash ^ v);
  }
  EXPECT_EQ(hash, 0x39ceecd0a9d6ec7aull) << std::hex << hash;
}

TEST(RandomTest, BelowStaysBelowAndReachesAll) {
  Random r(3);
  std::vector<uint32_t> seen(7);
  for (int i = 0; i < 70'000; ++i) ++seen[r.below(7)];
  for (const uint32_t n : seen) EXPECT_NEAR(n, 10'000, 500);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t v = r.between(5, 9);
    EXPECT_GE(v, 5u);
    EXPECT_LE(v, 9u);
  }
  EXPECT_EQ(r.below(1), 0u);
}

TEST(RandomTest, ChanceIsItsProbability) {
  EXPECT_EQ(chance_threshold(-1), 0u);
  EXPECT_EQ(chance_threshold(std::nan("")), 0u);
  EXPECT_EQ(chance_threshold(2), uint64_t{1} << 32);
  Random r(4);
  int hits = 0;
  for (int i = 0; i < 100'000; ++i) hits += r.chance(chance_threshold(0.3));
  EXPECT_NEAR(hits, 30'000, 700);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(r.chance(chance_threshold(1)));
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(r.chance(chance_threshold(0)));
}

TEST(RandomTest, FixedPointPowersAreRight) {
  for (const uint64_t x : {1ull, 2ull, 3ull, 7ull, 1000ull, 16777216ull, 16777215ull, 0xffffffffffffffffull}) {
    EXPECT_NEAR(static_cast<double>(fixed_log2(x)) / 4294967296.0, std::log2(static_cast<double>(x)), 2e-9) << x;
  }
  for (const double y : {0.0, 0.25, 0.5, 1.0, 1.75, 10.3, 40.9}) {
    const double got =
        static_cast<double>(fixed_exp2_negative(static_cast<uint64_t>(y * 4294967296.0))) / 9223372036854775808.0;
    EXPECT_NEAR(got / std::exp2(-y), 1.0, 1e-5) << y;
  }
  EXPECT_EQ(fixed_exp2_negative(uint64_t{200} << 32), 0u);
}

TEST(RandomTest, ZipfWeightsFollowTheLaw) {
  for (const double exponent : {0.0, 0.5, 1.0, 1.25, 2.0}) {
    const auto weights = zipf_weights(10'000, exponent);
    for (const uint64_t k : {1ull, 2ull, 10ull, 999ull, 10'000ull}) {
      const double expected = static_cast<double>(weights[0]) * std::pow(static_cast<double>(k), -exponent);
      EXPECT_NEAR(static_cast<double>(weights[k - 1]) / expected, 1.0, 0.002) << exponent << ' ' << k;
    }
    EXPECT_TRUE(std::is_sorted(weights.rbegin(), weights.rend()));
  }
  for (const uint64_t w : zipf_weights(1000, 8.0)) EXPECT_GE(w, 1u);
}

// The construction is exact: the threshold shares of every index add up to its weight, to within rounding.
TEST(RandomTest, AliasTableDrawsByWeight) {
  const std::vector<uint64_t> weights{1, 0, 5, 100, 0, 894};
  const AliasTable table(weights);
  Random r(5);
  std::vector<double> seen(weights.size());
  constexpr int kDraws = 1'000'000;
  for (int i = 0; i < kDraws; ++i) ++seen[table.draw(r)];
  for (size_t i = 0; i < weights.size(); ++i) {
    const double expected = static_cast<double>(weights[i]) / 1000 * kDraws;
    EXPECT_NEAR(seen[i], expected, 5 * std::sqrt(expected) + 0.5) << i;
  }
}

TEST(RandomTest, AliasTableNeverDrawsAZeroWeight) {
  EXPECT_TRUE(rc::check([](const std::vector<uint16_t>& drawn, uint64_t seed) {
    RC_PRE(drawn.size() < 200);
    std::vector<uint64_t> weights(drawn.begin(), drawn.end());
    RC_PRE(std::accumulate(weights.begin(), weights.end(), uint64_t{0}) > 0);
    const AliasTable table(weights);
    Random r(seed);
    for (int i = 0; i < 200; ++i) RC_ASSERT(weights[table.draw(r)] > 0);
  }));
}

}  // namespace
}  // namespace sluice

#include "base/histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

namespace sluice {
namespace {

// Values of every magnitude: a uniform u64 is almost never below 2^56.
rc::Gen<uint64_t> any_magnitude() {
  return rc::gen::map(rc::gen::pair(rc::gen::arbitrary<uint64_t>(), rc::gen::inRange(0, 64)),
                      [](const std::pair<uint64_t, int>& p) {
                        // Shrinks towards small values, which RapidCheck's sized integers alone never leave.
                        const uint64_t mixed = (p.first + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
                        return mixed >> p.second;
                      });
}

// The definition, over sorted samples: rank ceil(percent * n / 100).
uint64_t exact_percentile(const std::vector<uint64_t>& sorted, uint64_t per_mille) {
  const uint64_t rank = std::max<uint64_t>(1, (per_mille * sorted.size() + 999) / 1000);
  return sorted[rank - 1];
}

TEST(HistogramLayout, EveryBucketEdgeMapsToItsBucketAndBucketsTile) {
  uint64_t next = 0;
  for (size_t i = 0; i < Histogram::kBuckets; ++i) {
    const uint64_t low = Histogram::lowest(i);
    const uint64_t width = Histogram::width(i);
    ASSERT_EQ(low, next) << i;
    ASSERT_EQ(Histogram::index_of(low), i);
    ASSERT_EQ(Histogram::index_of(low + (width - 1)), i);
    if (i >= Histogram::kSubBuckets) {
      ASSERT_LE(width, low / Histogram::kSubBuckets) << i;
    }
    next = low + width;
  }
  EXPECT_EQ(next, 0u) << "the last bucket ends at 2^64";
}

TEST(Histogram, EmptyIsZeroEverywhere) {
  const Histogram h;
  EXPECT_TRUE(h.empty());
  EXPECT_EQ(h.min(), 0u);
  EXPECT_EQ(h.max(), 0u);
  EXPECT_EQ(h.percentile(50), 0u);
  EXPECT_EQ(h.mean(), 0.0);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram h;
  for (uint64_t v = 1; v <= 100; ++v) h.record(v);
  EXPECT_EQ(h.percentile(50), 50u);
  EXPECT_EQ(h.percentile(99), 99u);
  EXPECT_EQ(h.percentile(99.9), 100u);
  EXPECT_EQ(h.percentile(0), 1u);
  EXPECT_EQ(h.percentile(-3), 1u);
  EXPECT_EQ(h.percentile(100), 100u);
  EXPECT_DOUBLE_EQ(h.mean(), 50.5);
}

TEST(Histogram, RankIsNotRoundedUpByTheDivision) {
  Histogram h;
  h.record(1, 999);
  h.record(50, 1);
  EXPECT_EQ(h.percentile(99.9), 1u);  // rank 999 of 1000
  EXPECT_EQ(h.percentile(99.95), 50u);
}

TEST(Histogram, HoldsTheLargestValue) {
  Histogram h;
  h.record(~uint64_t{0});
  h.record(0);
  EXPECT_EQ(h.max(), ~uint64_t{0});
  EXPECT_EQ(h.min(), 0u);
  EXPECT_EQ(h.percentile(100), ~uint64_t{0});
  EXPECT_EQ(h.percentile(50), 0u);
}

TEST(Histogram, PercentilesAreWithinTheStatedErrorOfSortedSamples) {
  EXPECT_TRUE(rc::check([] {
    auto samples = *rc::gen::nonEmpty(rc::gen::container<std::vector<uint64_t>>(any_magnitude()));
    auto h = std::make_unique<Histogram>();
    for (const uint64_t v : samples) h->record(v);
    std::sort(samples.begin(), samples.end());
    RC_ASSERT(h->count() == samples.size());
    RC_ASSERT(h->min() == samples.front());
    RC_ASSERT(h->max() == samples.back());
    for (const uint64_t per_mille : {0, 1, 10, 250, 500, 750, 900, 990, 999, 1000}) {
      const uint64_t exact = exact_percentile(samples, per_mille);
      const uint64_t got = h->percentile(static_cast<double>(per_mille) / 10);
      RC_ASSERT(got >= exact);
      RC_ASSERT(got - exact <= exact / Histogram::kSubBuckets);
    }
    double sum = 0;
    for (const uint64_t v : samples) sum += static_cast<double>(v);
    const double mean = sum / static_cast<double>(samples.size());
    RC_ASSERT(std::abs(h->mean() - mean) <= mean * Histogram::kRelativeError / 2 + 1e-9 * mean);
  }));
}

TEST(Histogram, MergeEqualsRecordingEverythingInOne) {
  EXPECT_TRUE(rc::check([] {
    const auto a = *rc::gen::container<std::vector<uint64_t>>(any_magnitude());
    const auto b = *rc::gen::container<std::vector<uint64_t>>(any_magnitude());
    auto left = std::make_unique<Histogram>();
    auto right = std::make_unique<Histogram>();
    auto both = std::make_unique<Histogram>();
    for (const uint64_t v : a) left->record(v), both->record(v);
    for (const uint64_t v : b) right->record(v), both->record(v);
    left->merge(*right);
    RC_ASSERT(left->count() == both->count());
    RC_ASSERT(left->min() == both->min());
    RC_ASSERT(left->max() == both->max());
    for (const double p : {0.0, 12.5, 50.0, 99.0, 99.9, 100.0}) RC_ASSERT(left->percentile(p) == both->percentile(p));
  }));
}

TEST(Histogram, CountIsAWeight) {
  Histogram once;
  Histogram many;
  for (int i = 0; i < 7; ++i) many.record(12345);
  once.record(12345, 7);
  once.record(99, 0);
  EXPECT_EQ(once.count(), 7u);
  EXPECT_EQ(once.min(), 12345u);
  EXPECT_EQ(once.percentile(50), many.percentile(50));
}

TEST(Histogram, CopyIsASnapshotAndClearEmpties) {
  Histogram h;
  h.record(1000);
  Histogram copy(h);
  h.clear();
  EXPECT_TRUE(h.empty());
  EXPECT_EQ(h.max(), 0u);
  EXPECT_EQ(copy.count(), 1u);
  h = copy;
  EXPECT_EQ(h.percentile(50), 1000u);
}

RC_GTEST_PROP(Histogram, CountsUpToTheHighestValueOfABucketAreExact, ()) {
  const auto samples = *rc::gen::container<std::vector<uint64_t>>(any_magnitude());
  Histogram h;
  for (const uint64_t v : samples) h.record(v);
  for (unsigned octave = 6; octave < 63; ++octave) {
    for (uint64_t step = 0; step < 4; ++step) {
      const uint64_t highest = (uint64_t{1} << octave) + (step << (octave - 2)) - 1;
      const auto exact = std::count_if(samples.begin(), samples.end(), [&](uint64_t v) { return v <= highest; });
      RC_ASSERT(h.count_up_to(highest) == static_cast<uint64_t>(exact));
    }
  }
  RC_ASSERT(h.count_up_to(~uint64_t{0}) == samples.size());
}

// Under the thread sanitizer this is the proof that `show runtime` may read while a worker records.
TEST(Histogram, ReadersNeedNoLock) {
  constexpr uint64_t kSamples = 200000;
  Histogram h;
  std::atomic<bool> done{false};
  std::thread reader([&] {
    uint64_t last = 0;
    while (!done.load()) {
      const uint64_t n = h.count();
      EXPECT_GE(n, last);
      EXPECT_LE(n, kSamples);
      EXPECT_LE(h.percentile(99), uint64_t{1023});
      last = n;
    }
  });
  for (uint64_t i = 0; i < kSamples; ++i) h.record(i & 1023);
  done.store(true);
  reader.join();
  EXPECT_EQ(h.count(), kSamples);
}

RC_GTEST_PROP(Histogram, WithoutItsEarlierSelfIsWhatCameSince, ()) {
  const auto before = *rc::gen::container<std::vector<uint64_t>>(any_magnitude());
  const auto since = *rc::gen::container<std::vector<uint64_t>>(any_magnitude());
  const auto all = std::make_unique<Histogram>(), only = std::make_unique<Histogram>();
  for (const uint64_t v : before) all->record(v);
  const auto earlier = std::make_unique<Histogram>(*all);
  for (const uint64_t v : since) {
    all->record(v);
    only->record(v);
  }
  all->subtract(*earlier);
  RC_ASSERT(all->count() == since.size());
  for (const double p : {0.0, 50.0, 99.0, 100.0}) {
    // The greatest value is known by its bucket.
    RC_ASSERT(all->percentile(p) >= only->percentile(p));
    RC_ASSERT(Histogram::index_of(all->percentile(p)) == Histogram::index_of(only->percentile(p)));
  }
  RC_ASSERT(all->min() <= only->min());
  RC_ASSERT(Histogram::index_of(all->min()) == Histogram::index_of(only->min()));
  // It goes on as any other.
  all->record(7);
  RC_ASSERT(all->count() == since.size() + 1 && all->min() <= 7u && all->max() >= 7u);
}

}  // namespace
}  // namespace sluice

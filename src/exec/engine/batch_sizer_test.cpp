#include "exec/engine/batch_sizer.h"

#include <gtest/gtest.h>

#include <deque>

namespace sluice {
namespace {

// A machine on which a batch takes `fixed` and `each` a packet, with full batches always.
uint32_t settle(BatchSizer& sizer, uint64_t fixed, uint64_t each, int batches) {
  for (int i = 0; i < batches; ++i) sizer.took(fixed + each * sizer.limit(), sizer.limit(), sizer.round());
  return sizer.limit();
}

TEST(BatchSizer, WithoutATargetNothingChanges) {
  BatchSizer sizer(0, 256);
  EXPECT_EQ(settle(sizer, 1'000'000'000, 1, 100), 256u);
  EXPECT_EQ(sizer.round(), 0u);
}

TEST(BatchSizer, StaysAtTheLargestWhileTheTargetIsMet) {
  BatchSizer sizer(50'000, 256);
  EXPECT_EQ(settle(sizer, 1000, 100, 100), 256u);
  EXPECT_EQ(sizer.raised() + sizer.lowered(), 0u);
}

TEST(BatchSizer, ComesDownToTheTargetAndStaysThere) {
  // 100 ns a packet and 2 us: 480 packets fill 50 us, and nothing is raised from 355 on.
  BatchSizer sizer(50'000, 4096);
  settle(sizer, 2000, 100, 200);
  for (int i = 0; i < 200; ++i) {
    const uint64_t ns = 2000 + 100 * uint64_t{sizer.limit()};
    EXPECT_LE(ns, 50'000u);
    EXPECT_GE(sizer.limit(), 355u - BatchSizer::kStep);
    sizer.took(ns, sizer.limit(), sizer.round());
  }
  // 4096, 3072, 2304, 1728, 1296, 972, 729, 546, 409
  EXPECT_EQ(sizer.lowered(), 8u);
  EXPECT_EQ(sizer.raised(), 0u);
  EXPECT_EQ(sizer.limit(), 409u);
}

TEST(BatchSizer, NeverBelowTheSmallest) {
  BatchSizer sizer(1000, 256);
  EXPECT_EQ(settle(sizer, 1'000'000, 100, 100), BatchSizer::kSmallest);
  const uint64_t changes = sizer.round();
  settle(sizer, 1'000'000, 100, 100);
  EXPECT_EQ(sizer.round(), changes);
  BatchSizer tiny(1000, 5);
  EXPECT_EQ(settle(tiny, 1'000'000, 100, 100), 5u);
}

TEST(BatchSizer, GrowsAgainByStepsWhenTheMachineIsQuickAgain) {
  BatchSizer sizer(50'000, 256);
  EXPECT_EQ(settle(sizer, 100'000, 0, 50), 32u);
  EXPECT_EQ(settle(sizer, 1000, 10, 3), 128u);
  EXPECT_EQ(settle(sizer, 1000, 10, 100), 256u);
  EXPECT_EQ(sizer.raised(), 7u);
}

TEST(BatchSizer, BatchesThatWereNotFullDoNotRaise) {
  BatchSizer sizer(50'000, 256);
  settle(sizer, 100'000, 0, 50);
  for (int i = 0; i < 100; ++i) sizer.took(100, sizer.limit() - 1, sizer.round());
  EXPECT_EQ(sizer.limit(), 32u);
}

// Four batches are on their way at a time; all were read before the first came back late.
TEST(BatchSizer, LateTogetherCountsOnce) {
  BatchSizer sizer(50'000, 1024);
  std::deque<uint64_t> rounds(4, sizer.round());
  for (const uint64_t round : rounds) sizer.took(90'000, 1024, round);
  EXPECT_EQ(sizer.limit(), 768u);
  EXPECT_EQ(sizer.lowered(), 1u);
}

// Every limit lies within the bounds, and the same latencies give the same limits.
TEST(BatchSizer, BoundedAndDeterministic) {
  for (const uint32_t largest : {1u, 7u, 32u, 33u, 64u, 256u, 4096u}) {
    BatchSizer a(20'000, largest), b(20'000, largest);
    uint64_t state = largest;
    for (int i = 0; i < 2000; ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      const uint64_t ns = (state >> 33) % 40'000;
      a.took(ns, a.limit(), a.round());
      b.took(ns, b.limit(), b.round());
      ASSERT_GE(a.limit(), std::min(32u, largest));
      ASSERT_LE(a.limit(), largest);
      ASSERT_EQ(a.limit(), b.limit());
    }
  }
}

}  // namespace
}  // namespace sluice

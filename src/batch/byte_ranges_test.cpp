#include "batch/byte_ranges.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace sluice {
namespace {

std::vector<std::pair<int32_t, int32_t>> listed(const ByteRanges& ranges) {
  std::vector<std::pair<int32_t, int32_t>> all;
  for (const ByteRange& r : ranges) all.emplace_back(r.from, r.to);
  return all;
}

TEST(ByteRanges, ThoseThatTouchOrLieNearAreOne) {
  using Listed = std::vector<std::pair<int32_t, int32_t>>;
  EXPECT_EQ(listed({}), Listed{});
  EXPECT_EQ(listed({{5, 5}}), Listed{});
  EXPECT_EQ(listed({{0, 12}}), (Listed{{0, 12}}));
  EXPECT_EQ(listed({{0, 12}, {12, 14}}), (Listed{{0, 14}}));
  EXPECT_EQ(listed({{0, 12}, {27, 28}}), (Listed{{0, 28}}));
  EXPECT_EQ(listed({{0, 12}, {28, 30}}), (Listed{{0, 12}, {28, 30}}));
  EXPECT_EQ(listed({{60, 64}, {0, 4}, {30, 34}}), (Listed{{0, 4}, {30, 34}, {60, 64}}));
  EXPECT_EQ(listed({{60, 64}, {0, 4}, {10, 55}}), (Listed{{0, 64}}));
  EXPECT_EQ(listed({{-14, 0}, {0, 4}}), (Listed{{-14, 4}}));
}

TEST(ByteRanges, ThereAreAFewAtMostAndTheNearestTwoBecomeOne) {
  using Listed = std::vector<std::pair<int32_t, int32_t>>;
  EXPECT_EQ(listed({{0, 1}, {100, 101}, {200, 201}, {300, 301}, {350, 351}}),
            (Listed{{0, 1}, {100, 101}, {200, 201}, {300, 351}}));
  EXPECT_EQ(listed({{0, 1}, {100, 101}, {200, 201}, {300, 301}, {50, 51}}),
            (Listed{{0, 51}, {100, 101}, {200, 201}, {300, 301}}));
}

TEST(ByteRanges, CoverWhatWasAdded) {
  const bool holds = rc::check([] {
    ByteRanges ranges;
    std::set<int32_t> added;
    const auto count = *rc::gen::inRange(0, 12);
    for (int i = 0; i < count; ++i) {
      const auto from = *rc::gen::inRange(-20, 400);
      const auto to = from + *rc::gen::inRange(0, 30);
      ranges.add({from, to});
      for (int32_t b = from; b < to; ++b) added.insert(b);
      RC_ASSERT(ranges.end() - ranges.begin() <= int64_t{ByteRanges::kMost});
    }
    uint32_t bytes = 0;
    int32_t before = -1000;
    for (const ByteRange& r : ranges) {
      RC_ASSERT(r.from < r.to);
      RC_ASSERT(before + ByteRanges::kNear <= r.from);
      before = r.to;
      // They begin and end with bytes that were added.
      RC_ASSERT(added.count(r.from) == 1 && added.count(r.to - 1) == 1);
      bytes += r.size();
    }
    RC_ASSERT(ranges.bytes() == bytes);
    for (const int32_t b : added) {
      RC_ASSERT(std::any_of(ranges.begin(), ranges.end(), [&](const ByteRange& r) { return r.from <= b && b < r.to; }));
    }
    const ByteRange span = ranges.span();
    RC_ASSERT(ranges.empty() == added.empty());
    if (!added.empty()) RC_ASSERT(span.from == *added.begin() && span.to == *added.rbegin() + 1);
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace sluice

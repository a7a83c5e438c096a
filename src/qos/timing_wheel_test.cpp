// The wheel against std::multimap, which keeps the order of equal keys.
#include "qos/timing_wheel.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <memory>

namespace sluice {
namespace {

// Times near each other, equal ones, and far ones.
rc::Gen<uint64_t> any_distance() {
  return rc::gen::mapcat(rc::gen::inRange(0, 65), [](int bits) {
    return bits == 64 ? rc::gen::arbitrary<uint64_t>() : rc::gen::inRange<uint64_t>(0, uint64_t{1} << bits);
  });
}

struct WheelStep {
  bool insert;
  uint64_t distance;
};

RC_GTEST_PROP(TimingWheel, ReleasesWhatAMultimapWould, ()) {
  const auto capacity = *rc::gen::inRange<uint32_t>(0, 40);
  TimingWheel<uint32_t> wheel(capacity);
  std::multimap<uint64_t, uint32_t> oracle;
  uint64_t now = *any_distance() / 4;
  uint64_t latest = 0;  // what release was called with
  const uint64_t near = uint64_t{1} << *rc::gen::inRange(1, 20);
  const auto steps = *rc::gen::container<std::vector<WheelStep>>(rc::gen::construct<WheelStep>(
      rc::gen::weightedElement<bool>({{3, true}, {1, false}}),
      rc::gen::weightedOneOf<uint64_t>({{6, rc::gen::inRange<uint64_t>(0, near)}, {1, any_distance()}})));
  uint32_t next = 0;
  for (const WheelStep& step : steps) {
    if (step.insert) {
      // A third of them before now.
      uint64_t at = step.distance % 3 == 0 ? now - std::min(now, step.distance) : now + step.distance;
      if (step.distance % 3 != 0 && at < now) at = ~uint64_t{0};
      uint32_t item = next++;
      const bool taken = wheel.insert(at, std::move(item));
      RC_ASSERT(taken == (oracle.size() < capacity));
      if (taken) oracle.emplace(std::max(at, latest), next - 1);
    } else {
      now = now + step.distance < now ? ~uint64_t{0} : now + step.distance;
      latest = now;
      // Sometimes not all that is due, as on a link that is busy.
      for (uint64_t left = step.distance % 5 == 0 ? 2 : ~uint64_t{0}; left != 0; --left) {
        uint32_t item = 0;
        uint64_t at = 0;
        const uint64_t promised = wheel.next_ns();
        const bool some = wheel.release(now, item, &at);
        const bool due = !oracle.empty() && oracle.begin()->first <= now;
        RC_ASSERT(some == due);
        if (!some) break;
        RC_ASSERT(promised <= at);
        RC_ASSERT(item == oracle.begin()->second);
        RC_ASSERT(at == oracle.begin()->first);
        oracle.erase(oracle.begin());
      }
    }
    RC_ASSERT(wheel.size() == oracle.size());
  }
}

TEST(TimingWheel, FullRefusesAndLeavesTheItem) {
  TimingWheel<std::unique_ptr<int>> wheel(2);
  auto item = std::make_unique<int>(1);
  EXPECT_TRUE(wheel.insert(10, std::move(item)));
  EXPECT_TRUE(wheel.insert(5, std::make_unique<int>(2)));
  item = std::make_unique<int>(3);
  EXPECT_FALSE(wheel.insert(1, std::move(item)));
  ASSERT_NE(item, nullptr);
  std::unique_ptr<int> out;
  EXPECT_FALSE(wheel.release(4, out));
  EXPECT_TRUE(wheel.release(5, out));
  EXPECT_EQ(*out, 2);
  EXPECT_TRUE(wheel.insert(7, std::move(item)));
  EXPECT_TRUE(wheel.release(10, out));
  EXPECT_EQ(*out, 3);
  EXPECT_TRUE(wheel.release(10, out));
  EXPECT_EQ(*out, 1);
  EXPECT_FALSE(wheel.release(~uint64_t{0}, out));
}

TEST(TimingWheel, TheEndOfTimeHasAPlace) {
  TimingWheel<int> wheel(4);
  EXPECT_TRUE(wheel.insert(~uint64_t{0}, 1));
  EXPECT_TRUE(wheel.insert(0, 2));
  EXPECT_TRUE(wheel.insert(~uint64_t{0} - 1, 3));
  int out = 0;
  uint64_t at = 0;
  EXPECT_TRUE(wheel.release(0, out));
  EXPECT_EQ(out, 2);
  EXPECT_FALSE(wheel.release(~uint64_t{0} - 2, out));
  EXPECT_TRUE(wheel.release(~uint64_t{0}, out, &at));
  EXPECT_EQ(out, 3);
  EXPECT_EQ(at, ~uint64_t{0} - 1);
  EXPECT_TRUE(wheel.release(~uint64_t{0}, out));
  EXPECT_EQ(out, 1);
}

}  // namespace
}  // namespace sluice

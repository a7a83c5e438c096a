// host only
#include "exec/engine/live_sleep.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr uint64_t kMoment = 1'000, kAWhile = 30'000;  // shorter and longer than a poll lasts

// Packets that came at `now`, and a poll until the next ones, or until it ends in vain: how often it looked.
unsigned looks(LiveSleep& sleep, uint64_t& now, bool more) {
  sleep.came(now);
  unsigned n = 0;
  while (sleep.polls(now += kMoment)) {
    if (++n == 3 && more) return n;
  }
  sleep.begin(0);
  sleep.sleep();
  now += kAWhile;
  return n;
}

TEST(LiveSleepTest, APollThatFindsPacketsIsFollowedByAnother) {
  LiveSleep sleep(PollMode::kAdaptive);
  uint64_t now = 1'000'000;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(looks(sleep, now, true), 3u) << i;
}

TEST(LiveSleepTest, PollsThatAreInVainAreLeftOutEverLonger) {
  LiveSleep sleep(PollMode::kAdaptive);
  uint64_t now = 1'000'000;
  std::vector<unsigned> polled;  // times after which it polled
  for (unsigned i = 0; i < 400; ++i) {
    if (looks(sleep, now, false) != 0) polled.push_back(i);
  }
  EXPECT_EQ(polled, (std::vector<unsigned>{0, 2, 6, 14, 30, 62, 126, 190, 254, 318, 382}));
}

TEST(LiveSleepTest, OnePollThatFindsPacketsIsEnoughToPollAgain) {
  LiveSleep sleep(PollMode::kAdaptive);
  uint64_t now = 1'000'000;
  for (int i = 0; i < 10; ++i) (void)looks(sleep, now, false);
  unsigned tries = 0;
  while (looks(sleep, now, true) == 0) ASSERT_LE(++tries, 63u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(looks(sleep, now, true), 3u) << i;
}

TEST(LiveSleepTest, OnlyTheAdaptiveModeChanges) {
  LiveSleep spin(PollMode::kSpin), interrupt(PollMode::kInterrupt);
  for (uint64_t now = 1'000'000; now < 2'000'000; now += kAWhile) {
    EXPECT_TRUE(spin.polls(now));
    EXPECT_FALSE(interrupt.polls(now));
    if (now % 4 == 0) spin.came(now), interrupt.came(now);
  }
}

}  // namespace
}  // namespace sluice

#include "base/spsc_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice {
namespace {

TEST(SpscQueue, FillsAndEmptiesInOrder) {
  SpscQueue<int> queue(3);
  EXPECT_EQ(queue.waiting(), 0u);
  int value = -1;
  EXPECT_FALSE(queue.pop(value));
  for (int lap = 0; lap < 5; ++lap) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(queue.push(lap * 4 + i));
    EXPECT_FALSE(queue.push(99));
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(queue.pop(value));
      EXPECT_EQ(value, lap * 4 + i);
      EXPECT_EQ(queue.waiting(), static_cast<size_t>(3 - i));
    }
    EXPECT_FALSE(queue.pop(value));
  }
}

TEST(SpscQueue, BetweenThreadsNothingIsLostOrTorn) {
  struct Pair {
    uint64_t a = 0, b = 0;
  };
  constexpr uint64_t kValues = 20'000;
  SpscQueue<Pair> queue(16);
  std::jthread pusher([&] {
    for (uint64_t i = 0; i < kValues;) {
      if (queue.push({i, ~i})) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (uint64_t i = 0; i < kValues;) {
    Pair pair;
    if (!queue.pop(pair)) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(pair.a, i);
    ASSERT_EQ(pair.b, ~i);
    ++i;
  }
}

}  // namespace
}  // namespace sluice

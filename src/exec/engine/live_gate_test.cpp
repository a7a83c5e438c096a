#include "exec/engine/live_gate.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice {
namespace {

TEST(LiveGate, GivesBothCountersOfOneMoment) {
  uint64_t a = 0, b = 0;  // the thread's, always equal at a poll and while it is away
  uint64_t seen_a = 0, seen_b = 0;
  LiveGate gate([&] {
    seen_a = a;
    seen_b = b;
  });
  std::atomic<bool> stop{false};
  std::jthread worker([&] {
    gate.enter();
    while (!stop.load()) {
      ++a;
      ++b;
      gate.poll();
      if (a % 1000 == 0) {
        gate.leave();
        std::this_thread::yield();
        gate.enter();
      }
    }
    gate.leave();
  });
  uint64_t last = 0;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(gate.look(std::chrono::seconds(60)));
    EXPECT_EQ(seen_a, seen_b);
    EXPECT_GE(seen_a, last);
    last = seen_a;
  }
  stop = true;
  worker.join();
  ASSERT_TRUE(gate.look(std::chrono::seconds(60))) << "a thread that has ended is away";
  EXPECT_EQ(seen_a, a);
}

TEST(LiveGate, SaysSoWhenAThreadDoesNotAnswer) {
  LiveGate gate([] {});
  gate.enter();
  EXPECT_FALSE(gate.look(std::chrono::milliseconds(1)));
  gate.poll();
  gate.leave();
  EXPECT_TRUE(gate.look(std::chrono::seconds(60)));
}

}  // namespace
}  // namespace sluice

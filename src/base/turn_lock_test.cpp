// Who waits has it in turn, also before who has just let it go.
#include "base/turn_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace sluice {
namespace {

using namespace std::chrono_literals;

TEST(TurnLock, IsGivenToWhoWaitsBeforeWhoHadIt) {
  TurnLock lock;
  lock.lock();
  std::atomic<bool> had{false}, done{false};
  std::jthread other([&] {
    const std::lock_guard mine(lock);
    had = true;
    while (!done) std::this_thread::yield();
  });
  while (lock.waiting() != 1) std::this_thread::yield();
  lock.unlock();
  // It is the other's already, whether that thread has woken up or not.
  EXPECT_FALSE(lock.try_lock());
  done = true;
  lock.lock();
  EXPECT_TRUE(had);
  lock.unlock();
}

TEST(TurnLock, HoldsOneAtATime) {
  TurnLock lock;
  uint64_t sum = 0;  // a race, were there two
  std::vector<std::jthread> threads;
  constexpr int kThreads = 4, kTurns = 2000;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTurns; ++i) {
        if (t % 2 == 0) {
          const std::lock_guard mine(lock);
          ++sum;
        } else {
          std::unique_lock mine(lock, std::defer_lock);
          while (!mine.try_lock_for(1us)) {
          }
          ++sum;
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(sum, uint64_t{kThreads} * kTurns);
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST(TurnLock, IsNotGivenToAThreadThatGaveUp) {
  TurnLock lock;
  lock.lock();
  std::atomic<bool> gave_up{false}, had{false};
  std::jthread impatient([&] { gave_up = !lock.try_lock_for(5ms); });
  std::jthread patient([&] {
    const std::lock_guard mine(lock);
    had = true;
  });
  impatient.join();
  EXPECT_TRUE(gave_up);
  while (lock.waiting() != 1) std::this_thread::yield();
  EXPECT_FALSE(had);
  lock.unlock();
  patient.join();
  EXPECT_TRUE(had);
}

TEST(TurnLock, IsLetGoForAWhile) {
  TurnLock lock;
  const std::lock_guard mine(lock);
  {
    const LetGo aside(&lock);
    std::jthread([&] {
      EXPECT_TRUE(lock.try_lock());
      lock.unlock();
    }).join();
  }
  std::jthread([&] { EXPECT_FALSE(lock.try_lock()); }).join();
  const LetGo nobody(nullptr);
}

}  // namespace
}  // namespace sluice

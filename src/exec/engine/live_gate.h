// host only
// How one thread sees the counters of another that never waits for it while it works.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

namespace sluice {

// The counters belong to their thread between `enter` and `leave`; there it makes a copy at the next `poll` after one
// was asked for. While it is away (it sleeps, it waits for input) who asks makes the copy, and `enter` waits for the
// end of that, a few microseconds.
class LiveGate {
 public:
  // `copy` copies the counters to where `look`'s caller reads them.
  explicit LiveGate(std::function<void()> copy) : copy_(std::move(copy)) {}

  // --- the counters' thread ---
  void enter() {
    int away = kAway;
    while (!state_.compare_exchange_weak(away, kBusy, std::memory_order_acquire, std::memory_order_relaxed)) {
      away = kAway;
      std::this_thread::yield();
    }
  }
  void poll() {
    if (!wanted_.load(std::memory_order_acquire)) return;
    copy_();
    wanted_.store(false, std::memory_order_release);
  }
  void leave() {
    poll();
    state_.store(kAway, std::memory_order_release);
  }

  // --- one other thread ---

  // False: the thread gave no copy in time; what was copied must not be read then.
  bool look(std::chrono::nanoseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    wanted_.store(true, std::memory_order_release);
    while (wanted_.load(std::memory_order_acquire)) {
      int away = kAway;
      if (state_.compare_exchange_strong(away, kLooked, std::memory_order_acquire, std::memory_order_relaxed)) {
        // It may have answered and gone since.
        if (wanted_.load(std::memory_order_acquire)) copy_();
        wanted_.store(false, std::memory_order_relaxed);
        state_.store(kAway, std::memory_order_release);
        return true;
      }
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
  }

 private:
  enum : int { kAway, kBusy, kLooked };
  std::function<void()> copy_;
  std::atomic<int> state_{kAway};
  std::atomic<bool> wanted_{false};
};

}  // namespace sluice

// host only
// The monotonic clock in nanoseconds, and how a thread waits for something that is about to happen.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace sluice {

inline uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

// The time of day in nanoseconds since 1970-01-01 UTC: how live ports stamp packets.
inline uint64_t wall_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
}

// Tells the core that this is a spinning loop.
inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One turn of a polling loop. `alone`: every thread has a core of its own; else whoever is waited for may need this
// one.
inline void spin_once(bool alone) {
  if (alone) {
    cpu_pause();
  } else {
    std::this_thread::yield();
  }
}

}  // namespace sluice

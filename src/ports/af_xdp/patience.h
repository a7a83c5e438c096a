// host only
// What the kernel takes back from a process that has ended, or from a descriptor that was closed, it takes back in its
// own time: a queue, a program.
#pragma once

#include <chrono>
#include <thread>

namespace sluice {

// Repeats `done` until it says true; false after a second of it.
template <typename F>
bool patiently(F&& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace sluice

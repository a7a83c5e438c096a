// A counter that one thread writes and any reads.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice {

class Count {
 public:
  void add(uint64_t n) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

}  // namespace sluice

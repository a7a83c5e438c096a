// host only
// SpscQueue: from one thread to another without a lock.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

// A bounded queue for exactly one pushing and one popping thread. What the pusher wrote before `push` is visible to the
// popper after `pop`. No allocation after construction.
template <typename T>
class SpscQueue {
 public:
  // Holds `capacity` values (rounded up to a power of two).
  explicit SpscQueue(size_t capacity) : values_(std::bit_ceil(capacity)), mask_(values_.size() - 1) {}

  // False when the queue is full.
  bool push(const T& value) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (head - tail_.load(std::memory_order_acquire) == values_.size()) return false;
    values_[head & mask_] = value;
    head_.store(head + 1, std::memory_order_release);
    return true;
  }
  // The popper's: at least so many values wait.
  size_t waiting() const {
    return static_cast<size_t>(head_.load(std::memory_order_acquire) - tail_.load(std::memory_order_relaxed));
  }
  // False when the queue is empty.
  bool pop(T& value) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (head_.load(std::memory_order_acquire) == tail) return false;
    value = values_[tail & mask_];
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

 private:
  std::vector<T> values_;
  size_t mask_;
  alignas(64) std::atomic<uint64_t> head_{0};  // the pusher's
  alignas(64) std::atomic<uint64_t> tail_{0};  // the popper's
};

}  // namespace sluice

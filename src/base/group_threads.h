// host only
// ThreadGroup: N host threads as the lanes of one group, for tests and the emulated device.
#pragma once

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/assert.h"

namespace sluice {

// Shared by the lanes; each thread makes its own ThreadLane over it.
class ThreadGroup {
 public:
  explicit ThreadGroup(uint32_t lanes) : barrier_(static_cast<ptrdiff_t>(lanes)), slots_(lanes) {}
  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }

  // Runs f(lane) on every lane and joins. Each lane is a ThreadLane.
  template <typename F>
  void run(F&& f);

 private:
  friend class ThreadLane;
  struct alignas(64) Slot {
    std::byte bytes[64];
  };
  std::barrier<> barrier_;
  std::vector<Slot> slots_;
};

class ThreadLane {
 public:
  static constexpr uint32_t kLeast = 1;
  ThreadLane(ThreadGroup& group, uint32_t lane) : group_(&group), lane_(lane) {}
  uint32_t lane() const { return lane_; }
  uint32_t size() const { return group_->size(); }
  void sync() const { group_->barrier_.arrive_and_wait(); }

  template <typename T>
  T broadcast(T value, uint32_t from = 0) const {
    put(value);
    sync();
    T result = get<T>(from);
    sync();
    return result;
  }
  template <typename T, typename Op>
  T reduce(T value, Op op) const {
    put(value);
    sync();
    T result = get<T>(0);
    for (uint32_t i = 1; i < size(); ++i) result = op(result, get<T>(i));
    sync();
    return result;
  }
  uint64_t sum_before(uint64_t value) const {
    put(value);
    sync();
    uint64_t sum = 0;
    for (uint32_t i = 0; i < lane_; ++i) sum += get<uint64_t>(i);
    sync();
    return sum;
  }
  uint32_t ballot(bool value) const {
    return reduce(uint32_t{value} << lane_, [](uint32_t a, uint32_t b) { return a | b; });
  }
  uint32_t least(uint32_t value) const {
    return reduce(value, [](uint32_t a, uint32_t b) { return a < b ? a : b; });
  }
  uint32_t all_bits(uint32_t value) const {
    return reduce(value, [](uint32_t a, uint32_t b) { return a & b; });
  }
  bool somewhere(bool value) const { return ballot(value) != 0; }

 private:
  template <typename T>
  void put(const T& value) const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64);
    std::memcpy(group_->slots_[lane_].bytes, &value, sizeof value);
  }
  template <typename T>
  T get(uint32_t lane) const {
    T value;
    std::memcpy(&value, group_->slots_[lane].bytes, sizeof value);
    return value;
  }

  ThreadGroup* group_;
  uint32_t lane_;
};

template <typename F>
void ThreadGroup::run(F&& f) {
  std::vector<std::jthread> threads;
  threads.reserve(size());
  for (uint32_t i = 0; i < size(); ++i) threads.emplace_back([this, i, &f] { f(ThreadLane(*this, i)); });
}

}  // namespace sluice

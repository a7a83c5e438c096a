// host only
// Where packets wait for their time.
//
// Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987), scheme 7. Eleven wheels of 64 slots:
// wheel k is indexed by bits 6k .. 6k+5 of the time, so that every 64-bit time has a slot and a slot of wheel 0 is one
// nanosecond. An entry lies on the wheel of the highest digit in which its time differs from the cursor's:
//
//   cursor   | same digits | d_k | ...           entry   | same digits | e_k > d_k | ...        wheel k, slot e_k
//
// When the cursor reaches a slot of wheel k > 0, its entries move down, in order, to wheels below k. An entry with the
// same time that is inserted later sees a later cursor, so it lies on the same wheel behind the first one, or on a
// lower one which the first one has reached already: first in, first out within a nanosecond.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace sluice {

// Items by time. One thread. Allocates when it is made and never again; T is moved in and out.
template <typename T>
class TimingWheel {
 public:
  static constexpr uint64_t kNever = ~uint64_t{0};

  explicit TimingWheel(uint32_t capacity) : nodes_(capacity) {
    for (uint32_t i = 0; i < capacity; ++i) nodes_[i].next = i + 1 < capacity ? i + 1 : kNone;
    free_ = capacity != 0 ? 0 : kNone;
    for (auto& wheel : slots_) {
      for (Slot& slot : wheel) slot = {};
    }
  }

  uint32_t size() const { return size_; }
  uint32_t capacity() const { return static_cast<uint32_t>(nodes_.size()); }
  bool full() const { return free_ == kNone; }

  // False: it is full, and `item` was not moved. A time before the latest that `release` was called with is
  // that one: late packets go in the order in which they came.
  bool insert(uint64_t at_ns, T&& item) {
    if (full()) return false;
    const uint32_t index = free_;
    Node& node = nodes_[index];
    free_ = node.next;
    node.item = std::move(item);
    node.at_ns = at_ns < now_ns_ ? now_ns_ : at_ns;
    put(index);
    ++size_;
    return true;
  }

  // Takes out the first item whose time is `now_ns` or earlier, in order of time and then of insertion. `at_ns`
  // receives its time. False: there is none.
  bool release(uint64_t now_ns, T& item, uint64_t* at_ns = nullptr) {
    if (now_ns > now_ns_) now_ns_ = now_ns;
    while (size_ != 0) {
      unsigned wheel = 0;
      while (busy_[wheel] == 0) ++wheel;
      const auto digit = static_cast<unsigned>(std::countr_zero(busy_[wheel]));
      const uint64_t start = start_of(wheel, digit);
      if (start > now_ns) return false;
      Slot& slot = slots_[wheel][digit];
      cursor_ns_ = start;
      if (wheel == 0) {
        const uint32_t index = slot.head;
        Node& node = nodes_[index];
        slot.head = node.next;
        if (slot.head == kNone) {
          slot.tail = kNone;
          busy_[0] &= ~(uint64_t{1} << digit);
        }
        item = std::move(node.item);
        if (at_ns != nullptr) *at_ns = node.at_ns;
        node.next = free_;
        free_ = index;
        --size_;
        return true;
      }
      uint32_t index = slot.head;
      slot = {};
      busy_[wheel] &= ~(uint64_t{1} << digit);
      while (index != kNone) {
        const uint32_t next = nodes_[index].next;
        put(index);
        index = next;
      }
    }
    return false;
  }

  // Nothing is released before this time; when it has come, `release` knows more. kNever: it is empty.
  uint64_t next_ns() const {
    for (unsigned wheel = 0; wheel < kWheels; ++wheel) {
      if (busy_[wheel] != 0) return start_of(wheel, static_cast<unsigned>(std::countr_zero(busy_[wheel])));
    }
    return kNever;
  }

 private:
  static constexpr unsigned kWheels = 11;  // of 6 bits: 66
  static constexpr unsigned kBits = 6;
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Node {
    T item{};
    uint64_t at_ns = 0;
    uint32_t next = kNone;
  };
  struct Slot {
    uint32_t head = kNone;
    uint32_t tail = kNone;
  };

  // The first nanosecond of a slot at or behind the cursor's.
  uint64_t start_of(unsigned wheel, unsigned digit) const {
    const unsigned shift = wheel * kBits;
    const unsigned above = shift + kBits;
    const uint64_t high = above >= 64 ? 0 : cursor_ns_ >> above << above;
    return high | static_cast<uint64_t>(digit) << shift;
  }
  void put(uint32_t index) {
    Node& node = nodes_[index];
    // insert() takes no earlier time than now_ns_, and a slot starts at or before what is in it.
    SLUICE_ASSERT(node.at_ns >= cursor_ns_);
    const uint64_t differ = node.at_ns ^ cursor_ns_;
    const unsigned wheel = differ == 0 ? 0 : (static_cast<unsigned>(std::bit_width(differ)) - 1) / kBits;
    const unsigned digit = node.at_ns >> (wheel * kBits) & 63;
    Slot& slot = slots_[wheel][digit];
    node.next = kNone;
    if (slot.tail == kNone) {
      slot.head = index;
      busy_[wheel] |= uint64_t{1} << digit;
    } else {
      nodes_[slot.tail].next = index;
    }
    slot.tail = index;
  }

  std::vector<Node> nodes_;
  Slot slots_[kWheels][64];
  uint64_t busy_[kWheels] = {};  // bit d: slot d has entries; slots below the cursor's digit are empty
  uint64_t cursor_ns_ = 0;       // at most the time of everything that is here, and at most now_ns_
  uint64_t now_ns_ = 0;          // the latest that release was called with
  uint32_t free_ = kNone;
  uint32_t size_ = 0;
};

}  // namespace sluice

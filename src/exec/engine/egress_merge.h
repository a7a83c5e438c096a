// host only
// Packets of classes that overtake each other, back in the order of the input: for what looks at their time stamps.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "exec/engine/ports.h"

namespace sluice {

// Each packet that came in has a number: 0, 1, 2, ... What came of it is put here in any order, and leaves in the order
// of numbers. Frames are copied, as those of a batch do not last. One thread at a time.
class EgressMerge {
 public:
  // The packet `record` comes to sink `s`, and descends from packet `number`, of which `done` says that this was all.
  void put(uint64_t number, size_t s, const TxRecord& record) {
    Slot& slot = slot_of(number);
    if (slot.used == slot.placed.size()) slot.placed.emplace_back();
    Placed& placed = slot.placed[slot.used++];
    placed.sink = s;
    placed.record = record;
    placed.record.pool = nullptr;
    placed.bytes.assign(record.data, record.data + record.captured);
    ++held_;
  }
  void done(uint64_t number) { slot_of(number).done = true; }
  // Calls leaves(sink, record) for what descends from the packets before the first that is not done; `all`: from all
  // that are here. Of one packet in the order in which it was made. What records refer to lasts until `forget`.
  template <typename Leaves>
  void release(bool all, Leaves&& leaves) {
    for (; free_ != end_ && (all || slots_[free_ & mask()].done); ++free_) {
      Slot& slot = slots_[free_ & mask()];
      const auto last = slot.placed.begin() + slot.used;
      std::stable_sort(slot.placed.begin(), last,
                       [](const Placed& a, const Placed& b) { return a.record.sequence < b.record.sequence; });
      for (auto at = slot.placed.begin(); at != last; ++at) {
        at->record.data = at->bytes.data();
        leaves(at->sink, at->record);
      }
    }
  }
  // What was released has been written.
  void forget() {
    for (; first_ != free_; ++first_) {
      Slot& slot = slots_[first_ & mask()];
      held_ -= slot.used;
      slot.used = 0;
      slot.done = false;
    }
  }
  // Numbers begin at 0 again. Precondition: all was released.
  void restart() { first_ = free_ = end_ = 0; }
  // Packets that wait.
  uint64_t held() const { return held_; }

 private:
  struct Placed {
    size_t sink = 0;
    TxRecord record{};
    std::vector<uint8_t> bytes;
  };
  struct Slot {
    bool done = false;
    uint32_t used = 0;           // of `placed`, whose memory is used again
    std::vector<Placed> placed;  // 1 for most packets
  };

  uint64_t mask() const { return slots_.size() - 1; }
  Slot& slot_of(uint64_t number) {
    end_ = std::max(end_, number + 1);
    if (end_ - first_ > slots_.size()) {
      std::vector<Slot> more(std::bit_ceil(end_ - first_));
      for (uint64_t n = first_; n != first_ + slots_.size(); ++n)
        std::swap(more[n & (more.size() - 1)], slots_[n & mask()]);
      slots_ = std::move(more);
    }
    return slots_[number & mask()];
  }

  std::vector<Slot> slots_{1024};  // number n lies at n modulo their count, a power of two
  uint64_t first_ = 0;             // the first number that is not forgotten
  uint64_t free_ = 0;              // released up to here
  uint64_t end_ = 0;               // none from here on has come
  uint64_t held_ = 0;
};

}  // namespace sluice

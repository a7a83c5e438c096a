// host only
// Packets that may leave later than they come wait here, at a sink, in the time of the packets' own time stamps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/assert.h"
#include "exec/engine/ports.h"
#include "qos/timing_wheel.h"

namespace sluice {

// One thread. A packet that waits is copied; its time stamp becomes its departure.
class EgressWheel {
 public:
  static constexpr uint32_t kMostPackets = 1u << 24;

  // `capacity`: packets that wait at most. Where more come (time stamps that go back), those that are due first leave
  // before their time has come, in their order.
  explicit EgressWheel(uint32_t capacity) : wheel_(std::max<uint32_t>(capacity, 1)) {}

  // The packet `record` comes at its time stamp and leaves at `departure_ns` (0 or before: at once). Appends to `out`
  // what leaves now, itself included. What `out` refers to lasts until `forget`.
  void pass(const TxRecord& record, uint64_t departure_ns, std::vector<TxRecord>& out) {
    // A time stamp that goes back is the latest one.
    now_ns_ = std::max(now_ns_, record.timestamp_ns);
    release(now_ns_, out);
    if (departure_ns <= now_ns_) {
      out.push_back(record);
      if (departure_ns > record.timestamp_ns) out.back().timestamp_ns = departure_ns;
      return;
    }
    // Its wheels may have to turn before somebody leaves.
    while (wheel_.full()) release(wheel_.next_ns(), out);
    auto held = take_frame();
    held->record = record;
    held->record.timestamp_ns = departure_ns;
    held->bytes.assign(record.data, record.data + record.captured);
    held->record.data = held->bytes.data();
    held->record.pool = nullptr;
    SLUICE_CHECK(wheel_.insert(departure_ns, std::move(held)));
  }
  // It is `now_ns`: appends what leaves by then. `next_ns`: nothing leaves before.
  void advance(uint64_t now_ns, std::vector<TxRecord>& out) {
    now_ns_ = std::max(now_ns_, now_ns);
    release(now_ns_, out);
  }
  uint64_t next_ns() const { return wheel_.next_ns(); }
  // The end of the input: everything leaves.
  void drain(std::vector<TxRecord>& out) { release(TimingWheel<Held>::kNever, out); }
  // The records that were given out have been written.
  void forget() {
    for (auto& frame : given_) free_.push_back(std::move(frame));
    given_.clear();
  }
  size_t size() const { return wheel_.size(); }

 private:
  struct Frame {
    TxRecord record;
    std::vector<uint8_t> bytes;
  };
  using Held = std::unique_ptr<Frame>;

  Held take_frame() {
    if (free_.empty()) return std::make_unique<Frame>();
    Held frame = std::move(free_.back());
    free_.pop_back();
    return frame;
  }
  void release(uint64_t now_ns, std::vector<TxRecord>& out) {
    Held frame;
    while (wheel_.release(now_ns, frame)) {
      out.push_back(frame->record);
      given_.push_back(std::move(frame));
    }
  }

  TimingWheel<Held> wheel_;
  uint64_t now_ns_ = 0;
  std::vector<Held> free_;   // for reuse
  std::vector<Held> given_;  // whose records were given out
};

}  // namespace sluice

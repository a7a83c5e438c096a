// host only
// What elements that keep packets in order share: a bounded queue and its accounts.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "elements/flow_element.h"

namespace sluice {

class PacketStore {
 public:
  explicit PacketStore(uint64_t capacity) : capacity_(capacity) {}

  uint64_t size() const { return packets_.size(); }
  bool full() const { return packets_.size() >= capacity_; }
  uint64_t& capacity() { return capacity_; }
  uint64_t capacity() const { return capacity_; }
  uint64_t& drops() { return drops_; }
  // Precondition: it is not full.
  void put(PacketBox packet) { packets_.push_back(std::move(packet)); }
  // The first; nullptr: there is none. Whoever waits for room is told of it.
  PacketBox get(FlowContext& context) {
    if (packets_.empty()) return nullptr;
    const bool was_full = full();
    PacketBox packet = std::move(packets_.front());
    packets_.pop_front();
    if (was_full) context.has_room();
    return packet;
  }
  // Takes over what another one keeps, as far as it fits, and what that one has lost.
  void take(FlowContext& context, PacketStore& from) {
    packets_ = std::move(from.packets_);
    from.packets_.clear();
    drops_ = from.drops_;
    shrink(context, capacity_);
  }
  // Drops what came last until `most` are left.
  void shrink(FlowContext& context, uint64_t most) {
    while (packets_.size() > most) {
      ++drops_;
      context.drop(std::move(packets_.back()), DropReason::kQueueFull);
      packets_.pop_back();
    }
  }
  Handler length_handler() const {
    return {"length",
            [this](FlowContext&, std::string_view) -> Result<std::string> { return std::to_string(packets_.size()); },
            {}};
  }

 private:
  std::deque<PacketBox> packets_;
  uint64_t capacity_;
  uint64_t drops_ = 0;
};

}  // namespace sluice

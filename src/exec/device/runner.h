// host only
// DeviceRunner: takes packets through segments of the plan that run on a device in part: they leave as records, and
// what comes back is exactly what the host's own stages would make of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/account/account.h"
#include "exec/cpu/runner.h"
#include "exec/device/channel.h"
#include "exec/device/in_flight.h"
#include "exec/device/offload.h"
#include "exec/walk/plan.h"
#include "exec/walk/walk.h"

namespace sluice {

// Of one worker.
class DeviceRunner {
 public:
  // All outlive it; `cpu` runs what stays on the host. `walks`: those that batches may be in, one for each that may be
  // in flight.
  DeviceRunner(const Plan& plan, CpuRunner& cpu, Account& account, WorkerDevice device,
               std::span<const std::unique_ptr<Walk>> walks);

  // The walk whose packets it runs from here on.
  void on(Walk& walk) { walk_ = &walk; }
  // Whether the packets of a segment can go to the device now.
  bool takes(size_t node) const;
  bool crosses_as_frames(size_t node) const { return (*device_.offloads)[node].crosses_as_frames(); }
  // Runs what comes before the offloaded stages and sends the packets off. False: nothing is on its way.
  bool start(size_t node, Selection* inputs);
  // Takes the results that have come. True: all have.
  bool poll(size_t node);

  // By node.
  const std::vector<DeviceCounters>& counters() const { return counters_; }
  const WorkerDevice& device() const { return device_; }
  // The device's objects, for a caller that keeps them longer. It takes no packet any more.
  WorkerDevice release() { return std::move(device_); }

 private:
  // A packet whose result says which stages it met (lanes of Account).
  struct MetPacket;
  struct MetFrame;
  // A device said what becomes of it.
  void note_device(uint32_t row) {
    if (walk_->share->followed.empty() || !walk_->at_root()) return;
    auto& followed = walk_->share->followed;
    const auto at = std::lower_bound(followed.begin(), followed.end(), row,
                                     [](const FollowedRow& f, uint32_t r) { return f.row < r; });
    if (at != followed.end() && at->row == row) at->packet->on_device = true;
  }
  void drop(const StageSlot& slot, uint32_t row, const Packet& p, DropReason reason) {
    account_.drop(slot.element, reason_to_leave(reason), row, p.rule, p.next_hop);
  }
  DeviceCounters& counters_of(const PlanNode& node) {
    return counters_[static_cast<size_t>(&node - plan_.nodes.data())];
  }

  // runner_records.cpp
  Selection launch_fast(size_t node, const BatchView& view, const Selection& packets);
  uint32_t apply_fast(const PlanNode& node, const Offload& offload, const Program& program, const BatchView& view,
                      InFlight& in_flight, uint32_t n);
  void give_up(const Offload& offload, InFlight& in_flight);
  bool send(size_t node, const Offload& offload, const BatchView& view, Tile& tile, uint32_t lane);
  void apply(const PlanNode& node, const Offload& offload, const Program& program, InFlight& in_flight, uint32_t ready);
  template <typename Met>
  void count_visits(const Program& program, uint32_t begin, uint32_t visited, const uint32_t* lengths, Met met);
  static uint32_t mark_by_rule(const Offload& offload, const Program& program, uint32_t visited, uint32_t rule);
  static uint32_t gateway_by_hop(const Offload& offload, const Program& program, uint32_t visited, uint32_t next_hop);
  Steps take_key(const Offload& offload, uint64_t word, uint32_t row, Packet& p, const Program& program);
  InFlight* in_flight_for(size_t node, bool ipv4);

  // runner_frames.cpp
  bool only_sent(const PlanNode& node, uint8_t path) const;
  static bool only_ordered(const Offload& offload, uint8_t path);
  void run_on_host(const PlanNode& node, Selection* inputs, Selection packets, bool given_up);
  void cross_lent(const uint8_t* from, uint64_t bytes, uint32_t head, uint32_t heads, uint32_t longest,
                  SlabDriver::Range& range) const;
  size_t lent_room() const;
  bool put_unfilled(InFlight& in_flight, const RecordShape& shape, SlabDriver::Range& range) const;
  bool put_sparse(InFlight& in_flight, SlabDriver::Range& range) const;
  Selection put_lent(InFlight& in_flight, const RecordShape& shape, const BatchView& view, const Selection& packets,
                     SlabDriver::Range& range);
  static Selection put_gathered(InFlight& in_flight, const BatchView& view, const Selection& packets,
                                SlabDriver::Range& range);
  static void comes_back(const FlightFrames& pool, size_t at, uint32_t heads, SlabDriver::Range& range);
  Selection put_listed(InFlight& in_flight, const BatchView& view, const Selection& packets,
                       SlabDriver::Range& range) const;
  bool launch_frames(size_t node, Selection* inputs);

  // runner_results.cpp
  bool collect_frames(size_t node);
  bool gives_record(const Program& program, uint32_t visited, uint32_t rule) const;
  void count_alike(const Program& program, uint64_t visited, uint64_t packets, uint64_t came, uint64_t cut);
  bool takes_unfilled(const Program& program, const FrameResults& results, uint32_t count, bool detail,
                      uint32_t stages) const;
  bool take_unfilled(size_t node, InFlight& in_flight);
  void bring_registers(const RecordShape& shape, const FrameResults& results, uint32_t count, FieldMask live);
  bool brings_back(const InFlight& a) const;
  Selection take_frames(size_t node, InFlight& in_flight);

  const Plan& plan_;
  CpuRunner& cpu_;
  Account& account_;
  WorkerDevice device_;
  std::vector<DeviceCounters> counters_;
  Walk* walk_ = nullptr;
};

// Counts a packet at the stages that it met, as run_stages does. `met` has its length on arrival at the first; behind
// each that moves the extent, `lengths` has the next.
template <typename Met>
void DeviceRunner::count_visits(const Program& program, uint32_t begin, uint32_t visited, const uint32_t* lengths,
                                Met met) {
  for (uint32_t bits = visited; bits != 0; bits &= bits - 1) {
    const StageSlot& slot = program.stages[begin + static_cast<uint32_t>(std::countr_zero(bits))];
    if (account_.keeps_fates() && notes_rule(slot)) account_.meet_list(slot.element, 1, met);
    account_.stage(slot.element, 1, met.bytes, 0, met);
    if (slot.moves_extent != 0) met.bytes = *lengths++;
  }
}

}  // namespace sluice

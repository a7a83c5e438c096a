// host only
// Worker: takes its share of batches through the plan. On the CPU run to completion; with a device, several batches are
// in flight at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/account/account.h"
#include "exec/cpu/runner.h"
#include "exec/device/runner.h"
#include "exec/engine/snapshot.h"
#include "exec/walk/plan.h"
#include "exec/walk/walk.h"

namespace sluice {

class Worker {
 public:
  // `plan` and `router` outlive the worker.
  Worker(const Plan& plan, const Router& router, unsigned id, bool bursts = true);
  ~Worker();

  // Memory the source reads next; prefetched while this batch runs.
  void expect(std::span<const std::byte> next) { cpu_.expect(next); }

  // The number that packets of an element are held to a rate by (HostContext::limiter), in place of its place in the
  // graph.
  void set_limiter(unsigned element, uint8_t limiter) { limiter_[element] = limiter; }
  // Before the first batch. At most one.
  void use_device(WorkerDevice device);
  // Batches that can be in flight at a time: 1 on the CPU.
  uint32_t depth() const { return static_cast<uint32_t>(walks_.size()); }

  // Runs share.packets of `batch`, which entered at `source` (an index into plan.sources), on one generation. The
  // share's records are filled; share.clear() was called before. No allocation once the largest batch has been seen.
  void run(const Snapshot& snapshot, Batch& batch, JobShare& share, unsigned source);

  // The same in steps, for depth() batches at a time. `start` precondition: fewer than depth() are in flight.
  // `finish` continues the oldest one: true when it is done and released. Neither waits.
  void start(const Snapshot& snapshot, Batch& batch, JobShare& share, unsigned source);
  bool finish();

  WorkerStats& stats() { return account_.stats; }
  // Its share of a device; nullptr: it has none.
  DeviceRunner* device() const { return device_.get(); }

 private:
  class Context;

  bool advance(Walk& walk);
  void start_child(Walk& walk, const Walk::Child& child);
  void number_made(Walk& walk);
  bool run_nodes(Walk& walk);
  bool on_device(size_t node) const { return device_ != nullptr && device_->takes(node); }
  bool reads_columns(size_t node) const;
  void run_host(const PlanNode& node, Selection* inputs);
  void run_sink(const PlanNode& node, Selection* inputs);
  void run_passed(const PlanNode& node, Selection* inputs);
  bool run_ordered(const PlanNode& node, Selection* inputs);
  void leave(const PlanNode& node, size_t exit, const Selection& packets);
  // Packets are those of the walk's batch from here on. What elements generate has no fates.
  void account_to(const Walk& walk) { account_.to(walk.snapshot->rules, walk.at_root() ? walk.share->fates : nullptr); }

  const Plan& plan_;
  const Router& router_;
  Account account_;
  CpuRunner cpu_;
  std::unique_ptr<DeviceRunner> device_;      // nullptr: the CPU alone
  std::vector<uint32_t> first_input_;         // node -> index into Walk::pending
  std::vector<uint32_t> sink_index_;          // element -> index into JobShare::sent
  std::vector<bool> drops_all_;               // element -> it is a sink that sends nothing
  std::vector<uint8_t> limiter_;              // element -> 1-based limiter, 0 none
  std::vector<std::unique_ptr<Walk>> walks_;  // a ring: oldest_ and the on_way_ after it are in use
  size_t oldest_ = 0;
  size_t on_way_ = 0;
  Walk* walk_ = nullptr;  // the one that is being advanced
};

// Generations of packets that are made by made ones, one behind the other; more are not made.
inline constexpr unsigned kMaxGenerations = 8;

// Fills the head room of `packets`, whose memory other packets have used, with zeros.
void clear_headroom(Batch& batch, const Selection& packets);

// The elements that limit a rate at egress, in graph order: limiter n is the n-1st of them.
std::vector<unsigned> limited_elements(const Router& router);

}  // namespace sluice

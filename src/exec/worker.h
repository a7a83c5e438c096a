// host only
// Worker: takes its share of a batch through the plan, run to completion.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "batch/batch.h"
#include "exec/cpu/tile.h"
#include "exec/plan.h"
#include "exec/ports.h"
#include "exec/stats.h"

namespace sluice {

struct PrintRecord {
  uint32_t order;
  uint32_t sequence;
  std::string text;
};

// What one worker made of its share of one batch. It lives in the job, because frames and records must last until the
// commit.
struct JobShare {
  Selection packets;
  std::vector<std::vector<TxRecord>> sent;  // by sink
  std::vector<uint8_t> in_order;            // by sink: its records came in the order of the input
  std::vector<PrintRecord> prints;
  size_t print_count = 0;                        // records in use; their strings keep their memory
  std::vector<std::unique_ptr<Batch>> children;  // batches that elements made
  size_t child_count = 0;

  void clear() {
    for (auto& records : sent) records.clear();
    in_order.assign(in_order.size(), 1);
    print_count = child_count = 0;
  }
};

class Worker {
 public:
  // `plan` and `router` outlive the worker.
  Worker(const Plan& plan, const Router& router, unsigned id);
  ~Worker();

  // Runs share.packets of `batch`, which entered at `source` (an index into plan.sources), on one generation. The
  // share's records are filled; share.clear() was called before. No allocation once the largest batch has been seen.
  void run(const Snapshot& snapshot, Batch& batch, JobShare& share, unsigned source);

  WorkerStats& stats() { return stats_; }

 private:
  class Context;
  struct Child {
    Batch* batch;
    PlanTarget target;
    unsigned generation;
  };

  void deliver(const PlanTarget& target, const Selection& packets);
  void run_nodes(const Snapshot& snapshot, Batch& batch, JobShare& share, unsigned generation);
  void run_segment(const Snapshot& snapshot, const PlanNode& node, Batch& batch, Selection* inputs);
  static void start_tile(Tile& tile);
  void run_stages(const Program& program, const PlanNode& node, Tile& tile, uint32_t begin, uint32_t end);
  void finish_tile(const PlanNode& node, const BatchView& view, Tile& tile);
  void run_host(const PlanNode& node, Batch& batch, JobShare& share, Selection* inputs, unsigned generation);
  void run_sink(const PlanNode& node, Batch& batch, JobShare& share, Selection* inputs);
  void drop(unsigned element, DropReason reason, uint64_t count = 1);

  const Plan& plan_;
  const Router& router_;
  unsigned id_;
  WorkerStats stats_;
  std::vector<Selection> pending_;                       // of all node inputs
  std::vector<uint32_t> first_input_;                    // node -> index into pending_
  std::vector<uint8_t> dirty_;                           // node -> something is pending
  std::vector<std::unique_ptr<Element::State>> states_;  // by element
  std::vector<uint32_t> sink_index_;                     // element -> index into JobShare::sent
  std::vector<uint8_t> limiter_;                         // element -> 1-based limiter, 0 none
  std::vector<Child> queue_;
  std::unique_ptr<Tile> tiles_[2];
};

// The elements that limit a rate at egress, in graph order: limiter n is the n-1st of them.
std::vector<unsigned> limited_elements(const Router& router);

}  // namespace sluice

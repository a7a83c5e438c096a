// host only
// Walk: one batch in progress through the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "batch/batch.h"
#include "exec/device/in_flight.h"
#include "exec/engine/snapshot.h"
#include "exec/walk/descent.h"
#include "exec/walk/job_share.h"
#include "exec/walk/plan.h"

namespace sluice {

// One batch in progress through the plan.
struct Walk {
  // Packets that elements generate, and where they go on.
  struct Child {
    Batch* batch;
    PlanTarget target;
    unsigned generation;
  };
  const Snapshot* snapshot = nullptr;
  Batch* root = nullptr;
  Batch* batch = nullptr;  // root, or one of its children
  uint16_t source = 0;     // of the plan
  JobShare* share = nullptr;
  unsigned generation = 0;
  std::vector<Selection> pending;  // of all node inputs
  std::vector<uint8_t> dirty;      // node -> something is pending
  std::vector<Child> children;
  size_t next_child = 0;
  std::vector<Batch*>
      open_batches;     // by node input: what packets of the next generation for it are put into, or nullptr
  uint64_t visits = 0;  // of host elements
  Descent descent;      // of the packets that elements made
  size_t node = 0;
  unsigned round = 0;
  bool again = false;
  bool waiting = false;  // for the records of node `node`
  bool arrived = false;  // at the ordered node `node`
  InFlight in_flight[2];
  const uint32_t* first_input = nullptr;  // node -> index into `pending`

  // For the inputs of `plan`, whose first ones are at `first`.
  void open(const Plan& plan, const std::vector<uint32_t>& first) {
    first_input = first.data();
    const uint32_t inputs = plan.nodes.empty() ? 0 : first.back() + plan.nodes.back().inputs;
    pending.resize(inputs);
    dirty.resize(plan.nodes.size());
    open_batches.resize(inputs);
    children.reserve(64);
  }
  Selection* inputs(size_t n) { return &pending[first_input[n]]; }
  // What goes on at an input of a node.
  Selection& to(const PlanTarget& target) {
    dirty[target.node] = 1;
    return pending[first_input[target.node] + target.input];
  }
  const Program& program(const PlanNode& of) const { return snapshot->programs[of.program]; }
  // Whether `batch` is the one that came in, and not one of packets that elements generated.
  bool at_root() const { return batch == root; }
};

}  // namespace sluice

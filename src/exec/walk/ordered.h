// host only
// Batches pass through elements that carry state from one to the next (Element::Ordered) in the order of the input,
// whichever worker has them: a ticket per node.
//
// Nobody blocks: a worker whose batch has to wait asks again, and has other batches to work on in the meantime. No
// batch waits for a later one: batches are claimed in their order, so whoever has the oldest one on its way has nothing
// older, its turn has come, and it passes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "batch/batch.h"
#include "exec/engine/snapshot.h"
#include "exec/walk/plan.h"

namespace sluice {

// The elements and whose turn it is. Made once a run.
class OrderedNodes {
 public:
  OrderedNodes(const Plan& plan, const Router& router) {
    for (const unsigned e : plan.ordered) {
      const Element& element = *router.elements[e];
      nodes_.push_back(std::make_unique<Node>());
      nodes_.back()->element = element.make_ordered();
      nodes_.back()->outputs = element.outputs;
      delayed_ += element.delays();
    }
  }
  // Takes what the elements of the graph before keep that go on here (same_elements). No batch is on its way.
  void follow(OrderedNodes& before, const Plan& plan_before, const Plan& plan, const std::vector<unsigned>& same) {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      for (size_t b = 0; b < before.nodes_.size(); ++b) {
        if (same[plan.ordered[n]] == plan_before.ordered[b]) nodes_[n]->element = std::move(before.nodes_[b]->element);
      }
    }
  }
  // f(number of the element, what it carries). No batch is on its way.
  template <typename F>
  void each(const Plan& plan, F&& f) {
    for (size_t n = 0; n < nodes_.size(); ++n) f(plan.ordered[n], *nodes_[n]->element);
  }
  // Packets that elements delay at a time at most; 0: none delays.
  uint64_t delayed() const { return delayed_; }

 private:
  friend class OrderedPass;
  struct Node {
    std::unique_ptr<Element::Ordered> element;
    unsigned outputs = 0;
    alignas(64) std::atomic<uint64_t> turn{0};  // the batch that may pass
  };
  uint64_t delayed_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
};

// One batch's way through them. Reused for later batches; belongs to the batch's worker.
class OrderedPass {
 public:
  // `nodes` outlives it.
  explicit OrderedPass(OrderedNodes& nodes) : nodes_(&nodes) {
    for (const auto& node : nodes.nodes_) {
      out_.emplace_back(node->outputs);
      prepared_.push_back(node->element->make_prepared());
    }
  }

  // For batch number `sequence` of the run: 0, 1, 2, ...
  void begin(uint64_t sequence) { sequence_ = sequence; }
  // What needs no turn, of the same packets, before they ask for it.
  void prepare(unsigned n, Batch& batch, Lengths* lengths, const Selection& packets) {
    if (prepared_[n] != nullptr) nodes_->nodes_[n]->element->prepare(batch, lengths, packets, *prepared_[n]);
  }
  // Runs the element over `packets` of the batch, which may be none, if its turn has come; once per batch. False: not
  // yet. `lengths`: the batch's columns are not filled, and these are what it looks at; else nullptr. `snapshot`: the
  // batch's.
  bool pass(unsigned n, const Snapshot& snapshot, Batch& batch, Lengths* lengths, const Selection& packets) {
    OrderedNodes::Node& node = *nodes_->nodes_[n];
    if (node.turn.load(std::memory_order_acquire) != sequence_) return false;
    for (Selection& out : out_[n]) out.clear();
    node.element->use(snapshot.tables, snapshot.generation);
    node.element->process(batch, lengths, packets, prepared_[n].get(), out_[n]);
    node.turn.store(sequence_ + 1, std::memory_order_release);
    return true;
  }
  // Whether packets may be given departures.
  bool delays() const { return nodes_->delayed() != 0; }
  // By which output packets leave, once they have passed.
  std::span<const Selection> out(unsigned node) const { return out_[node]; }

 private:
  OrderedNodes* nodes_;
  uint64_t sequence_ = 0;
  std::vector<std::vector<Selection>> out_;                            // by node and output
  std::vector<std::unique_ptr<Element::Ordered::Prepared>> prepared_;  // by node
};

}  // namespace sluice

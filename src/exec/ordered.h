// host only
// Batches pass through elements that carry state from one to the next (Element::Ordered) in the order of the input,
// each as a whole, whatever the number of workers: a ticket a node.
//
// Every worker brings its share of a batch to the node. Once all have, and the batch before has passed, one of them
// runs the element over the whole batch; then each goes on with its own packets. Nobody blocks: a worker asks again,
// and has other batches to work on in the meantime.
//
// No batch waits for a later one: shares of the oldest batch on its way are brought by workers who have nothing older,
// its turn has come, and so it passes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/assert.h"
#include "batch/batch.h"
#include "exec/plan.h"

namespace sluice {

// The elements and whose turn it is. Made once a run.
class OrderedNodes {
 public:
  OrderedNodes(const Plan& plan, const Router& router, unsigned workers) : workers_(workers) {
    for (const unsigned e : plan.ordered) {
      const Element& element = *router.elements[e];
      nodes_.push_back(std::make_unique<Node>());
      nodes_.back()->element = element.make_ordered();
      nodes_.back()->outputs = element.outputs;
      delayed_ += element.delays();
    }
  }
  size_t size() const { return nodes_.size(); }
  unsigned workers() const { return workers_; }
  // Packets that elements delay at a time at most; 0: none delays.
  uint64_t delayed() const { return delayed_; }

 private:
  friend class OrderedPass;
  struct Node {
    std::unique_ptr<Element::Ordered> element;
    unsigned outputs = 0;
    alignas(64) std::atomic<uint64_t> turn{0};  // the batch that may pass
  };
  unsigned workers_;
  uint64_t delayed_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
};

// One batch's way through them. Reused for later batches.
class OrderedPass {
 public:
  // `nodes` outlives it.
  explicit OrderedPass(OrderedNodes& nodes) : nodes_(&nodes) {
    for (const auto& node : nodes.nodes_) {
      at_.push_back(std::make_unique<At>());
      at_.back()->shares.resize(nodes.workers());
      at_.back()->out.resize(node->outputs);
    }
  }

  // For batch number `sequence` of the run: 0, 1, 2, ... No worker has it.
  void begin(uint64_t sequence) {
    sequence_ = sequence;
    for (auto& at : at_) {
      at->arrived.store(0, std::memory_order_relaxed);
      at->taken.store(false, std::memory_order_relaxed);
      at->done.store(false, std::memory_order_relaxed);
    }
  }
  // A worker brings its packets; once each. What it wrote about them is seen by whoever runs the element.
  void arrive(unsigned node, unsigned worker, const Selection& packets) {
    At& at = *at_[node];
    at.shares[worker] = packets;
    at.arrived.fetch_add(1, std::memory_order_acq_rel);
  }
  // Whether the batch has passed; runs the element if it can. After `arrive`.
  bool ready(unsigned n, Batch& batch) {
    At& at = *at_[n];
    if (at.done.load(std::memory_order_acquire)) return true;
    OrderedNodes::Node& node = *nodes_->nodes_[n];
    if (at.arrived.load(std::memory_order_acquire) != nodes_->workers()) return false;
    if (node.turn.load(std::memory_order_acquire) != sequence_) return at.done.load(std::memory_order_acquire);
    if (at.taken.exchange(true, std::memory_order_acquire)) return at.done.load(std::memory_order_acquire);
    Selection all = at.shares[0];
    for (size_t w = 1; w < at.shares.size(); ++w) all.merge(at.shares[w]);
    for (Selection& out : at.out) out.clear();
    node.element->process(batch, all, at.out);
    at.done.store(true, std::memory_order_release);
    node.turn.store(sequence_ + 1, std::memory_order_release);
    return true;
  }
  // What the worker brought.
  const Selection& arrived(unsigned node, unsigned worker) const { return at_[node]->shares[worker]; }
  // By which output packets leave, once `ready`.
  std::span<const Selection> out(unsigned node) const { return at_[node]->out; }

 private:
  struct At {
    std::vector<Selection> shares;  // by worker
    std::vector<Selection> out;
    alignas(64) std::atomic<uint32_t> arrived{0};
    std::atomic<bool> taken{false};
    std::atomic<bool> done{false};
  };
  OrderedNodes* nodes_;
  uint64_t sequence_ = 0;
  std::vector<std::unique_ptr<At>> at_;
};

}  // namespace sluice

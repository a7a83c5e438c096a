// host only
// Passages: from a source by stages to queues, and from those by their pullers on to sinks, many packets at a time.
#include <bit>

#include "exec/account/rule_log.h"
#include "exec/scheduler/node.h"

namespace sluice {

unsigned Scheduler::Impl::add_passage(Node& queue, std::vector<Passage::Queue>& queues) const {
  for (unsigned q = 0; q < queues.size(); ++q) {
    if (queues[q].queue == &queue) return q;
  }
  auto* passing = dynamic_cast<PassingQueue*>(queue.flow_);
  if (passing == nullptr || queue.outputs_.empty() || queue.outputs_[0].size() != 1) return kNobody;
  Node& puller = *nodes[queue.outputs_[0][0].node];
  auto* moving = dynamic_cast<PassingPuller*>(puller.flow_);
  if (moving == nullptr || puller.push_to_.size() != 1 || puller.push_to_[0].node == nullptr ||
      !puller.push_to_[0].node->later_)
    return kNobody;
  queues.push_back({&queue, &puller, passing, moving});
  return static_cast<unsigned>(queues.size() - 1);
}

// Sources whose packets come by stages to nothing but such queues, what comes later, or nowhere.
void Scheduler::Impl::plan_passages() {
  std::vector<Passage::Queue> queues;
  std::vector<unsigned> sources;
  for (Node* source : ahead_) {
    std::vector<bool> seen(nodes.size());
    std::vector<Node*> stack{source->push_to_[0].node};
    std::vector<unsigned> of_source;
    bool passes = true;
    while (passes && !stack.empty()) {
      Node& at = *stack.back();
      stack.pop_back();
      if (seen[at.index_] || at.later_) continue;
      seen[at.index_] = true;
      if (at.run_stage_ != kNoStage) {
        for (const Place& to : at.push_to_) {
          if (to.node != nullptr) stack.push_back(to.node);
        }
        continue;
      }
      const unsigned q = add_passage(at, queues);
      passes = q != kNobody;
      if (passes) of_source.push_back(q);
    }
    if (!passes) continue;
    sources.push_back(source->index_);
    source->passages_ = std::move(of_source);
  }
  if (sources.empty()) return;
  std::vector<PassedQueue> passed;
  for (const Passage::Queue& q : queues) passed.push_back({q.queue->index_, q.puller->index_});
  auto made = sluice::plan_passages(router, sources, std::move(passed), plan.at_sinks);
  if (!made.ok()) return;  // more exits than a program has: packets go by runs
  passage = std::make_unique<Passage>(router, std::move(*made));
  passage->queues = std::move(queues);
  for (unsigned s = 0; s < sources.size(); ++s) nodes[passage->plan.sources[s].element]->passage_ = s;
  for (const PlanNode& node : passage->plan.nodes) {
    if (node.type != PlanNode::Type::kSegment) continue;
    for (const unsigned e : node.elements) {
      if (nodes[e]->flow_ != nullptr) passage->counting.push_back(nodes[e].get());
    }
  }
}

bool Scheduler::Impl::bind_passage() {
  if (passage->bound != nullptr) return true;
  auto bound = bind_plan(passage->plan, router, tables);
  if (!bound.ok()) return false;
  passage->bound = std::move(*bound);
  if (ledger != nullptr) attach_hits(*passage->bound, *ledger);
  if (options.rule_log != nullptr) options.rule_log->attach(*passage->bound, router, passage->plan);
  if (options.count_dscp) passage->worker.stats().count_dscp();
  for (unsigned e = 0; e < nodes.size(); ++e) passage->worker.set_limiter(e, egress->limiter_of(e));
  return true;
}

// As if the source and the pullers had taken turns: a packet is pushed into an empty queue, and pulled from it in the
// next turn, so that all packets run through in their order. Whoever else has a turn, or a timer that may be due before
// the last of them, ends it.
bool Scheduler::Node::run_through() {
  Impl& impl = impl_;
  Impl::Passage& passage = *impl.passage;
  if (ahead_at_ != ahead_end_ || impl.ring.size() > 1) return false;
  uint64_t most = impl.options.max_packets - std::min(impl.options.max_packets, impl.account.stats.packets_in);
  unsigned next = kNobody;  // the queue whose puller has the next turn
  for (const unsigned q : passages_) {
    const Impl::Passage::Queue& queue = passage.queues[q];
    if (!queue.passing->passes()) return false;
    most = std::min(most, queue.moving->moves());
    if (queue.puller->in_ring_) next = q;
  }
  if (most == 0 || (next == kNobody && !impl.ring.empty())) return false;
  if (!impl.timers.empty()) {
    // Of each packet: the source's, a puller's, and of several pullers that of one who finds nothing.
    const uint64_t each_ns = (passages_.size() > 1 ? 3 : 2) * Impl::kTurnNs;
    const uint64_t now = impl.now(), at = impl.timers.top().at;
    const uint64_t until = at > now ? (at - now - 1) / each_ns : 0;
    if (until == 0 && impl.options.simulated) return false;
    most = std::min(most, std::max(until, uint64_t{1}));
  }
  if (!impl.bind_passage() || !more()) return false;
  impl.hand_over();
  const auto n = static_cast<uint32_t>(std::min<uint64_t>(most, batch_->size() - row_));
  JobShare& share = passage.share;
  share.clear();
  share.packets.clear();
  for (uint32_t row = row_; row < row_ + n; ++row) share.packets.add(row);

  WorkerStats& stats = passage.worker.stats();
  std::swap(stats.elements, impl.account.stats.elements);
  passage.before.clear();
  for (const Node* node : passage.counting) {
    const ElementCounters& c = stats.elements[node->index_];
    passage.before.push_back({c.packets, c.bytes});
  }
  passage.worker.expect(source_->next());
  passage.worker.run(*passage.bound, *batch_, share, passage_);
  std::swap(stats.elements, impl.account.stats.elements);
  stats.hand_over(impl.account.stats);
  for (size_t c = 0; c < passage.counting.size(); ++c) {
    const Node& node = *passage.counting[c];
    (void)node.flow_->counted(node.counters().packets - passage.before[c].packets,
                              node.counters().bytes - passage.before[c].bytes);
  }
  taken_.merge(impl.egress->take(*batch_, share, source_->lends()));
  // The next packets in these rows begin without.
  batch_->clear_annotations(share.annotated);
  if (impl.egress->failed()) impl.ended = true;

  // Turns: one of the source for each packet, one of a puller for each that passed its queue, and one that found
  // nothing where the next packet went elsewhere.
  uint64_t turns = n;
  const uint32_t first = row_, last = row_ + n - 1;
  if (next != kNobody && !share.passed[next].has(first)) ++turns;
  next = kNobody;
  for (const unsigned q : passages_) {
    const Impl::Passage::Queue& queue = passage.queues[q];
    const Selection& passed = share.passed[q];
    uint64_t packets = 0, ends = 0;
    for (uint32_t w = 0; w <= last / 64; ++w) {
      const uint64_t bits = passed.word(w);
      packets += static_cast<uint64_t>(std::popcount(bits));
      ends += static_cast<uint64_t>(std::popcount(bits & ~(bits >> 1 | passed.word(w + 1) << 63)));
    }
    queue.passing->passed(packets);
    queue.moving->moved(packets);
    turns += packets + ends;
    if (passed.has(last)) {
      --turns;  // its puller's is still to come
      next = q;
    }
  }
  row_ += n;
  for (uint64_t t = 1; t < turns; ++t) impl.count_turn();  // and the one that is being taken
  // Who stands in the ring, and where.
  if (!impl.ring.empty()) impl.nodes[impl.ring.pop_front()]->in_ring_ = false;
  wake();
  if (next != kNobody) passage.queues[next].puller->wake();
  return true;
}

}  // namespace sluice

// host only
// Another graph in the place of one that runs (docs/design/scheduling.md).
#include "exec/scheduler/node.h"
#include "graph/graph_files.h"

namespace sluice {

Result<void> Scheduler::swap(std::unique_ptr<GraphGeneration> next) {
  auto done = prepare(std::move(next));
  // Those that were opened for it.
  if (!done.ok()) (void)close_ports();
  return done;
}

Result<void> Scheduler::prepare(std::unique_ptr<GraphGeneration> next) {
  Impl& old = *impl_;
  if (old.live_ports == nullptr && LivePorts::any(next->router))
    return Error("the graph has live ports, and the run began without any", "start a run with it");
  if (auto ok = check_files(next->router, files_besides(old.past, old.router, next->router)); !ok.ok()) return ok;
  auto impl =
      std::make_unique<Impl>(next->router, next->plan, old.options, *pool_, *this, old.ledger, old.live_ports, &old);
  if (auto ok = impl->bind(next->tables); !ok.ok()) return ok;
  Error errors;
  // What Engine::swap has opened before is there.
  if (old.live_ports != nullptr) old.live_ports->open_more(next->router, next->plan, errors);
  if (auto ok = ports_opened(std::move(errors)); !ok.ok()) return ok;
  errors = {};
  if (auto ok = impl->open_sources(errors); !ok.ok()) return ok;
  auto sinks = egress_->open(next->router, next->plan, impl->links(), 0, errors);
  if (auto ok = ports_opened(std::move(errors)); !ok.ok()) return ok;
  if (auto ok = impl->start(); !ok.ok()) return ok;
  next_ = std::move(impl);
  next_graph_ = std::move(next);
  next_sinks_ = std::move(sinks);
  old.replaced = true;
  return {};
}

// Between two tasks.
void Scheduler::change() {
  impl_->settle();
  // By the names that elements have until then.
  egress_->follow(std::move(next_sinks_));
  next_->follow(*impl_);
  // The elements that are left go, with what they hold, once nobody knows them.
  Router gone = std::move(impl_->router);
  impl_ = std::move(next_);
  graph_ = std::move(next_graph_);
  ++swaps_;
}

void Scheduler::Impl::follow(Impl& before) {
  before.settle();
  // What came in and was made stays; what elements counted goes by their names.
  std::vector<ElementCounters> counted = std::move(before.account.stats.elements);
  std::vector<ElementCounters> mine = std::move(account.stats.elements);
  WorkerStats early = std::move(account.stats);  // `start` may have brought packets
  account.stats = std::move(before.account.stats);
  early.hand_over(account.stats);
  account.stats.elements = std::move(mine);
  gone = before.gone;
  retired = std::move(before.retired);
  std::vector<bool> has_heir(before.nodes.size());
  std::vector<unsigned> heir(before.nodes.size(), kNobody);
  for (auto& node : nodes) {
    if (node->kin_ != kNobody) {
      account.stats.elements[node->index_].add(counted[node->kin_]);
      has_heir[node->kin_] = true;
    }
    if (node->same_ == kNobody) continue;
    Node& old = *before.nodes[node->same_];
    heir[node->same_] = node->index_;
    std::swap(router.elements[node->index_], before.router.elements[node->same_]);
    node->element_.position = before.router.elements[node->same_]->position;
    node->source_ = std::move(old.source_);
    node->batch_ = std::move(old.batch_);
    node->row_ = old.row_;
    node->taken_ = old.taken_;
    node->source_done_ = old.source_done_;
    node->sent_ = old.sent_;
    old.sent_ = {};
  }
  // Flows that end here: their heirs take what they can, files appear, the rest of their packets is dropped.
  std::vector<AtomicFile> files;
  for (unsigned e = 0; e < before.nodes.size(); ++e) {
    Node& old = *before.nodes[e];
    if (!has_heir[e]) gone.add(counted[e]);
    const Node::Left left = old.take_left(account);
    gone.drops[static_cast<size_t>(DropReason::kGraphChanged)] += left.packets;
    if (old.sent_.packets != 0)
      retired.push_back({old.element_.name, old.element_.port().path, old.sent_.packets, old.sent_.bytes});
    if (old.flow_ == nullptr || heir[e] != kNobody) continue;
    for (auto& node : nodes) {
      if (node->kin_ == e && node->flow_ != nullptr) node->flow_->take(*node, *old.flow_);
    }
    gone.drops[static_cast<size_t>(DropReason::kGraphChanged)] += old.flow_->held();
    if (auto ok = old.flow_->finish(old); !ok.ok()) {
      old.element_.files().empty() ? fail(std::move(ok).error()) : fail_output(std::move(ok).error());
    } else if (AtomicFile* const file = old.flow_->file()) {
      files.push_back(std::move(*file));
    }
  }
  if (auto ok = AtomicFile::commit(files); !ok.ok()) fail_output(std::move(ok).error());
  // Timers of elements that go on.
  for (; !before.timers.empty(); before.timers.pop()) {
    const Timer& timer = before.timers.top();
    const Node& old = *before.nodes[timer.node];
    if (heir[timer.node] == kNobody || timer.retry || timer.version != old.timer_version_) continue;
    nodes[heir[timer.node]]->set_timer(timer.at);
  }
  clock_goes_on(before);
  turns = before.turns;
  stops += before.stops;
  wake_tasks();
  follows = false;
  for (auto& [to, packet] : std::exchange(at_start, {})) hand(to, std::move(packet));
}

}  // namespace sluice

// host only
// Another graph in the place of one that runs (docs/design/scheduling.md).
#include "exec/scheduler/node.h"
#include "graph/graph_files.h"

namespace sluice {

bool goes_on(Element& before, const Element& next) {
  return before.class_name == next.class_name && before.configuration == next.configuration &&
         before.inputs == next.inputs && before.outputs == next.outputs && before.kind() == next.kind() &&
         before.kind() != ElementKind::kInfo &&
         (before.kind() != ElementKind::kStage || before.flow() != nullptr || !before.handlers().empty());
}

// What the run has read and written so far, without those outputs with which `next` goes on: its own must be none of
// it.
RunFiles Scheduler::Impl::files_besides(const Router& next) const {
  RunFiles files = past;
  for (const auto& node : nodes) {
    Element& element = node->element_;
    RunFiles own;
    add_files(element, own);
    for (const RunFiles::File& file : own.files()) {
      const bool output = file.use == RunFiles::File::Use::kOutput;
      const bool stays = output && std::any_of(next.elements.begin(), next.elements.end(), [&](const auto& other) {
                           return element.kind() == ElementKind::kSink
                                      ? other->kind() == ElementKind::kSink && other->port().path == file.path
                                      : other->name == element.name && goes_on(element, *other);
                         });
      // Lines on standard output are not lost by those that follow.
      const bool lines = output && file.path == "-" && element.kind() != ElementKind::kSink;
      if (stays || lines) continue;
      output ? files.output(file.who, file.path) : files.input(file.who, file.path);
    }
  }
  return files;
}

Result<void> Scheduler::swap(std::unique_ptr<SchedulerGraph> next) {
  if (auto ok = check_files(next->router, impl_->files_besides(next->router)); !ok.ok()) return ok;
  auto impl = std::make_unique<Impl>(next->router, impl_->options, *pool_, *this, impl_.get());
  if (auto ok = impl->bind(next->tables); !ok.ok()) return ok;
  if (auto ok = impl->open_ports(impl_.get()); !ok.ok()) return ok;
  if (auto ok = impl->start(); !ok.ok()) return ok;
  next_ = std::move(impl);
  next_graph_ = std::move(next);
  impl_->replaced = true;
  return {};
}

// Between two tasks.
void Scheduler::change() {
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
  std::vector<ElementCounters> counted = std::move(before.stats.elements);
  std::vector<ElementCounters> mine = std::move(stats.elements);
  const WorkerStats early = std::move(stats);  // `start` may have brought packets
  stats = std::move(before.stats);
  stats.packets_in += early.packets_in;
  stats.bytes_in += early.bytes_in;
  stats.generated += early.generated;
  stats.elements = std::move(mine);
  gone = before.gone;
  retired = std::move(before.retired);
  std::vector<bool> has_heir(before.nodes.size());
  std::vector<unsigned> heir(before.nodes.size(), kNobody);
  for (auto& node : nodes) {
    if (node->kin_ != kNobody) {
      stats.elements[node->index_].add(counted[node->kin_]);
      has_heir[node->kin_] = true;
    }
    if (node->takes_port_ != kNobody) {
      node->port_ = std::move(before.nodes[node->takes_port_]->port_);
      node->sent_ = before.nodes[node->takes_port_]->sent_;
      before.nodes[node->takes_port_]->sent_ = {};
    }
    if (node->same_ == kNobody) continue;
    Node& old = *before.nodes[node->same_];
    heir[node->same_] = node->index_;
    std::swap(router.elements[node->index_], before.router.elements[node->same_]);
    node->element_.position = before.router.elements[node->same_]->position;
    node->source_ = std::move(old.source_);
    node->batch_ = std::move(old.batch_);
    node->row_ = old.row_;
    node->source_done_ = old.source_done_;
    node->port_ = std::move(old.port_);
    node->sent_ = old.sent_;
    old.sent_ = {};
  }
  std::copy(before.limiters.begin(), before.limiters.end(), limiters.begin());
  // Flows that end here: their heirs take what they can, files are finished, the rest of their packets is dropped.
  for (unsigned e = 0; e < before.nodes.size(); ++e) {
    Node& old = *before.nodes[e];
    if (!has_heir[e]) gone.add(counted[e]);
    if (old.port_ != nullptr || old.sent_.packets != 0) {
      retired.push_back(
          {{old.element_.name, old.element_.port().path, old.sent_.packets, old.sent_.bytes}, std::move(old.port_)});
    }
    if (old.flow_ == nullptr || heir[e] != kNobody) continue;
    for (auto& node : nodes) {
      if (node->kin_ == e && node->flow_ != nullptr) node->flow_->take(*node, *old.flow_);
    }
    gone.drops[static_cast<size_t>(DropReason::kGraphChanged)] += old.flow_->held();
    if (auto ok = old.flow_->finish(old); !ok.ok()) {
      old.element_.files().empty() ? fail(std::move(ok).error()) : fail_output(std::move(ok).error());
    }
  }
  // Timers of elements that go on.
  for (; !before.timers.empty(); before.timers.pop()) {
    const Timer& timer = before.timers.top();
    const Node& old = *before.nodes[timer.node];
    if (heir[timer.node] == kNobody || timer.retry || timer.version != old.timer_version_) continue;
    nodes[heir[timer.node]]->set_timer(timer.at);
  }
  simulated_ns = before.simulated_ns;
  turns = before.turns;
  stops += before.stops;
  wake_tasks();
}

}  // namespace sluice

// host only
// The end of a run, and what is reported of it.
#include <fmt/format.h>

#include "base/clock.h"
#include "exec/scheduler/node.h"

namespace sluice {

Result<void> Scheduler::finish(std::vector<AtomicFile>& files, bool& output) {
  Result<void> result;
  for (auto& node : impl_->nodes) {
    if (node->flow_ == nullptr) continue;
    auto ok = node->flow_->finish(*node);
    if (ok.ok()) {
      if (AtomicFile* const file = node->flow_->file()) files.push_back(std::move(*file));
    } else if (result.ok()) {
      result = std::move(ok);
      output = !node->element_.files().empty();
    }
  }
  if (!result.ok()) return result;
  uint64_t queued = 0;
  for (const auto& node : impl_->nodes) queued += node->flow_ != nullptr ? node->flow_->held() : 0;
  if (queued != pool_->live())
    return Error(fmt::format("{} packets are held, but queues know of {}", pool_->live(), queued));
  return {};
}

void Scheduler::close() {
  for (Node* node : impl_->live_) {
    // What had come and found no room behind it is queued.
    const Node::Left left = node->take_left(impl_->account);
    node->counters().packets += left.packets;
    node->counters().bytes += left.bytes;
    node->kept_ += left.packets;
    node->give_back();
  }
  for (auto& node : impl_->nodes) node->source_.reset();
}

void Scheduler::report(RunReport& report) {
  settle();
  const Impl& impl = *impl_;
  report.totals.add(impl.account.stats);
  report.gone.add(impl.gone);
  auto sent = [&](RunReport::Sink sink) {
    report.packets_out += sink.packets;
    report.bytes_out += sink.bytes;
    report.sinks.push_back(std::move(sink));
  };
  for (const auto& node : impl.nodes) {
    if (node->flow_ != nullptr) report.queued += node->flow_->held();
    report.queued += node->kept_;
    if (node->sent_.packets != 0)
      sent({node->element_.name, node->element_.port().path, node->sent_.packets, node->sent_.bytes});
  }
  for (const RunReport::Sink& sink : impl.retired) sent(sink);
  report.generation = swaps_ + 1;
}

std::string describe_schedule(const Router& router) {
  std::string text = fmt::format("packet scheduler: {}\ntime: {}\n", router.scheduled,
                                 flow_clock(router, false) == FlowClock::kRun ? "the clock" : "packets' timestamps");
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    const Element& element = *router.elements[e];
    std::string ports;
    for (const RouterConnection& c : router.connections) {
      if (c.from == e)
        ports += fmt::format("    [{}] {} {} [{}]\n", c.from_port, c.pull ? "<=" : "->", router.elements[c.to]->name,
                             c.to_port);
    }
    const char* kind = element.kind() == ElementKind::kStage  ? "stage"
                       : element.kind() == ElementKind::kFlow ? "flow"
                       : element.kind() == ElementKind::kInfo ? "info"
                                                              : "host";
    text += fmt::format("{} {} :: {}\n{}", kind, element.name, element.class_name, ports);
  }
  return text;
}

}  // namespace sluice

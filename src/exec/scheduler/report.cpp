// host only
// The end of a run, and what is reported of it.
#include <fmt/format.h>

#include "base/clock.h"
#include "exec/scheduler/node.h"

namespace sluice {

Result<void> Scheduler::run(RunReport& report) {
  const uint64_t started = sluice::now_ns();
  Result<void> result;
  while (true) {
    result = impl_->loop();
    if (!impl_->replaced || impl_->ended || !result.ok()) break;
    change();
  }
  Impl& impl = *impl_;
  asked_->close();
  Ending& ending = impl.ending;
  const auto failed = [&](Result<void> why, bool output) {
    if (result.ok() || impl.damaged) {
      result = std::move(why);
      impl.output_failed = output;
    }
    impl.damaged = false;
    ending = Ending::kDiscard;
  };
  if (!result.ok()) {
    ending = impl.damaged ? Ending::kPartial : Ending::kDiscard;
  } else if (impl.interrupted && !impl.options.stop_is_end) {
    ending = Ending::kPartial;
  }
  // No output appears before all ports are on the disk.
  std::vector<PacketSink*> sinks;
  for (auto& node : impl.nodes) sinks.push_back(node->port_.get());
  for (Impl::Retired& r : impl.retired) sinks.push_back(r.port.get());
  for (PacketSink* sink : sinks) {
    if (sink == nullptr || ending == Ending::kDiscard) continue;
    if (auto ok = sink->settle(); !ok.ok()) failed(std::move(ok), true);
  }
  for (auto& node : impl.nodes) {
    if (node->flow_ == nullptr) continue;
    if (auto ok = node->flow_->finish(*node); !ok.ok()) failed(std::move(ok), !node->element_.files().empty());
  }
  if (ending != Ending::kDiscard) {
    if (auto ok = end_outputs(sinks, ending); !ok.ok()) failed(std::move(ok), true);
  }
  report = this->report();
  report.interrupted = impl.interrupted;
  report.partial = ending == Ending::kPartial;
  report.output_failed = impl.output_failed;
  report.seconds = static_cast<double>(sluice::now_ns() - started) / 1e9;
  if (result.ok() && report.queued != pool_->live()) {
    return Error(fmt::format("{} packets are held, but queues know of {}", pool_->live(), report.queued));
  }
  return result;
}

RunReport Scheduler::report() const {
  impl_->settle();
  const Impl& impl = *impl_;
  RunReport report;
  report.totals = impl.stats;
  report.packets_in = impl.stats.packets_in;
  report.bytes_in = impl.stats.bytes_in;
  report.generated = impl.stats.generated;
  auto count = [&](const ElementCounters& e) {
    for (size_t r = 0; r < kDropReasons; ++r) {
      report.drops[r] += e.drops[r];
      report.dropped += e.drops[r];
    }
  };
  count(impl.gone);
  for (const ElementCounters& e : impl.stats.elements) count(e);
  auto sent = [&](const RunReport::Sink& sink) {
    report.sinks.push_back(sink);
    report.packets_out += sink.packets;
    report.bytes_out += sink.bytes;
  };
  for (const auto& node : impl.nodes) {
    if (node->flow_ != nullptr) report.queued += node->flow_->held();
    if (node->port_ == nullptr && node->sent_.packets == 0) continue;
    sent({node->element_.name, place_of(node->port_.get(), node->element_.port().path, impl.ending),
          node->sent_.packets, node->sent_.bytes});
  }
  for (const Impl::Retired& r : impl.retired) {
    sent(r.sink);
    report.sinks.back().path = place_of(r.port.get(), r.sink.path, impl.ending);
  }
  report.generation = swaps_ + 1;
  return report;
}

std::string describe_schedule(const Router& router) {
  std::string text = fmt::format("packet scheduler: {}\n", router.scheduled);
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

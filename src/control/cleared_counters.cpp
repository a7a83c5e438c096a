// host only
#include "control/cleared_counters.h"

#include <algorithm>
#include <set>

#include "base/clock.h"

namespace sluice {
namespace {

// A counter that is less than it was is of something that began anew, and no less than none is left of it.
void take(uint64_t& now, uint64_t before) {
  now -= std::min(now, before);
}
void take(ElementCounters& now, const ElementCounters& before) {
  take(now.packets, before.packets);
  take(now.bytes, before.bytes);
  for (size_t r = 0; r < now.drops.size(); ++r) take(now.drops[r], before.drops[r]);
}

void take_counters(RunReport& report, const RunReport& before) {
  for (uint64_t RunReport::*field : {&RunReport::packets_in, &RunReport::bytes_in, &RunReport::generated,
                                     &RunReport::packets_out, &RunReport::bytes_out, &RunReport::dropped})
    take(report.*field, before.*field);
  take(report.totals.fast, before.totals.fast);
  for (size_t d = 0; d < std::min(report.totals.dscp.size(), before.totals.dscp.size()); ++d)
    take(report.totals.dscp[d], before.totals.dscp[d]);
  take(report.totals.batches, before.totals.batches);
  for (size_t r = 0; r < report.drops.size(); ++r) take(report.drops[r], before.drops[r]);
  report.seconds = std::max(0.0, report.seconds - before.seconds);
}

void take_sinks(RunReport& report, const RunReport& before) {
  for (RunReport::Sink& sink : report.sinks) {
    const auto at = std::ranges::find_if(
        before.sinks, [&](const RunReport::Sink& b) { return b.element == sink.element && b.path == sink.path; });
    if (at == before.sinks.end()) continue;
    take(sink.packets, at->packets);
    take(sink.bytes, at->bytes);
  }
}

// An interface that comes back goes on with the counters of its port.
void take_ports(RunReport& report, const RunReport& before) {
  for (LivePortReport& port : report.live_ports) {
    const auto at = std::ranges::find_if(before.live_ports, [&](const LivePortReport& b) {
      return b.facts.name == port.facts.name && b.facts.method == port.facts.method;
    });
    if (at == before.live_ports.end()) continue;
    for (size_t q = 0; q < std::min(port.rx.size(), at->rx.size()); ++q) {
      for (uint64_t RxCounters::*field :
           {&RxCounters::packets, &RxCounters::bytes, &RxCounters::missed, &RxCounters::too_long, &RxCounters::invalid})
        take(port.rx[q].*field, at->rx[q].*field);
    }
    for (size_t q = 0; q < std::min(port.tx.size(), at->tx.size()); ++q) {
      for (uint64_t TxCounters::*field :
           {&TxCounters::packets, &TxCounters::bytes, &TxCounters::full, &TxCounters::failed})
        take(port.tx[q].*field, at->tx[q].*field);
    }
  }
}

}  // namespace

void ClearedCounters::clear(const std::vector<Window>& windows, const RunReport& now, const Router& router) {
  const auto base = std::make_shared<Base>();
  base->at_ns = now_ns();
  base->report = now;
  // The router may be another one since.
  for (size_t e = 0; e < std::min(router.elements.size(), now.totals.elements.size()); ++e)
    base->elements[{router.elements[e]->name, router.elements[e]->class_name}] = now.totals.elements[e];
  for (const Window window : windows) bases_[static_cast<size_t>(window)] = base;
}

void ClearedCounters::subtract(Window window, RunReport& report, const Router& router) const {
  const Base* const from = base(window);
  if (from == nullptr) return;
  switch (window) {
    case Window::kRuntime:
    case Window::kDrops:
      take_counters(report, from->report);
      take_sinks(report, from->report);
      for (size_t e = 0; e < std::min(router.elements.size(), report.totals.elements.size()); ++e) {
        const auto at = from->elements.find({router.elements[e]->name, router.elements[e]->class_name});
        if (at != from->elements.end()) take(report.totals.elements[e], at->second);
      }
      break;
    case Window::kPorts:
      take_ports(report, from->report);
      take_sinks(report, from->report);
      break;
    case Window::kLatency:
      for (Histogram WorkerStats::*times :
           {&WorkerStats::latency, &WorkerStats::wait, &WorkerStats::egress, &WorkerStats::through})
        (report.totals.*times).subtract(from->report.totals.*times);
      break;
  }
}

std::optional<double> ClearedCounters::age(Window window) const {
  const Base* const from = base(window);
  if (from == nullptr) return std::nullopt;
  return static_cast<double>(now_ns() - from->at_ns) * 1e-9;
}

void ClearedCounters::graph_changed(const Router& router) {
  std::set<Element> there;
  for (const auto& element : router.elements) there.emplace(element->name, element->class_name);
  for (const auto& base : bases_) {
    if (base != nullptr) std::erase_if(base->elements, [&](const auto& one) { return !there.contains(one.first); });
  }
}

}  // namespace sluice

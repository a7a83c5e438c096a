// host only
#include "composition.h"

#include <fmt/format.h>

#include "app.h"

namespace sluice::app {
namespace {

constexpr Refusal kRefusals[] = {
    {Feature::kPriorities, Feature::kMarks, "classes are told apart where packets come in, before an access list",
     "write the classes of --qos by dscp"},
    {Feature::kPriorities, Feature::kFollow, "classes overtake each other, and verdicts are in the order of the input",
     ""},
    {Feature::kPriorities, Feature::kLatencyTarget, "chunks of packets bound the latency of each class",
     "use --chunk and --chunk-timeout"},
    {Feature::kPriorities, Feature::kOneByOne, "the packet scheduler takes packets one after another",
     "put a Queue for each class and a PrioSched into the graph"},
    {Feature::kPriorities, Feature::kQueues, "the packet scheduler takes packets one after another",
     "put a Queue for each class and a PrioSched into the graph"},
    {Feature::kQos, Feature::kFollow, "packets that wait at egress have no verdict yet", ""},
    {Feature::kDevice, Feature::kQueues, "queues, timers and scripts run on the CPU", "leave --device out"},
    {Feature::kFollow, Feature::kQueues, "a packet that waits in a queue has no verdict yet", ""},
    {Feature::kMaxMemory, Feature::kQueues, "the tables of such a graph change with the graph", ""},
    {Feature::kLatencyTarget, Feature::kQueues, "packets are taken one after another: there are no batches", ""},
    {Feature::kLivePorts, Feature::kSimulated, "live ports have the time of day", "leave --simtime out"},
    {Feature::kSimulated, Feature::kNoQueues, "only graphs with queues, timers or scripts have a clock", ""},
};

// What a run that is asked for the one is as well.
Feature implied(Feature feature) {
  switch (feature) {
    case Feature::kSimulated:
    case Feature::kOneByOne:
      return Feature::kQueues;
    case Feature::kMarks:
      return Feature::kQos;
    default:
      return feature;
  }
}

}  // namespace

const char* to_string(Feature feature) {
  switch (feature) {
    case Feature::kWorkers:
      return "--workers";
    case Feature::kDevice:
      return "--device";
    case Feature::kPriorities:
      return "--priorities";
    case Feature::kQos:
      return "--qos";
    case Feature::kMarks:
      return "--qos by marks";
    case Feature::kControl:
      return "--control";
    case Feature::kHits:
      return "--hits and --top-rules";
    case Feature::kFollow:
      return "--verdicts and --dropped";
    case Feature::kLatencyTarget:
      return "--latency-target";
    case Feature::kWait:
      return "--wait";
    case Feature::kMaxMemory:
      return "--max-memory";
    case Feature::kLimit:
      return "--limit";
    case Feature::kLivePorts:
      return "live ports";
    case Feature::kSimulated:
      return "--simtime";
    case Feature::kOneByOne:
      return "--packet-scheduler";
    case Feature::kQueues:
      return "a graph with queues, timers or scripts";
    case Feature::kNoQueues:
      return "a graph without queues, timers or scripts";
    case Feature::kCount:
      break;
  }
  return "?";
}

const Refusal* refusal(Feature one, Feature other) {
  const auto listed = [](Feature a, Feature b) -> const Refusal* {
    for (const Refusal& r : kRefusals) {
      if ((r.one == a && r.other == b) || (r.one == b && r.other == a)) return &r;
    }
    return nullptr;
  };
  if (const Refusal* r = listed(one, other)) return r;
  const Feature a = implied(one), b = implied(other);
  if (const Refusal* r = listed(a, other)) return r;
  if (const Refusal* r = listed(one, b)) return r;
  return listed(a, b);
}

void Features::check(const std::string& why_queues) const {
  for (unsigned one = 0; one < static_cast<unsigned>(Feature::kCount); ++one) {
    for (unsigned other = one + 1; other < static_cast<unsigned>(Feature::kCount); ++other) {
      const auto a = static_cast<Feature>(one), b = static_cast<Feature>(other);
      const Refusal* r = has(a) && has(b) ? refusal(a, b) : nullptr;
      if (r == nullptr) continue;
      std::string why = fmt::format("{} does not work with {}: {}", to_string(a), to_string(b), r->why);
      if (b == Feature::kQueues && !why_queues.empty()) why += fmt::format(" ({})", why_queues);
      fail(Exit::kUsage, why, r->instead);
    }
  }
}

std::string composition_page() {
  // These two exclude each other by what they are.
  const auto shown = [](Feature f) { return f != Feature::kNoQueues; };
  std::string t =
      "# Option compatibility\n\nEvery option of `sluice run` with every other: **yes** is tested to give the packets "
      "and the counts of the plain run, for captures with any timestamps; a number is the reason why a pair is "
      "refused. With `--priorities` packets of one class keep their order and classes overtake each other; with rates "
      "in `--qos` as well the order is that of the plain run.\n\n|  |";
  std::string line = "|---|", rows, reasons;
  for (unsigned c = 0; c < static_cast<unsigned>(Feature::kCount); ++c) {
    const auto column = static_cast<Feature>(c);
    if (!shown(column)) continue;
    t += fmt::format(" {} |", to_string(column));
    line += "---|";
    rows += fmt::format("| {} |", to_string(column));
    for (unsigned r = 0; r < static_cast<unsigned>(Feature::kCount); ++r) {
      const auto row = static_cast<Feature>(r);
      if (!shown(row)) continue;
      const Refusal* refused = refusal(row, column);
      rows += r == c ? "  |" : refused == nullptr ? " yes |" : fmt::format(" {} |", refused - kRefusals + 1);
    }
    rows += '\n';
  }
  for (size_t i = 0; i < std::size(kRefusals); ++i) {
    const Refusal& r = kRefusals[i];
    reasons += fmt::format("{}. {} with {}: {}{}{}.\n", i + 1, to_string(r.one), to_string(r.other), r.why,
                           *r.instead != '\0' ? "; " : "", r.instead);
  }
  return t + "\n" + line + "\n" + rows + "\n" + reasons;
}

}  // namespace sluice::app

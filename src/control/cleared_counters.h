// host only
// What the windows count from: a run's counters as they were when an operator cleared them. The accounts of the run
// itself (its report, its metrics) go on.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/engine/run.h"
#include "graph/router.h"

namespace sluice {

// One thread. Counters of rules are cleared where they are kept (HitLedger).
class ClearedCounters {
 public:
  enum class Window : uint8_t { kRuntime, kDrops, kPorts, kLatency };
  static constexpr size_t kWindows = 4;

  // From here on these windows count from `now`, a report whose elements are those of `router`. Throws std::bad_alloc,
  // and then nothing was cleared.
  void clear(const std::vector<Window>& windows, const RunReport& now, const Router& router);
  // Takes from a report what was there when the window was cleared: of kRuntime and kDrops all counters but those of
  // ports and classes, of kPorts those of live ports and of sinks, of kLatency the times.
  void subtract(Window window, RunReport& report, const Router& router) const;
  // Seconds since it was cleared; none: it never was.
  std::optional<double> age(Window window) const;
  // Another graph runs: an element that it lacks begins anew when it comes back.
  void graph_changed(const Router& router);

 private:
  using Element = std::pair<std::string, std::string>;  // name, class: as counters follow them to another graph
  struct Base {
    uint64_t at_ns = 0;
    RunReport report;
    std::map<Element, ElementCounters> elements;
  };
  const Base* base(Window window) const { return bases_[static_cast<size_t>(window)].get(); }
  std::array<std::shared_ptr<Base>, kWindows> bases_;  // what is cleared at once shares one
};

}  // namespace sluice

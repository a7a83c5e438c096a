// host only
// Snapshot: all programs and images of one generation. A batch runs on exactly one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "exec/hits.h"
#include "exec/program.h"
#include "graph/table_set.h"

namespace sluice {

class LoggedRules;
struct Resident;

// Immutable once published, but for the count of batches in flight.
struct Snapshot {
  uint64_t generation = 0;
  TableSet tables;                // keeps the images alive that the programs' views point into
  std::vector<Program> programs;  // by segment
  // By device of the run: the generation in its memory; nullptr where it could not be put there.
  std::vector<std::shared_ptr<const Resident>> residents;
  // By element: where the packets of its access list are counted, or nullptr; empty: nowhere (attach_hits).
  std::vector<std::shared_ptr<RuleHits>> hits;
  // The counters of one worker for the packets of an element; none: they are not counted.
  RuleHits::Adder hits_of(unsigned element, unsigned worker) const {
    return element < hits.size() && hits[element] != nullptr ? hits[element]->of(worker) : RuleHits::Adder{};
  }
  // By element: the rules whose packets are recorded, or nullptr; empty: none (RuleLog::attach).
  std::vector<std::shared_ptr<const LoggedRules>> logs;
  const LoggedRules* logs_of(unsigned element) const { return element < logs.size() ? logs[element].get() : nullptr; }
  mutable std::atomic<uint64_t> in_flight{0};  // batches that were started on this generation and are not committed
};

}  // namespace sluice

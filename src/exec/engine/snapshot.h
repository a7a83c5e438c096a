// host only
// Snapshot: all programs and images of one generation. A batch runs on exactly one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "exec/account/account.h"
#include "exec/walk/program.h"
#include "graph/table_set.h"

namespace sluice {

struct Resident;

// Immutable once published, but for the count of batches in flight.
struct Snapshot {
  uint64_t generation = 0;
  TableSet tables;                // keeps the images alive that the programs' views point into
  std::vector<Program> programs;  // by segment
  // By device of the run: the generation in its memory; nullptr where it could not be put there.
  std::vector<std::shared_ptr<const Resident>> residents;
  RuleAccounts rules;                          // filled by attach_hits and RuleLog::attach
  mutable std::atomic<uint64_t> in_flight{0};  // batches that were started on this generation and are not committed
};

}  // namespace sluice

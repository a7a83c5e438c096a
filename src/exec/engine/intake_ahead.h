// host only
// What an intake reads of a capture before its turn. Internal to it.
#pragma once

#include <atomic>
#include <cstdint>

#include "exec/engine/intake.h"

namespace sluice {

// What was read of a source before its turn. Whoever holds `reading` reads, behind what is there; whoever polls the
// intake takes, in order. Its batches change places with those of jobs.
struct Intake::Ahead {
  static constexpr uint32_t kBatches = 2;
  struct Read {
    Batch batch;
    uint64_t at_ns = 0;
    uint64_t round = 0;
  };

  bool empty() const { return filled.load(std::memory_order_acquire) == taken.load(std::memory_order_relaxed); }
  bool full() const {
    return filled.load(std::memory_order_relaxed) - taken.load(std::memory_order_acquire) == kBatches;
  }

  std::atomic_flag reading;
  std::atomic<uint32_t> filled{0}, taken{0};
  Read reads[kBatches];
  // Of whoever reads.
  uint32_t turn_left = 0;  // as Intake::turn_left_, of what is read and not of what is taken
  bool end = false;
  Result<void> result;  // why it ended
};

}  // namespace sluice

// host only
// The worker's fast path: common packets go through the first stages of a program as columns (cpu/fast.h). The outcome,
// counters included, is that of the ordinary path, to which every packet goes that is not common after all.
#include <bit>

#include "base/prefetch.h"
#include "exec/worker.h"

namespace sluice {

// Takes the burst through the stages [begin, end) of the program. Adds to `refused` the lanes that must take the ordinary
// path from the start: nothing of theirs is counted. Counts what the others met, and drops; `stage_lanes` has room for
// kMaxStages masks: the lanes that came to each stage. Returns the lanes that passed all.
uint32_t Worker::run_fast(const Program& program, FastBurst& burst, uint32_t mask, uint32_t begin, uint32_t end,
                          uint32_t& refused, uint32_t* stage_lanes) {
  uint32_t alive = mask;
  uint32_t stopped = 0;
  uint32_t bounced = 0;
  for (uint32_t s = begin; s < end; ++s) {
    stage_lanes[s] = alive;
    if (alive == 0) continue;
    const StageSlot& slot = program.stages[s];
    const uint32_t passed = cpu_fast_kernel(slot.kind)(slot, burst, alive);
    for (uint32_t m = alive & ~passed; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      const uint8_t output = burst.output[lane];
      if (output == kFastRefused || slot.next[output & 15] != kPathDropped) {
        bounced |= uint32_t{1} << lane;
        continue;
      }
      stopped |= uint32_t{1} << lane;
      const DropReason reason = burst.reason[lane];
      ++stats_.elements[slot.element]
            .drops[static_cast<size_t>(reason == DropReason::kNone ? DropReason::kUnconnectedOutput : reason)];
    }
    alive = passed;
  }
  refused |= bounced;
  (void)stopped;
  return alive;
}

}  // namespace sluice

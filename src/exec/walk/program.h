// Program: the stages of one segment, in topological order. Small enough to be a kernel argument.
#pragma once

#include <cstdint>
#include <type_traits>

#include "graph/stage_slot.h"

namespace sluice {

// A packet carries its `path`: stage i runs on the packets whose path is i, and an output moves the packet to a later
// stage, to an exit, or to the drop. So a branch is a predicate and a merge costs nothing, on a tile in L1 as on a
// warp.
struct Program {
  uint32_t stage_count = 0;
  // The first stage with an early prefetch (cpu/tile.h): the stages before it run while its lines are on their way.
  uint32_t front = 0;
  // Stages, from the first, that common packets take as columns (cpu/fast.h); 0: none.
  uint32_t fast = 0;
  StageSlot stages[kMaxStages] = {};
};
static_assert(std::is_trivially_copyable_v<Program> && sizeof(Program) <= 2048, "kernel arguments are limited");

}  // namespace sluice

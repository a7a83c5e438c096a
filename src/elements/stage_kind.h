// The number of a stage type, without the list of all of them: an element that binds its own stage needs no other's.
#pragma once

#include <cstdint>

namespace sluice {

// The index of `Stage` in AllStages (elements/stages.h). Defined in stages.cpp for each of the list; another type does
// not link.
template <typename Stage>
uint16_t stage_kind();

// Puts a stage into its slot under its kind.
template <typename Stage, typename Slot>
void place(Slot& slot, const Stage& stage) {
  slot.set(stage_kind<Stage>(), stage);
}

}  // namespace sluice

// Which stage types run on records that bring less than a frame. Kernels are compiled by it and planners go by it, so
// that no stage is sent where it has no code. Host and device.
#pragma once

#include "batch/packet.h"

namespace sluice {

// On a key alone: its record brings the key, and its result takes nothing of a frame back.
template <typename Stage>
inline constexpr bool kRunsOnKeys = (Stage::kReads & ~(kFieldKey | kFieldDestination | kFieldRule | kFieldMark |
                                                       kFieldNextHop | kFieldReason)) == 0 &&
                                    (Stage::kWrites & (kFieldFrame | kFieldL3 | kFieldExtent)) == 0;

// On a destination alone.
template <typename Stage>
inline constexpr bool kRunsOnDestinations = kRunsOnKeys<Stage>&& Stage::kReads == kFieldDestination;

}  // namespace sluice

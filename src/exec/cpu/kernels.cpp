// host only
// The CPU form of every stage: a loop over a tile. The stage's author wrote the packet; the loop, and the prefetch pass
// are here, once.
#include <array>

#include "base/assert.h"
#include "base/group.h"
#include "elements/stages.h"
#include "exec/cpu/tile.h"

namespace sluice {
namespace {

template <typename Stage>
void run_stage(const StageSlot& slot, Tile& tile, uint32_t mask, [[maybe_unused]] bool prefetched) {
  const Stage& stage = slot.get<Stage>();
  if constexpr (requires { stage.run_group(OneLane{}, tile.packet, mask, tile.output); }) {
    stage.run_group(OneLane{}, tile.packet, mask, tile.output);
  } else if constexpr (requires { stage.burst(tile.packet, mask, tile.output); }) {
    stage.burst(tile.packet, mask, tile.output);
  } else {
    if constexpr (requires { stage.prefetch(tile.packet[0]); }) {
      if (!prefetched) for_lanes(mask, [&](uint32_t i) { stage.prefetch(tile.packet[i]); });
    }
    for_lanes(mask, [&](uint32_t i) { tile.output[i] = stage(tile.packet[i]); });
  }
}

template <typename Stage>
void prefetch_stage(const StageSlot& slot, const Tile& tile, uint32_t mask) {
  const Stage& stage = slot.get<Stage>();
  for_lanes(mask, [&](uint32_t i) { stage.prefetch(tile.packet[i]); });
}

template <typename Stage>
constexpr StagePrefetch early_prefetch() {
  if constexpr (requires(const Stage& stage, const Packet& packet) { stage.prefetch(packet); }) {
    if ((Stage::kReads & ~FieldMask{kFieldKey | kFieldDestination}) == 0) return &prefetch_stage<Stage>;
  }
  return nullptr;
}

template <typename... Stages>
constexpr auto make_table(TypeList<Stages...>) {
  return std::array<StageKernel, sizeof...(Stages)>{&run_stage<Stages>...};
}
template <typename... Stages>
constexpr auto make_prefetch_table(TypeList<Stages...>) {
  return std::array<StagePrefetch, sizeof...(Stages)>{early_prefetch<Stages>()...};
}

constexpr auto kKernels = make_table(AllStages{});
constexpr auto kPrefetches = make_prefetch_table(AllStages{});

}  // namespace

StageKernel cpu_stage_kernel(uint16_t kind) {
  SLUICE_ASSERT(kind < kKernels.size());
  return kKernels[kind];
}

StagePrefetch cpu_stage_prefetch(uint16_t kind) {
  SLUICE_ASSERT(kind < kPrefetches.size());
  return kPrefetches[kind];
}

}  // namespace sluice

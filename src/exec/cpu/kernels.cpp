// host only
// The CPU form of every stage: a loop over a tile. The stage's author wrote the packet; the loop, and the prefetch pass
// are here, once.
#include <array>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/assert.h"
#include "base/group.h"
#include "batch/key_burst.h"
#include "elements/stages.h"
#include "exec/cpu/tile.h"

namespace sluice {
namespace {

template <typename Stage>
inline void run_stage(const StageSlot& slot, Tile& tile, uint32_t mask, [[maybe_unused]] bool prefetched) {
  const Stage& stage = slot.get<Stage>();
  if constexpr (requires { stage.team(OneLane{}, tile.packet, mask, tile.output); }) {
    stage.team(OneLane{}, tile.packet, mask, tile.output);
  } else if constexpr (TakesKeyBursts<Stage> && !requires { stage.prefetch(tile.packet[0]); }) {
    run_key_burst(stage, tile.packet, mask, tile.output);
  } else {
    if constexpr (requires { stage.prefetch(tile.packet[0]); }) {
      if (!prefetched) for_lanes(mask, [&](uint32_t i) { stage.prefetch(tile.packet[i]); });
    }
    for_lanes(mask, [&](uint32_t i) { tile.output[i] = stage(tile.packet[i]); });
  }
}

// The same source for two instruction sets, chosen once at start: x86-64-v2 is what the program needs, v3
// (byte-swapping loads, three-operand shifts) is worth a few clocks a packet to the parser. `flatten` puts everything
// that a stage calls into the kernel.
template <typename Stage>
__attribute__((flatten)) void kernel_baseline(const StageSlot& slot, Tile& tile, uint32_t mask, bool prefetched) {
  run_stage<Stage>(slot, tile, mask, prefetched);
}
#if defined(__x86_64__)
template <typename Stage>
__attribute__((flatten, target("avx2,bmi,bmi2,movbe,lzcnt"))) void kernel_v3(const StageSlot& slot, Tile& tile,
                                                                             uint32_t mask, bool prefetched) {
  run_stage<Stage>(slot, tile, mask, prefetched);
}
#endif

template <typename Stage>
void prefetch_stage(const StageSlot& slot, const Tile& tile, uint32_t mask) {
  const Stage& stage = slot.get<Stage>();
  for_lanes(mask, [&](uint32_t i) { stage.prefetch(tile.packet[i]); });
}

std::array<StageKernel, AllStages::kSize> choose_kernels() {
#if defined(__x86_64__)
  // Compilers do not all know movbe by name: CPUID leaf 1, ECX bit 22.
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool movbe = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 22 & 1) != 0;
  if (movbe && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")) {
    return AllStages::table<StageKernel>([]<typename Stage>(TypeTag<Stage>) { return &kernel_v3<Stage>; });
  }
#endif
  return AllStages::table<StageKernel>([]<typename Stage>(TypeTag<Stage>) { return &kernel_baseline<Stage>; });
}

const std::array<StageKernel, AllStages::kSize> kKernels = choose_kernels();
constexpr auto kPrefetches = AllStages::table<StagePrefetch>([]<typename Stage>(TypeTag<Stage>) -> StagePrefetch {
  if constexpr (requires(const Stage& stage, const Packet& packet) { stage.prefetch(packet); }) {
    if ((Stage::kReads & ~FieldMask{kFieldKey | kFieldDestination}) == 0) return &prefetch_stage<Stage>;
  }
  return nullptr;
});

}  // namespace

StageKernel cpu_stage_kernel(uint16_t kind) {
  SLUICE_CHECK(kind < kKernels.size());
  return kKernels[kind];
}

StagePrefetch cpu_stage_prefetch(uint16_t kind) {
  SLUICE_CHECK(kind < kPrefetches.size());
  return kPrefetches[kind];
}

}  // namespace sluice

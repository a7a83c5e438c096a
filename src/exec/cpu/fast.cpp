// host only
#include "exec/cpu/fast.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/assert.h"
#include "elements/stages.h"
#include "net/edit.h"
#include "net/fast_parse.h"

namespace sluice {
namespace {

template <typename Stage>
concept Fast = requires(const Stage& stage, FastBurst& burst) { stage.fast(burst, 1u); };

template <typename Stage>
__attribute__((flatten)) uint32_t fast_kernel(const StageSlot& slot, FastBurst& burst, uint32_t mask) {
  return slot.get<Stage>().fast(burst, mask);
}
template <typename Stage>
void fast_prefetch(const StageSlot& slot, const FastBurst& burst) {
  slot.get<Stage>().fast_prefetch(burst);
}

template <typename Stage>
constexpr FastKernel kernel_of() {
  if constexpr (Fast<Stage>) {
    return &fast_kernel<Stage>;
  } else {
    return nullptr;
  }
}
template <typename Stage>
constexpr FastPrefetch prefetch_of() {
  if constexpr (requires(const Stage& stage, const FastBurst& burst) { stage.fast_prefetch(burst); }) {
    return &fast_prefetch<Stage>;
  } else {
    return nullptr;
  }
}

template <typename... Stages>
constexpr auto kernels(TypeList<Stages...>) {
  return std::array<FastKernel, sizeof...(Stages)>{kernel_of<Stages>()...};
}
template <typename... Stages>
constexpr auto prefetches(TypeList<Stages...>) {
  return std::array<FastPrefetch, sizeof...(Stages)>{prefetch_of<Stages>()...};
}
constexpr auto kKernels = kernels(AllStages{});
constexpr auto kPrefetches = prefetches(AllStages{});

}  // namespace

FastKernel cpu_fast_kernel(uint16_t kind) {
  SLUICE_ASSERT(kind < kKernels.size());
  return kKernels[kind];
}

FastPrefetch cpu_fast_prefetch(uint16_t kind) {
  SLUICE_ASSERT(kind < kPrefetches.size());
  return kPrefetches[kind];
}

uint32_t fast_stages(const Program& program) {
  // A common packet is no martian and has no options, so that IPInput passes it whatever its settings are.
  if (program.stage_count == 0 || program.stages[0].kind != kStageKind<IpInputStage>) return 0;
  uint32_t covered = 1;
  while (covered < program.stage_count && program.stages[covered - 1].next[0] == covered &&
         cpu_fast_kernel(program.stages[covered].kind) != nullptr) {
    ++covered;
  }
  return covered;
}

uint32_t gather_fast(const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst, uint32_t* rest) {
  uint32_t lane = burst.count;
  uint32_t left = 0;
  for (uint32_t r = 0; r < n; ++r) {
    const uint32_t row = rows[r];
    const Extent& extent = view.extent[row];
    uint8_t* frame = view.frame[row];
    const bool common = (extent.data == 0) & (extent.end == extent.wire_end);
    if (!common || !parse_fast(frame, extent.end, burst.key[lane], burst.ip_bytes[lane])) {
      rest[left++] = row;
      continue;
    }
    burst.frame[lane] = frame;
    burst.row[lane] = row;
    burst.length[lane] = extent.end;
    burst.rule[lane] = 0;
    burst.next_hop[lane] = 0;
    ++lane;
  }
  burst.count = lane;
  return left;
}

void commit_fast(const BatchView& view, const FastBurst& burst, uint32_t mask) {
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    const uint32_t row = burst.row[lane];
    uint8_t* frame = burst.frame[lane];
    if ((burst.hopped >> lane & 1) != 0) decrement_ttl_ipv4(frame + kFastL3);
    const uint32_t end = kFastL3 + burst.ip_bytes[lane];
    view.extent[row] = Extent{0, end, end, kFastL3, kFastL4};
    Annotation& a = view.annotation[row];
    if ((burst.rewritten >> lane & 1) != 0) {
      std::memcpy(frame, burst.rewrite[lane], 12);
      a.port = burst.port[lane];
    }
  }
}

void registers_of(const BatchView& view, const FastBurst& burst, uint32_t lane, Packet& p) {
  view.load(burst.row[lane], 0, p);
  p.key = unpack_key4(burst.key[lane]);
  p.rule = burst.rule[lane];
  p.next_hop = burst.next_hop[lane];
  p.ether_type = kEtherTypeIpv4;
  p.vlan_count = 0;
  p.vlan_tci = 0;
  p.ip_flags = (p.frame[kFastL3 + 6] & 0x40) != 0 ? Headers::kDontFragment : 0;
  p.ttl = burst.ttl(lane);
}

}  // namespace sluice

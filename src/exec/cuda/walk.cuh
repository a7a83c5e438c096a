// A warp's way through a program: what launch kernels and ring kernels share. Device only.
//
// Lanes walk together: at each stage those lanes run whose packet stands there, the others wait. The packet of a key
// record is registers, and code that needs a frame is not compiled in.
#pragma once

#include <cstdint>

#include "base/bits.h"
#include "exec/cuda/chains.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/warp_group.h"
#include "exec/device/body.h"

namespace sluice::cuda_walk {

inline constexpr uint32_t kAll = 0xffffffffu;

// -- stages -----------------------------------------------------------------------------------------------------------

template <RecordKind K, typename Chain>
inline constexpr bool kChainCompiled = false;
template <RecordKind K, typename... Stages>
inline constexpr bool kChainCompiled<K, TypeList<Stages...>> = (kCompiled<K, Stages> && ...);

// Where stages find their tables. Here, where their pointers say: in global memory.
struct GlobalTables {
  template <typename Stage>
  __device__ __forceinline__ const Stage& stage(const StageSlot& slot) const {
    return slot.template get<Stage>();
  }
};
// At `to`, a copy of what lies at `from`. The stage is a copy in registers; the compiler sees what kind of memory `to`
// is in, and loads by that kind's instructions.
struct MovedTables {
  const std::byte* from;
  const std::byte* to;
  template <typename Stage>
  __device__ __forceinline__ Stage stage(const StageSlot& slot) const {
    return moved_to(slot.template get<Stage>(), from, to);
  }
};

// f(stage) for the stage type at position `kind` of [kLow, kHigh). `kind` is the same for the whole warp.
template <RecordKind K, size_t kLow, size_t kHigh, typename Tables, typename F>
__device__ __forceinline__ void visit(const StageSlot& slot, const Tables& tables, F& f) {
  if constexpr (kHigh - kLow == 1) {
    using Stage = typename AllStages::template At<kLow>;
    if constexpr (kCompiled<K, Stage>) f(tables.template stage<Stage>(slot));
  } else {
    constexpr size_t kMiddle = (kLow + kHigh) / 2;
    if (slot.kind < kMiddle) {
      visit<K, kLow, kMiddle>(slot, tables, f);
    } else {
      visit<K, kMiddle, kHigh>(slot, tables, f);
    }
  }
}

// Whether a team of lanes that hold one packet shares the stage's work.
template <uint32_t kTeam, typename Stage>
inline constexpr bool kByTeams = kTeam > 1 && requires(const Stage& stage, Packet& packet) {
  stage.team(TeamGroup<kTeam>{}, packet, true);
};

// A stage for one lane, or for a team; all lanes call it, `mine`: this one has a packet there.
template <uint32_t kTeam, typename Stage>
__device__ __forceinline__ uint8_t run_lane(const Stage& stage, Packet& packet, bool mine) {
  if constexpr (kByTeams<kTeam, Stage>) {
    return stage.team(TeamGroup<kTeam>{}, packet, mine);
  } else {
    return mine ? stage(packet) : uint8_t{0};
  }
}

template <RecordKind K, uint32_t kTeam, typename Tables>
__device__ __forceinline__ void walk_any(const DeviceProgram& program, Walker& w, const Tables& tables) {
  const uint32_t end = program.end;
#pragma unroll 1
  for (uint32_t s = program.begin; s < end; ++s) {
    const bool mine = w.path == s;
    if (!__any_sync(kAll, mine)) continue;
    const StageSlot& slot = program.program.stages[s];
    uint8_t output = 0;
    auto run = [&](const auto& stage) { output = run_lane<kTeam>(stage, w.packet, mine); };
    visit<K, 0, AllStages::kSize>(slot, tables, run);
    if (mine) take_output(program, slot, s, output, w);
    __syncwarp();
  }
}

template <uint32_t kTeam, typename... Stages>
__device__ __forceinline__ void walk_chain(TypeList<Stages...>, const DeviceProgram& program, Walker& w) {
  uint32_t s = program.begin;
  auto one = [&]<typename Stage>(TypeTag<Stage>) {
    const bool mine = w.path == s;
    if (kByTeams<kTeam, Stage> || mine) {
      const StageSlot& slot = program.program.stages[s];
      const uint8_t output = run_lane<kTeam>(slot.template get<Stage>(), w.packet, mine);
      if (mine) take_output(program, slot, s, output, w);
    }
    ++s;
  };
  (one(TypeTag<Stages>{}), ...);
}

// Called by all 32 lanes; a lane without a packet has the path kPathDropped. `Chain`: NoChain for any program. kTeam:
// so many neighbours hold one packet. Chains have their tables in global memory.
template <RecordKind K, typename Chain, uint32_t kTeam = 1, typename Tables = GlobalTables>
__device__ __forceinline__ void walk_warp(const DeviceProgram& program, Walker& w, const Tables& tables = {}) {
  if constexpr (std::is_same_v<Chain, NoChain>) {
    walk_any<K, kTeam>(program, w, tables);
  } else {
    static_assert(std::is_same_v<Tables, GlobalTables>);
    walk_chain<kTeam>(Chain{}, program, w);
  }
}

// -- records ----------------------------------------------------------------------------------------------------------

// Four payload bytes of a record from stream offset `offset`, a constant where the caller is unrolled.
__device__ __forceinline__ uint32_t payload32(const Word* words, uint32_t offset) {
  uint32_t value = 0;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t word = (offset + i) / kWordPayload, byte = (offset + i) % kWordPayload;
    value |= (words[word].w[byte / 4] >> (8 * (byte % 4)) & 0xffu) << (8 * i);
  }
  return value;
}

// A fresh walker for destination `i` of a kRoute4 record that lies in registers.
__device__ __forceinline__ void read_route(const DeviceProgram& program, const Word& word, uint32_t i, Walker& w) {
  w.path = program.begin;
  w.packet.key.family = 4;
  w.packet.key.dst_lo = i == 0 ? word.w[0] : i == 1 ? word.w[1] : word.w[2];
}

// Fills a fresh walker from a key record that lies in registers. Equal to read_record, which would put the walker into
// local memory.
template <RecordKind K>
__device__ __forceinline__ void read_key(const DeviceProgram& program, const Word* words, Walker& w) {
  w.path = program.begin;
  if constexpr (K == RecordKind::kKey4) {
    w.packet.key = unpack_key4(words[0]);
  } else {
    uint32_t key[sizeof(FlowKey) / 4] = {};
#pragma unroll
    for (uint32_t i = 0; i < kKeyBytes / 4; ++i) key[i] = payload32(words, 4 * i);
    memcpy(&w.packet.key, key, sizeof key);
  }
}

__device__ __forceinline__ Word load_plain(const Word* from) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  return Word{{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ void store_plain(Word* to, const Word& word) {
  *reinterpret_cast<uint4*>(to) = make_uint4(word.w[0], word.w[1], word.w[2], word.w[3]);
}

}  // namespace sluice::cuda_walk

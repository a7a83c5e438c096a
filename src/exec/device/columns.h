// Keys and answers that lie in a device's memory as columns: what one lookup reads and writes. Host and device.
//
// The emulated device and the CUDA kernel (exec/cuda/columns.cu) run answer_key for each key, so that they cannot
// differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bits.h"
#include "base/hd.h"
#include "elements/stages.h"
#include "graph/stage_slot.h"
#include "net/bytes.h"
#include "net/flow_key.h"

namespace sluice {

// Entry i lies at `at` + i * `stride` bytes, aligned to its type. nullptr: there is no such column.
struct DeviceColumn {
  const uint8_t* at = nullptr;
  int64_t stride = 0;

  SLUICE_HD explicit operator bool() const { return at != nullptr; }
  SLUICE_HD const uint8_t* row(uint64_t i) const { return at + static_cast<int64_t>(i) * stride; }
  // 0 where there is no column.
  template <typename T>
  SLUICE_HD T get(uint64_t i) const {
    T value{};
    if (at == nullptr) return value;
#if defined(__CUDA_ARCH__)
    // A copy of bytes that may lie anywhere would be a load a byte.
    value = *reinterpret_cast<const T*>(row(i));
#else
    memcpy(&value, row(i), sizeof value);
#endif
    return value;
  }
};

struct DeviceKeys {
  DeviceColumn keys;                  // of FlowKey; the rest is not read then
  DeviceColumn family;                // uint8_t; none: that of `one_family`
  DeviceColumn src4, dst4;            // uint32_t
  DeviceColumn src6, dst6;            // 16 bytes in network order, of any alignment
  DeviceColumn sport, dport;          // uint16_t
  DeviceColumn flags16;               // uint16_t, as FlowKey has them
  DeviceColumn flags8;                // uint8_t, the byte of TCP flags
  DeviceColumn icmp;                  // uint16_t
  DeviceColumn protocol, dscp, bits;  // uint8_t
  uint8_t one_family = 4;
  uint8_t one_bits = 0;  // where there is no column `bits`
};

namespace columns_detail {

SLUICE_HD uint64_t half_address(const uint8_t* at) {
#if defined(__CUDA_ARCH__)
  if ((reinterpret_cast<uintptr_t>(at) & 7) == 0) return swap64(*reinterpret_cast<const uint64_t*>(at));
#endif
  return load_be64(at);
}

}  // namespace columns_detail

SLUICE_HD FlowKey gather_key(const DeviceKeys& columns, uint64_t i) {
  if (columns.keys) return columns.keys.get<FlowKey>(i);
  FlowKey key;
  key.family = columns.family ? columns.family.get<uint8_t>(i) : columns.one_family;
  if (key.family == 4) {
    key.src_lo = columns.src4.get<uint32_t>(i);
    key.dst_lo = columns.dst4.get<uint32_t>(i);
  } else if (key.family == 6) {
    if (columns.src6) {
      key.src_hi = columns_detail::half_address(columns.src6.row(i));
      key.src_lo = columns_detail::half_address(columns.src6.row(i) + 8);
    }
    if (columns.dst6) {
      key.dst_hi = columns_detail::half_address(columns.dst6.row(i));
      key.dst_lo = columns_detail::half_address(columns.dst6.row(i) + 8);
    }
  }
  key.src_port = columns.sport.get<uint16_t>(i);
  key.dst_port = columns.dport.get<uint16_t>(i);
  key.flags = static_cast<uint16_t>(columns.flags16.get<uint16_t>(i) | columns.flags8.get<uint8_t>(i) << 8);
  key.protocol = columns.protocol.get<uint8_t>(i);
  key.dscp = columns.dscp.get<uint8_t>(i);
  key.bits = columns.bits ? columns.bits.get<uint8_t>(i) : columns.one_bits;
  key.icmp = columns.icmp.get<uint16_t>(i);
  return key;
}

// What is written of a key's answer.
enum class ColumnAnswer : uint8_t {
  kPosition,  // uint32_t, of the first rule that matches, from 1; 0: none
  kAction,    // uint8_t, AclVerb
  kMark,      // uint32_t
  kNextHop,   // uint32_t, its number; 0: no route
  kIndex,     // int32_t, its number less 1
};
SLUICE_HD constexpr size_t answer_bytes(ColumnAnswer answer) {
  return answer == ColumnAnswer::kAction ? 1 : 4;
}

// From the numbers of a patched list's rules to positions (api/positions.h); nullptr: numbers are positions.
struct RuleRanks {
  const uint64_t* used = nullptr;
  const uint32_t* before = nullptr;

  SLUICE_HD uint32_t position(uint32_t number) const {
    if (used == nullptr) return number;
    return before[number / 64] + popcount64(used[number / 64] << (63 - number % 64));
  }
};

// One lookup of n keys. Its pointers are the device's.
struct ColumnLookup {
  DeviceKeys keys;
  void* answers = nullptr;  // n, one after another, aligned to their type
  ColumnAnswer answer = ColumnAnswer::kPosition;
  RuleRanks ranks;
  uint64_t n = 0;
};

// Stages that look up by a key alone: access lists and routes.
template <typename Stage>
inline constexpr bool kFindsRules = requires(const Stage& stage, const FlowKey& key) {
  stage.rule_of(key);
};
template <typename Stage>
inline constexpr bool kFindsRoutes = requires(const Stage& stage) {
  stage.view4.lookup(uint32_t{});
  stage.view6.lookup(uint64_t{}, uint64_t{});
};

// Key i.
template <typename Stage>
SLUICE_HD void answer_key(const Stage& stage, const ColumnLookup& work, uint64_t i) {
  const FlowKey key = gather_key(work.keys, i);
  uint32_t found = 0;
  if constexpr (kFindsRules<Stage>) {
    // Rules are about IP packets.
    const uint32_t rule = key.family == 4 || key.family == 6 ? stage.rule_of(key) : 0;
    if (work.answer == ColumnAnswer::kPosition) {
      found = work.ranks.position(rule);
    } else {
      const AclAction action = stage.actions.action(rule);
      if (work.answer == ColumnAnswer::kAction) {
        static_cast<uint8_t*>(work.answers)[i] = static_cast<uint8_t>(action.verb);
        return;
      }
      found = action.mark;
    }
  } else {
    static_assert(kFindsRoutes<Stage>);
    if (key.family == 4) found = stage.view4.lookup(static_cast<uint32_t>(key.dst_lo));
    if (key.family == 6) found = stage.view6.lookup(key.dst_hi, key.dst_lo);
    if (work.answer == ColumnAnswer::kIndex) --found;
  }
  static_cast<uint32_t*>(work.answers)[i] = found;
}

// Calls f(stage) with the lookup in `slot`. False: there is another stage. Host only.
template <typename F>
bool with_lookup(const StageSlot& slot, F&& f) {
  bool found = false;
  AllStages::for_each([&]<typename Stage>(TypeTag<Stage>) {
    if constexpr (kFindsRules<Stage> || kFindsRoutes<Stage>) {
      if (found || slot.kind != kStageKind<Stage>) return;
      found = true;
      f(slot.template get<Stage>());
    }
  });
  return found;
}

}  // namespace sluice

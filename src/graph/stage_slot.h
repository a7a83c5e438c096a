// StageSlot: one bound stage inside a Program: which code, which data, where its outputs go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

// Where a packet stands in a program: the index of the stage that takes it next, an exit, or dropped.
inline constexpr unsigned kMaxStages = 16;
inline constexpr uint8_t kPathExit = 0x20;  // kPathExit + n: left by exit n
inline constexpr unsigned kMaxExits = 0xf0 - kPathExit;
inline constexpr uint8_t kPathDropped = 0xff;

// Trivially copyable and the same on host and device. `kind` is the stage type's index in the list of all stages.
struct StageSlot {
  static constexpr size_t kStorage = 96;

  uint16_t kind;
  uint16_t element;  // index of the element in the graph, for counters
  uint8_t outputs;
  uint8_t moves_extent;  // 1: the stage may change the packet's extent, so lengths must be counted anew after it
  uint8_t reserved[2];
  uint8_t next[16];  // output & 15 -> path; unconnected outputs and kDropOutput (so entry 15) are kPathDropped
  alignas(8) std::byte storage[kStorage];

  template <typename Stage>
  void set(uint16_t stage_kind, const Stage& stage) {
    static_assert(std::is_trivially_copyable_v<Stage>, "a stage is copied to the device byte by byte");
    static_assert(sizeof(Stage) <= kStorage && alignof(Stage) <= 8,
                  "a stage must fit its slot: put the rest into an image");
    kind = stage_kind;
    // Through the slot: after get() GCC takes the storage for the first member of what was there.
    std::memcpy(reinterpret_cast<std::byte*>(this) + offsetof(StageSlot, storage), &stage, sizeof stage);
  }
  template <typename Stage>
  SLUICE_HD const Stage& get() const {
    return *reinterpret_cast<const Stage*>(storage);
  }
};
static_assert(std::is_trivially_copyable_v<StageSlot> && sizeof(StageSlot) == 120);

}  // namespace sluice

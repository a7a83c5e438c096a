// Where a device's kernels read the tables of a program. Host and device.
//
//   global    the whole images, as they are: any size
//   constant  what the stages read of them, packed, in constant memory: one address per warp at a time, so it is for
//             lookups that go the same way for neighbouring packets
//   shared    the same in device memory, which each block of threads copies into its shared memory before it begins
//
// With the last two a stage's pointers lie in the packed tables at DeviceProgram::tables, and whoever runs the program
// moves them to where its own copy begins (moved_to).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/hd.h"
#include "exec/device/record.h"

namespace sluice {

enum class TableMemory : uint8_t { kGlobal, kConstant, kShared };

inline const char* to_string(TableMemory memory) {
  switch (memory) {
    case TableMemory::kGlobal:
      return "global";
    case TableMemory::kConstant:
      return "constant";
    case TableMemory::kShared:
      return "shared";
  }
  return "?";
}

// All of a CUDA device's constant memory that a program can name.
inline constexpr size_t kConstantBytes = 65'536;
// Tables begin at such addresses in every memory.
inline constexpr size_t kTableAlign = 64;
// Frames that a block copies beside its tables; at most so many bytes.
inline constexpr uint32_t kFrameBlockThreads = 64;
inline constexpr uint32_t kFrameCopiesMost =
    (kFrameBlockThreads * frame_stride(kFrameMostRoom) + 16 + kTableAlign - 1) / kTableAlign * kTableAlign;

// Bytes of tables that kernels over such records may read there, on a device whose blocks have `shared` bytes of shared
// memory.
inline constexpr size_t table_room(TableMemory memory, RecordKind kind, size_t shared) {
  if (memory == TableMemory::kGlobal) return ~size_t{0};
  if (memory == TableMemory::kConstant) return kConstantBytes;
  const size_t copies = kind == RecordKind::kFrame ? kFrameCopiesMost : 0;
  return shared > copies ? shared - copies : 0;
}

// A class with a name: nvcc 13.0 finds a lambda here to fit nothing.
struct AnyPointer {
  template <typename T>
  SLUICE_HD void operator()(const T*&, uint32_t = 0) const {}
};
template <typename Stage>
inline constexpr bool kHasPointers = requires(Stage& stage, const AnyPointer& f) {
  stage.each_pointer(f);
};

// A stage whose pointers lie in the tables at `from`, for a copy of these at `to`.
template <typename Stage>
SLUICE_HD Stage moved_to(Stage stage, const std::byte* from, const std::byte* to) {
  if constexpr (kHasPointers<Stage>) {
    // What is found by `to` keeps its kind of memory, by which the compiler chooses its loads.
    stage.each_pointer([from, to]<typename T>(const T*& p, uint32_t = 0) {
      p = p == nullptr ? nullptr : reinterpret_cast<const T*>(to + (reinterpret_cast<const std::byte*>(p) - from));
    });
  }
  return stage;
}

}  // namespace sluice

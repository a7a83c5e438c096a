// DeviceProgram: what a device is given to run. Host and device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "exec/device/record.h"
#include "exec/device/table_memory.h"
#include "exec/walk/program.h"

namespace sluice {

// A program as a device runs it: its stages point into that device's memory.
struct DeviceProgram {
  Program program;
  uint8_t begin = 0;  // stages [begin, end) run on the device
  uint8_t end = 0;
  uint8_t wide = 0;   // the one stage's outputs are exits
  uint8_t chain = 0;  // which specialised chain this is (0: none, the generic switch)
  TableMemory memory = TableMemory::kGlobal;
  uint8_t reserved[3] = {};
  RecordShape shape;  // of frame records; keys need none
  // Where the stages' pointers count from. kConstant: the beginning of constant memory. kShared: of the packed tables
  // in device memory, `table_bytes` of them and what fills the last 16; aligned to kTableAlign. kGlobal: none.
  const std::byte* tables = nullptr;
  uint32_t table_bytes = 0;
  uint32_t reserved2 = 0;
};
static_assert(std::is_trivially_copyable_v<DeviceProgram> && sizeof(DeviceProgram) <= 2080);

}  // namespace sluice

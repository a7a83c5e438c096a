// DeviceProgram: what a device is given to run. Host and device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "exec/device/record.h"
#include "exec/program.h"

namespace sluice {

// A program as a device runs it: its stages point into that device's memory.
struct DeviceProgram {
  Program program;
  uint8_t begin = 0;  // stages [begin, end) run on the device
  uint8_t end = 0;
  uint8_t wide = 0;   // the one stage's outputs are exits
  uint8_t chain = 0;  // which specialised chain this is (0: none, the generic switch)
  uint32_t reserved = 0;
  RecordShape shape;  // of header and address records; keys need none
};
static_assert(std::is_trivially_copyable_v<DeviceProgram> && sizeof(DeviceProgram) <= 2064);

}  // namespace sluice

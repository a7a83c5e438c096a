// host only
// Rates with everything in device memory: what the kernels do when no bus is in the way. For benches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "exec/device/device.h"
#include "tables/lpm/dir24.h"
#include "tables/lpm/poptrie.h"

namespace sluice {

// Which word of a packet's registers a run gives back.
enum class ResidentField : uint32_t { kRule, kNextHop, kSteps };

// Runs a program over key4 records that lie in device memory, `repeats` times after one that is not counted. Returns
// records a second of each time, by device events around the kernel. `results` (one a record) get the last run's field,
// for the caller to check. The program's tables are in the device's memory. Errors: not a CUDA device, a program that
// does not run on keys, too little memory, the device failed.
Result<std::vector<double>> resident_rate(Device& device, const DeviceProgram& program, std::span<const Word> records,
                                          ResidentField field, uint32_t* results, unsigned repeats);

// The same for a lookup alone: 4-byte addresses in, 4-byte next hops out. The view points into device memory.
Result<std::vector<double>> resident_lookups(Device& device, const Dir24View& view, std::span<const uint32_t> addresses,
                                             uint32_t* next_hops, unsigned repeats);
Result<std::vector<double>> resident_lookups(Device& device, const Poptrie4View& view,
                                             std::span<const uint32_t> addresses, uint32_t* next_hops,
                                             unsigned repeats);

}  // namespace sluice

// host only
// Rates with everything in device memory: what the kernels do when no bus is in the way. For benches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "exec/device/body.h"
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

// Whole programs over whole frames, all of them in device memory: parsing, lookups and edits.
struct ResidentFrames {
  std::vector<uint8_t> bytes;          // frame i begins at kLead + i * stride
  std::vector<uint32_t> lengths;       // of each
  uint32_t stride = 0;                 // bytes, a multiple of 64 and at least 4 more than the longest frame
  static constexpr size_t kLead = 64;  // a VLAN tag may be pushed before the first
};
// What became of one frame: stages met | output of the last << 16 | drop reason << 24.
inline uint32_t frame_outcome(const Walker& w) {
  return w.visited | uint32_t{w.output} << 16 | static_cast<uint32_t>(w.packet.reason) << 24;
}

// Runs a program over the frames, `repeats` times after one that is not counted, each time over the bytes as they were
// given. Returns frames a second of each. `frames.bytes` then holds what the last run made of them, `outcomes` (one a
// frame) what became of each. Errors as above, and a program that is not the standard graph's with an access list and
// routes (tuple_space, dir24, poptrie): IPInput, ACL, IPRoute, DecIPTTL, AdjacencyRewrite.
Result<std::vector<double>> resident_frames(Device& device, const DeviceProgram& program, ResidentFrames& frames,
                                            uint32_t* outcomes, unsigned repeats);

}  // namespace sluice

// host only
// Rates with everything in device memory: what the kernels do when no bus is in the way. For benches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "exec/device/body.h"
#include "exec/device/device.h"
#include "exec/device/table_memory.h"
#include "net/crc32.h"
#include "qos/departure_scan.h"
#include "qos/policer.h"
#include "tables/image.h"

namespace sluice {

// Which word of a packet's registers a run gives back.
enum class ResidentField : uint32_t { kRule, kNextHop, kSteps };

// Runs a program over key4 records that lie in device memory, `repeats` times after one that is not counted. Returns
// records a second of each time, by device events around the kernel. `results` (one a record) get the last run's field,
// for the caller to check. The program's tables are in the device's memory. Errors: not a CUDA device, a program that
// does not run on keys, too little memory, the device failed.
Result<std::vector<double>> resident_rate(Device& device, const DeviceProgram& program, std::span<const Word> records,
                                          ResidentField field, uint32_t* results, unsigned repeats);

// Where the table of lookups lies. `window`, of global memory: the second-level cache is asked to keep the table, as
// far as it fits (an access-policy window).
struct LookupTable {
  TableMemory memory = TableMemory::kGlobal;
  bool window = false;
};
// The same for lookups alone in the table of a routes image, which is copied there: 4-byte addresses in, 4-byte next
// hops out. Errors as above, those of with_fib4, and a table that does not fit (with both sizes) or did not lie there.
Result<std::vector<double>> resident_lookups4(Device& device, const Image& image, std::span<const uint32_t> addresses,
                                              uint32_t* next_hops, unsigned repeats, const LookupTable& where);
// IPv6: 16-byte addresses, as {upper half, lower half} pairs in host order.
Result<std::vector<double>> resident_lookups6(Device& device, const Image& image, std::span<const uint64_t> addresses,
                                              uint32_t* next_hops, unsigned repeats, const LookupTable& where);

// The same with addresses and next hops in host memory: staged in pieces, copies both ways beside kernels.
struct FedLookups {
  std::vector<double> rates;  // addresses a second, from the first copy's start to the last one's end
  // The steps one after another and as a whole, in seconds, as a program pays them that does nothing else: memory on
  // both sides, the caller's addresses into the memory that is copied from, to the device, the kernel, and back.
  double allocate = 0, convert = 0, to_device = 0, kernel = 0, to_host = 0;
};
// `pinned`: the host's memory is page-locked, else it is what malloc gives. Errors as above.
Result<FedLookups> fed_lookups4(Device& device, const Image& image, std::span<const uint32_t> addresses,
                                uint32_t* next_hops, unsigned repeats, bool pinned);
Result<FedLookups> fed_lookups6(Device& device, const Image& image, std::span<const uint64_t> addresses,
                                uint32_t* next_hops, unsigned repeats, bool pinned);

// `batches` batches one after another, each of all the addresses, as a program pays them that gets its packets a batch
// at a time: copied into memory that is copied from, to the device, looked up, back, and into the caller's `next_hops`.
// Addresses a second of each batch, after one that is not counted. `fresh`: each batch has memory of its own on both
// sides, which is part of its time; else all have that of the first. `pinned` and errors as above.
Result<std::vector<double>> lookups_in_a_row4(Device& device, const Image& image, std::span<const uint32_t> addresses,
                                              uint32_t* next_hops, unsigned batches, bool pinned, bool fresh);

// Whether a frame passed all of `stages` and left the last by its first output. `outcome`: stages met | output of the
// last << 16 | drop reason << 24.
SLUICE_HD bool resident_left(uint32_t outcome, uint32_t stages) {
  return (outcome & 0xffff) == (1u << stages) - 1 && (outcome >> 16) == 0;
}

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
// routes (tuple_space or tuple_merge, dir24, poptrie): IPInput, ACL, IPRoute, DecIPTTL, AdjacencyRewrite.
// Also EtherMirror alone.
Result<std::vector<double>> resident_frames(Device& device, const DeviceProgram& program, ResidentFrames& frames,
                                            uint32_t* outcomes, unsigned repeats);

// The same for a graph that classifies by codepoint, looks routes up, edits, and stamps departures: IPInput,
// ClassifyDSCP, IPRoute, DecIPTTL, AdjacencyRewrite (dir24, poptrie).
struct ResidentPort {
  static constexpr uint32_t kChunk = 256;  // frames that come at one time
  static constexpr uint64_t kLost = ~uint64_t{0};
  static constexpr uint64_t kPoliced = kLost - 1;
  static constexpr unsigned kClasses = 3;
  static constexpr unsigned kColorBit = 14;  // of an outcome, where frames are policed

  PortSchedules port;  // of kClasses; all unlimited: nothing is stamped, unless it is policed
  // By class, between edits and schedules, buckets full at the first arrival: red frames are dropped.
  bool policed = false;
  PolicerConfig police[kClasses];
  std::vector<uint64_t> arrivals_ns;  // one a chunk
  // One a frame, of the last run: when it may leave; kLost: it was dropped, kPoliced: as red, and not charged. Empty
  // where nothing is stamped.
  std::vector<uint64_t> departures_ns;
};
// `fed` false: frames, lengths and results lie in device memory, and rates are by device events. True: they lie in
// page-locked host memory; frames and lengths are staged in pieces, edited frames, outcomes and departures come back,
// copies both ways beside kernels; rates are from the first copy's start to the last one's end. Each run starts with
// idle schedules. Every color and departure is what one owner would have given in the order of the frames. Errors as
// above.
Result<std::vector<double>> resident_port(Device& device, const DeviceProgram& program, ResidentFrames& frames,
                                          ResidentPort& port, bool fed, uint32_t* outcomes, unsigned repeats);

// CRC-32 registers from kCrc32Start over frames (a stride of the longest will do) in device memory (`fed` false), or in
// page-locked host memory, staged in pieces with copies both ways beside kernels (`fed` true): frames a second of each
// of `repeats` times after one that is not counted. `crcs`, one a frame, are those of the last. Errors: not a CUDA
// device, no frames, too little memory, the device failed.
Result<std::vector<double>> resident_crc32(Device& device, Crc32Mode mode, const ResidentFrames& frames, bool fed,
                                           uint32_t* crcs, unsigned repeats);

}  // namespace sluice

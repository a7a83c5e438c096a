// host only
// Records of a batch on their way to a device and back, and what a worker has of its device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "batch/batch.h"
#include "exec/cpu/fast.h"
#include "exec/device/channel.h"
#include "exec/device/offload.h"

namespace sluice {

// Host memory that kernels may read and write, and where they see it. Filled before the run, read by all workers.
class PinnedRanges {
 public:
  void add(std::byte* host, size_t bytes, std::byte* device) { ranges_.push_back({host, bytes, device}); }
  // The device's address of `at`, or nullptr when [at, at + bytes) is not pinned.
  uint8_t* device_address(const uint8_t* at, size_t bytes) const {
    for (const Range& r : ranges_) {
      const auto* p = reinterpret_cast<const std::byte*>(at);
      if (p >= r.host && bytes <= r.bytes && p <= r.host + (r.bytes - bytes)) {
        return reinterpret_cast<uint8_t*>(r.device + (p - r.host));
      }
    }
    return nullptr;
  }
  struct Range {
    std::byte* host;
    size_t bytes;
    std::byte* device;
  };
  // The range that `at` lies in, or nullptr.
  const Range* range_of(const uint8_t* at) const {
    for (const Range& r : ranges_) {
      const auto* p = reinterpret_cast<const std::byte*>(at);
      if (p >= r.host && p < r.host + r.bytes) return &r;
    }
    return nullptr;
  }
  bool empty() const { return ranges_.empty(); }

 private:
  std::vector<Range> ranges_;
};

// Frames of one flight (a batch in flight to the device): gathered by the host, and copied to the device in one piece
// where they have memory there.
struct FlightFrames {
  std::shared_ptr<DeviceBlob> host, device;
  std::shared_ptr<DeviceBlob>
      stays;              // where what becomes of frames stays, in the device's memory; nullptr: it comes back
  bool given_up = false;  // with frames in it: the device may still read and write there
};

// One worker's share of one device.
struct WorkerDevice {
  unsigned index = 0;                              // of Snapshot::residents
  const std::vector<Offload>* offloads = nullptr;  // by node
  const PinnedRanges* pinned = nullptr;
  Device* device = nullptr;
  bool frames_there = false;  // what `pinned` has of sources lies in the device's memory
  bool copies_runs = false;  // it gets all batches of a source, so that frames of several may cross at a time (LentRun)
  // Outlive the channels, by which the device is waited for.
  std::vector<std::shared_ptr<const Resident>> given_up;  // generations of flights that were given up
  std::vector<FlightFrames> pools;                        // one per flight; none: no frames cross
  bool lists = false;  // frames that do not lie packed are read where they lie, and not gathered
  std::vector<std::unique_ptr<RecordChannel>> ipv4;    // by node: keys of IPv4 packets, or frames
  std::vector<std::unique_ptr<RecordChannel>> others;  // by node: keys of all other packets
  uint32_t flights = 1;                                // batches at a time
};

// Records of one channel in flight, and where they belong.
struct InFlight {
  RecordChannel* channel = nullptr;
  Flight flight;
  uint32_t applied = 0;        // records whose results were taken
  std::vector<uint16_t> rows;  // record -> row of the batch
  std::vector<uint8_t> paths;  // record -> path at which it left
  // The packets of the first `fast` records left as columns and have no registers. Of these, by record, what
  // `restore` gives back; the columns have FastBurst::kLanes places more than records.
  uint32_t fast = 0;
  std::vector<uint32_t> lengths, ip_bytes, hops;
  FastKept fast_from(uint32_t i) { return {&rows[i], &lengths[i], &ip_bytes[i], &hops[i]}; }
  FlightFrames* pool = nullptr;  // what frames are gathered in; nullptr: no segment's cross
  // Frame records: whether the frames lie in their source's memory, and how they lie in the flight's.
  bool lent = false;
  bool listed = false;  // they lie where the batch has them, and heads come back (put_listed)
  bool dense = false;   // record i is row i
  bool sparse = false;  // frames of a class, each where its source lent it, in the device's memory
  bool stays = false;   // what became of the frames is in the device's memory, `back_bytes`
  size_t back_bytes = 0;
  const FrameRecord* records = nullptr;  // of the flight, or the source's own
  uint32_t first = 0;                    // FrameRecord::at counts from here
  FrameSlots slots;
  uint8_t* to = nullptr;           // where frames come back to, as SlabDriver::Range has it
  const uint8_t* heads = nullptr;  // the same
  uint32_t row_of(uint32_t i) const { return dense ? i : rows[i]; }
  Selection all_rows() const {
    Selection all;
    for (uint32_t i = 0; i < flight.count; ++i) all.add(row_of(i));
    return all;
  }
};

}  // namespace sluice

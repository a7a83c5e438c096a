// host only
// Persistent mode with priorities: groups of a device's lanes take chunks of frames by class out of host memory
// (qos/priority_buffers.h), run a program over them, stamp departures and give them back in the order of the class.
#pragma once

#include <cstdint>
#include <vector>

#include "base/histogram.h"
#include "base/result.h"
#include "exec/device/body.h"
#include "exec/device/device.h"
#include "qos/departure_scan.h"

namespace sluice {

struct PriorityPortOptions {
  static constexpr uint32_t kFrameBytes = 64;  // of each frame that go to the device: headers
  static constexpr uint32_t kEditBytes = 32;   // that come back: link header, TTL and checksum

  uint32_t chunk = 256;                      // frames a chunk: 32, 64, 128 or 256; as many lanes are a group
  uint32_t capacity = 256;                   // chunks a class that are ready or at work, a power of two from 32 on
  uint32_t groups = 0;                       // 0: one a multiprocessor
  uint32_t in_flight = 192;                  // chunks of all classes that the feeder has out at a time
  std::vector<uint32_t> shares = {3, 2, 1};  // of groups, by class
  std::vector<uint32_t> mix = {1, 1, 1};     // parts of the traffic, by class
  PortSchedules port;                        // of as many classes as `shares`; without horizons

  uint64_t duration_ns = 1'000'000'000;
  // Every so many chunks of a class all frames, outcomes and departures are held to the host's (departures where the
  // port's own schedule is unlimited); 0: none.
  uint32_t check_every = 1021;
};

struct PriorityPortReport {
  uint64_t packets = 0;
  double seconds = 0;
  uint64_t chunks[kMaxQosClasses] = {};
  uint64_t stolen = 0;              // chunks
  uint64_t checked = 0, wrong = 0;  // frames
  uint32_t groups = 0;
  Histogram latency_ns[kMaxQosClasses];  // from a chunk's handing over to its coming back
};

// Frames of one class, kFrameBytes each, that are fed again and again.
struct PriorityPortFrames {
  std::vector<uint8_t> bytes;
  std::vector<uint32_t> lengths;  // of the packets
};

// Runs for `duration_ns`, one host thread feeding. The program: IPInput, ClassifyDSCP, IPRoute, DecIPTTL,
// AdjacencyRewrite (dir24, poptrie), in the device's memory; `host_program` the same on the host. `frames` by class,
// all of them of that class. Errors: not a CUDA device, options out of range, too little memory, the device failed or
// does not answer within two seconds.
Result<PriorityPortReport> run_priority_port(Device& device, const DeviceProgram& program,
                                             const DeviceProgram& host_program,
                                             const std::vector<PriorityPortFrames>& frames,
                                             const PriorityPortOptions& options);

}  // namespace sluice

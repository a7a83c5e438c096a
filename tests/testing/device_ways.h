// Ways for packets to reach devices, and graphs run by them.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "tests/testing/devices.h"
#include "tests/testing/run_graph.h"

namespace sluice::testing {

struct Way {
  DeviceMode mode;
  Transport transport;
  RecordChoice records;
  unsigned workers;
  uint32_t batch;
  unsigned devices = 1;
  uint32_t flights = 4;
  uint64_t target_ns = 0;  // of latency
  DeviceThreading threading = DeviceThreading::kFull;
  bool fast_path = true;
  bool frames_there = false;
};
std::ostream& operator<<(std::ostream& out, const Way& way);

struct DeviceOutcome {
  GraphOutcome outcome;
  std::string bytes, second;  // of OUT and OUT2
};

// Runs a text whose outputs are $OUT and $OUT2. `way` is nullptr and `devices` empty: on the CPU, the ordinary path
// alone. `adjust` may change what is run.
DeviceOutcome run_way(const TempDir& dir, const std::string& text, const Way* way, const Devices& devices,
                      const std::function<void(GraphRun&)>& adjust = {});

// The run succeeded, kept the books, and its outputs, counters and lines are those of `want`.
void expect_equal(const DeviceOutcome& want, const DeviceOutcome& got);

}  // namespace sluice::testing

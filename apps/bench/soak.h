// What `sluice bench soak` is made of: tables of four variants and packets for them, the run during which they change,
// and what its end is judged by.
// host only
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/sluice/app.h"
#include "apps/sluice/devices.h"
#include "apps/sluice/pipeline.h"
#include "base/histogram.h"
#include "exec/engine/engine.h"
#include "generate/traffic.h"
#include "net/text.h"

namespace sluice::app {

class TemporaryFolder;

// Addresses are of one of four classes, by their /8 (IPv6: /10) modulo 4, and generation g is of variant g mod 4: its
// access list permits destinations of its own class alone, its routes know them alone, and its adjacencies forward the
// next hops of its own class alone. Every batch holds as many packets of each class. So a quarter of all packets leave
// and three quarters match no rule, exactly; any other end of a packet says that two generations met. Four, so that a
// generation differs from the three before it: there are two program slots on a device.
inline constexpr uint32_t kVariants = 4;
inline constexpr uint32_t kSoakPackets = 65'536;  // of the capture

struct SoakOptions {
  DeviceFlags device;
  double minutes = 10;
  uint64_t swaps = 1000, seed = 1;
  uint32_t rules = 2'000, routes = 50'000, batch = 256, size = 64;
  unsigned workers = 1;
  bool shared = false;
  std::string algorithm, route_algorithm, name;
  std::string spoil;  // hidden: "rules" or "adjacencies" of another generation, or a packet "lost" in the count
};

// --- what goes in (soak_inputs.cpp) ---

// The tables of all variants, and a capture for all of them.
struct SoakInputs {
  std::unique_ptr<Pipeline> pipeline;
  std::array<TableSet, kVariants> tables;
  size_t table_bytes = 0, routes = 0;  // of one variant
  std::string hash;                    // of everything that was generated
};
// Files are made in `folder`. Ends with kUsage or kIo.
SoakInputs make_soak_inputs(const SoakOptions& o, const OpenDevices& devices, const TemporaryFolder& folder,
                            Progress& progress);

// --- the run (soak_run.cpp) ---

struct SoakRun {
  std::vector<RunReport> reports;  // one a runtime
  Histogram publish, all_lines;    // nanoseconds until a generation is current: in one runtime, in all
  uint64_t done = 0;               // changes
  uint64_t out_of_turn = 0;        // generations that did not become current in order
  uint64_t unseen = 0;             // that no packet of a runtime met
  double seconds = 0;
};
SoakRun run_soak(const SoakOptions& o, const OpenDevices& devices, const SoakInputs& inputs, Progress& progress);

// --- its end (soak_report.cpp) ---

// Each variant by itself, on the CPU, brings every packet to its proper end: the check of the check. Ends with
// kCheckFailed.
void check_soak_variants(const SoakInputs& inputs, Progress& progress);
// Prints what the run came to, and whether it is as it has to be.
Exit report_soak(const SoakOptions& o, const OpenDevices& devices, const SoakInputs& inputs, const SoakRun& run);

}  // namespace sluice::app

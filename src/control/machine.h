// What this machine is and has: for reports, benchmarks and `sluice doctor`.
// host only
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace sluice {

std::string sluice_version();   // "0.1.0"
std::string sluice_revision();  // of the source tree when it was built; "unknown" without one

struct Machine {
  std::string cpu;
  unsigned cores = 1;  // that this process may run on
  double memory_gib = 0;
  std::string os;
  std::string kernel;
  std::string compiler;
  std::string build_type;
  std::vector<std::string>
      simd;         // of sse4.2, avx2, avx512f, avx512bw, avx512vl, avx512vbmi; of neon, crc32, sve, sve2 on Arm
  std::string thp;  // "always", "madvise", "never", or empty: unknown
  uint64_t hugepages_total = 0;  // reserved, of 2 MiB or what the kernel's default is
  uint64_t hugepages_free = 0;
  std::string libpcap;
  std::vector<std::string> gpus;  // by /dev/nvidia* and /proc/driver/nvidia
  std::string gpu_driver;
  bool hypervisor = false;
  uint64_t open_files = 0;     // limit
  uint64_t locked_memory = 0;  // limit in bytes; ~0: none
};

// Reads /proc and /sys; what cannot be read stays empty. Allocates a few kilobytes.
Machine describe_machine();
// The `machine` object of stored measurements (bench/results/README.md), with what else is known.
nlohmann::ordered_json to_json(const Machine& machine);

}  // namespace sluice

// What tests/testing/inject_faults.cc, which is loaded before the libraries of a program, is told and tells.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::testing {

enum FaultClass : uint32_t { kFaultNone, kFaultFile, kFaultThread, kFaultMemory };

enum FaultKind : uint32_t {
  kFaultOnce,     // the call fails
  kFaultOnwards,  // it fails, and all that follow
  kFaultSignal,   // a signal interrupts it (EINTR), where that is possible
  kFaultShort,    // it reads or writes one byte, where that is possible
};

// The file that SLUICE_FAULTS names, mapped by both sides.
struct FaultState {
  // Told.
  uint32_t fault_class;
  uint32_t kind;
  uint64_t number;  // of the call that fails, from 1
  // Tells.
  std::atomic<uint64_t> files, threads, allocations;  // calls since main() began
  std::atomic<uint32_t> fired;
  int32_t descriptor;  // of the call that failed, or -1
  char call[24];       // its name
  // What the first rename() found that the process may do, where SLUICE_PROBE names a file: 0, errno, or -1 (not
  // tried).
  int32_t reads, writes, connects, starts;
};

// What is sent to a program that stands before main(): one run of it. The answers are two int32_t: its process, and
// then how that ended, as waitpid() says it.
struct FaultRun {
  char words[512];            // argv, divided by spaces
  char out[256], error[256];  // files for its stdout and stderr
};

}  // namespace sluice::testing

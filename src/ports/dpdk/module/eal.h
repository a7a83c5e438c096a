// host only
// DPDK's environment abstraction layer (EAL): started once a process, with its log lines in ours and the caller's
// thread as it was.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ports/dpdk/module.h"

namespace sluice::dpdk {

struct Eal {
  bool huge_pages = false;
  std::vector<std::string> probed;  // ports that its start brought: those that $SLUICE_DPDK_EAL names
};

// Starts it at the first call; `bytes` is the memory that frames will need. Huge pages are used where enough are free,
// else none (--no-huge). $SLUICE_DPDK_EAL: more EAL arguments, separated by spaces. An error stays: EAL does not start
// twice.
Result<Eal> start_eal(const DpdkHost& host, uint64_t bytes);

// Runs `f` on a thread of its own with every signal blocked, and waits: threads that DPDK starts there take no signal
// from the program, and the caller's affinity stays. Warnings and errors in DPDK's log go to `said` where f returns
// an error; else all of it goes to the log at level debug. Errors: no thread; f's.
Result<void> run_aside(const std::function<Result<void>()>& f, std::string& said);

// Called at every entry of a thread that takes or gives mbufs: gives it an lcore number, and with it a cache in front
// of each pool. Without one (there are 128) it goes to the pools' rings.
void enter_thread();

// Called for every pool and lcore when a thread ends, so that its cache is nobody's loss.
void at_thread_end(const void* owner, std::function<void(unsigned lcore)> flush);
void forget_thread_end(const void* owner);

}  // namespace sluice::dpdk

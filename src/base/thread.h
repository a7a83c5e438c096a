// Threads that may fail to start.
// host only
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/result.h"

namespace sluice {

// That the system starts no thread, with the limits that say so.
Error no_thread(const std::error_code& code);

// Keeps the calling thread on one core. Errors: no such core, or one that this process may not use.
Result<void> pin_thread(unsigned core);

// A thread that runs `f`. Every thread of the program starts here: at a limit (ulimit -u, a container's pids, memory)
// that is an error of the system, not an exception. What `f` throws ends the program.
template <typename F>
Result<std::jthread> start_thread(F&& f) {
  try {
    return std::jthread(std::forward<F>(f));
  } catch (const std::system_error& error) {
    return no_thread(error.code());
  }
}

}  // namespace sluice

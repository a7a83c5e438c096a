// Threads that may fail to start.
// host only
#pragma once

#include <pthread.h>
#include <sched.h>

#include <system_error>
#include <thread>
#include <utility>

#include "base/result.h"

namespace sluice {

// That the system starts no thread, with the limits that say so.
Error no_thread(const std::error_code& code);

// Keeps the calling thread on one core. Errors: no such core, or one that this process may not use.
Result<void> pin_thread(unsigned core);

// The calling thread is on a core for a while: the memory that it touches first is of that core's node. Where it cannot
// be there it stays where it is.
class OnCore {
 public:
  explicit OnCore(unsigned core) {
    known_ = pthread_getaffinity_np(pthread_self(), sizeof before_, &before_) == 0 && pin_thread(core).ok();
  }
  ~OnCore() {
    if (known_) (void)pthread_setaffinity_np(pthread_self(), sizeof before_, &before_);
  }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;

 private:
  cpu_set_t before_;
  bool known_;
};

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

// host only
#include "base/thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

namespace sluice {

Error no_thread(const std::error_code& code) {
  Error error = system_error("cannot start a thread", code.value());
  error.hint = "use fewer workers, or raise a limit: ulimit -u, ulimit -v, a container's pids limit";
  return error;
}

Result<void> pin_thread(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core >= CPU_SETSIZE) return Error(fmt::format("there is no core {}", core));
  CPU_SET(core, &set);
  if (const int why = pthread_setaffinity_np(pthread_self(), sizeof set, &set); why != 0)
    return system_error(fmt::format("cannot run on core {}", core), why);
  return {};
}

}  // namespace sluice

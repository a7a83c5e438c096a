// host only
#include "base/thread.h"

namespace sluice {

Error no_thread(const std::error_code& code) {
  Error error = system_error("cannot start a thread", code.value());
  error.hint = "use fewer workers, or raise a limit: ulimit -u, ulimit -v, a container's pids limit";
  return error;
}

}  // namespace sluice

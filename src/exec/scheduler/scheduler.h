// host only
// Scheduler: runs a graph one packet at a time, on one thread: queues, pull, timers, scripts and handlers
// (docs/design/scheduling.md). Stages are those of the batch runtime, bound to the same tables, with the same results.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "exec/runtime.h"
#include "graph/router.h"
#include "graph/table_set.h"

namespace sluice {

struct SchedulerOptions {
  // The clock stands still while a task can run and jumps to the next timer. Else it is the machine's.
  bool simulated = false;
  std::function<void(std::string_view line)> print;  // lines of Print elements; none: they are lost
  // What scripts print. None: lost.
  std::function<void(std::string_view text)> print_out, print_error;
  const std::atomic<bool>* stop = nullptr;  // set from elsewhere: the run ends after the current task
  // The signals that came since the last call, lowest first; 0: none is left. None: no signals.
  std::function<int()> next_signal;
};

class Scheduler {
 public:
  // `router` outlives the scheduler, and nobody else uses its flow elements. Binds all stages, opens all ports and
  // starts all elements, in graph order. Errors: each stage that cannot be bound, each port that cannot be opened, the
  // first element that cannot start.
  static Result<std::unique_ptr<Scheduler>> create(const Router& router, const TableSet& tables,
                                                   const SchedulerOptions& options);
  ~Scheduler();

  // Until somebody asks for the end, or nothing can happen any more; then outputs appear. Errors: damaged input, an
  // output that failed (no output appears then), a script that ended with an error. The report is valid in all cases.
  Result<void> run(RunReport& report);

  // Handlers: "element.handler", then after a blank its argument; or one of the router (list, config, classes, version,
  // requirements; write: stop). Between `create` and the destructor.
  Result<std::string> read(std::string_view name, std::string_view argument = {});
  Result<void> write(std::string_view name, std::string_view value);
  bool has_handler(std::string_view name, bool writes) const;

  // Whether a script waits for this signal now.
  bool wants_signal(int signal) const;

  uint64_t now_ns() const;

 private:
  class Node;
  class HostBridge;
  struct Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What a graph is run by, for `show plan`: the reason, and each task with what it waits for.
std::string describe_schedule(const Router& router);

}  // namespace sluice

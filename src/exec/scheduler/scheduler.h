// host only
// Scheduler: runs a graph one packet at a time, on one thread: queues, pull, timers, scripts and handlers
// (docs/design/scheduling.md). Stages are those of the engine, bound to the same tables, with the same results.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/run_files.h"
#include "exec/run.h"
#include "graph/flow.h"
#include "graph/router.h"
#include "graph/table_set.h"

namespace sluice {

// A graph that a scheduler runs, with what it needs.
struct SchedulerGraph {
  Router router;
  TableSet tables;
};

// Reads and checks one, and builds its tables; nothing is opened but their files. Errors: those of the first of these
// that has any.
Result<std::unique_ptr<SchedulerGraph>> load_scheduler_graph(std::string_view text, const std::string& name,
                                                             const Registry& registry, const ParseOptions& options);

struct SchedulerOptions {
  // The clock stands still while a task can run and jumps to the next timer. Else it is the machine's.
  bool simulated = false;
  std::function<void(std::string_view line)> print;  // lines of Print elements; none: they are lost
  // What scripts print. None: lost.
  std::function<void(std::string_view text)> print_out, print_error;
  const std::atomic<bool>* stop = nullptr;  // set from elsewhere: the run ends after the current task
  // The signals that came since the last call, lowest first; 0: none is left. None: no signals.
  std::function<int()> next_signal;
  // Reads the graph that is written to the handler `hotconfig`. None: there is no such handler.
  std::function<Result<std::unique_ptr<SchedulerGraph>>(std::string_view text)> load;
  InputSet* inputs = nullptr;  // where sources find their captures open; else they open them
  bool stop_is_end = false;    // a run without another end: with `stop` it is whole
  // Packets go through stages and into sinks one by one, each in its turn: what tests compare with.
  bool one_by_one = false;
  // What the run reads and writes besides what graphs do.
  RunFiles files;
  // The run lasts until somebody asks for its end, although nothing can happen any more: other threads may call
  // Scheduler::ask.
  bool stay = false;
};

class Scheduler {
 public:
  // `router` outlives the scheduler, and nobody else uses its elements. Binds all stages, opens all ports and
  // starts all elements, in graph order. Errors: outputs that are other files of the run, too; each stage that cannot
  // be bound, each port that cannot be opened, the first element that cannot start.
  static Result<std::unique_ptr<Scheduler>> create(Router& router, const TableSet& tables,
                                                   const SchedulerOptions& options);
  ~Scheduler();

  // Until somebody asks for the end, or nothing can happen any more; then outputs appear. Errors: damaged input, then
  // the outputs are partial; an output that failed, a script that ended with an error, then none appears. The report is
  // valid in all cases.
  Result<void> run(RunReport& report);

  // Replaces the graph, once what runs now is done, so between two tasks. An element of the same name, class,
  // configuration and ports goes on as it is, with all it holds: packets, tokens, places in scripts and files; another
  // one of the same name and class takes what it can (Flow::take); counters follow names. A port goes on where the new
  // graph has the same. What else was held is dropped as graph-changed, so that every packet stays accounted for. What
  // can fail is done before: on errors (outputs that are files of this graph or of one before, stages, ports, elements
  // that cannot start) the old graph runs on untouched. From the thread of `run`, within a handler, a task or `ask`; or
  // before `run`.
  Result<void> swap(std::unique_ptr<SchedulerGraph> next);
  // How many times it was replaced.
  uint64_t swaps() const;
  // The graph that runs now: what reports are about. From the thread of `run`.
  const Router& router() const;

  // From any other thread: `what` is called between two tasks, and has returned when this does. False: the run is over,
  // and it was not called.
  bool ask(const std::function<void()>& what);
  // What is known of the run so far, as at its end. From the thread of `run`.
  RunReport report() const;

  // Handlers: "element.handler", then after a blank its argument; or one of the router (list, config, flatconfig,
  // requirements; write: stop, hotconfig). Between `create` and the destructor.
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
  struct Asked;
  explicit Scheduler(std::unique_ptr<Asked> asked);
  void change();

  FlowPool::Owner pool_ = FlowPool::create();
  std::unique_ptr<Asked> asked_;
  std::unique_ptr<SchedulerGraph> graph_;  // the one that runs, after the first swap
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<SchedulerGraph> next_graph_;
  std::unique_ptr<Impl> next_;
  uint64_t swaps_ = 0;
};

// What a graph is run by, for `show plan`: the reason, and each task with what it waits for.
std::string describe_schedule(const Router& router);

}  // namespace sluice

// host only
// Scheduler: the executor of graphs with queues, pull, timers, scripts and handlers: one packet at a time, on the home
// worker of the graph (docs/design/scheduling.md). Stages are those of batches, bound to the same tables, with the same
// results. The engine gives it turns, as it does for the inputs of other graphs, and has the sinks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "exec/account/hits.h"
#include "exec/engine/egress.h"
#include "exec/engine/generation.h"
#include "exec/engine/intake.h"
#include "exec/engine/live_ports.h"
#include "exec/engine/run.h"

namespace sluice {

// Who moves the clock of a graph.
enum class FlowClock : uint8_t {
  kRun,      // the machine, or --simtime
  kPackets,  // time stamps of packets that come in, each in its time, and elements that wait
  kOwn,      // time stamps of packets that come in, in the order of the input, as where batches flow
};
// Packets of captures carry their times; those of live ports have the time of day, and generators make theirs.
FlowClock flow_clock(const Router& router, bool simulated);

// One thread at a time.
class Scheduler {
 public:
  // `graph`: by_packets; everything outlives it, the graph until another one follows. Binds all stages and opens the
  // sources. Errors: each stage that cannot be bound; a source that cannot be opened is added to `ports`.
  // `live_ports`: nullptr where the run has none.
  static Result<std::unique_ptr<Scheduler>> create(Router& router, const Plan& plan, const TableSet& tables,
                                                   const RunOptions& options, HitLedger* ledger, LivePorts* live_ports,
                                                   Error& ports);
  ~Scheduler();
  std::vector<LinkType> links() const;
  // Starts all elements, in graph order; their packets leave by `egress`. Errors: the first that cannot.
  Result<void> start(Egress& egress);

  // Some turns of tasks and timers. kIdle: none can run before some time, or before somebody writes a handler: wait.
  // kEnd: somebody asked for the end, or nothing can happen any more.
  Polled poll();
  // After kIdle: until then, until a live port has packets, or for a moment, `at_most_ns`.
  void wait(uint64_t at_most_ns);
  // Whether some of its sources are live ports.
  bool live() const;
  // What was put off is done, so that others may look.
  void settle();

  // What ended it.
  const Result<void>& result() const;
  bool damaged() const;
  bool interrupted() const;
  bool failed_by_output() const;
  // The end of elements; `files` gets those that are to appear. Errors: the first; `output`: it is about a file that is
  // written.
  Result<void> finish(std::vector<AtomicFile>& files, bool& output);
  // After that: sources close.
  void close();
  // Adds what it counted.
  void report(RunReport& report);

  // Replaces the graph, once what runs now is done, so between two tasks. An element of the same name, class,
  // configuration and ports goes on as it is, with all it holds: packets, tokens, places in scripts and files; another
  // one of the same name and class takes what it can (Flow::take); counters follow names. A port goes on where the new
  // graph has the same. What else was held is dropped as graph-changed, so that every packet stays accounted for. What
  // can fail is done before: on errors the old graph runs on untouched.
  Result<void> swap(std::unique_ptr<GraphGeneration> next);
  // Between two tasks: does so now.
  void take_over();
  // Takes out the live ports that neither the graph names nor one that is to follow, and those of graphs before: they
  // close, which takes a while, where the caller lets them go.
  std::vector<LivePorts::Closing> close_ports();
  // As Engine::use_tables.
  Result<void> use_tables(const TableSet& tables);
  uint64_t swaps() const { return swaps_; }
  const Router& router() const;
  const Plan& plan() const;
  // The same; nullptr: the first one.
  GraphGeneration* generation() { return graph_.get(); }

  // Handlers: "element.handler", then after a blank its argument; or one of the router (list, config, flatconfig,
  // requirements; write: stop, hotconfig).
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
  Scheduler() = default;
  void change();
  Result<void> prepare(std::unique_ptr<GraphGeneration> next);

  FlowPool::Owner pool_ = FlowPool::create();
  Egress* egress_ = nullptr;
  std::unique_ptr<GraphGeneration> graph_;  // the one that runs, after the first swap
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<GraphGeneration> next_graph_;
  std::unique_ptr<Impl> next_;
  std::unique_ptr<Egress::Next> next_sinks_;
  std::vector<LivePorts::Closing> closing_;
  std::atomic<uint64_t> swaps_{0};
};

// What a graph is run by, for `show plan`: the reason, and each task with what it waits for.
std::string describe_schedule(const Router& router);

}  // namespace sluice

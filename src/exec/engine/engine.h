// host only
// Engine: runs a graph. Threads take turns at reading, running programs and writing; the result does not depend on
// their number.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "exec/engine/intake.h"
#include "exec/engine/publisher.h"
#include "exec/engine/run.h"
#include "exec/walk/plan.h"
#include "qos/priority_buffers.h"

namespace sluice {

class DeviceSet;
class Egress;
class HitLedger;
class OrderedNodes;
class Scheduler;
class Worker;
struct GraphGeneration;
struct JobRings;
struct TableSet;

// Every thread is a worker and does the same (docs/design/engine.md): it claims a job and runs it; where none is ready
// and nobody else reads, it reads one; whoever finishes the oldest job commits it, and those behind it that are done.
// So outputs are written in the order of the input, class by class where there are classes, and nobody waits for a
// thread that has nothing to do with what it waits for. A graph with queues, timers or scripts gets its turns where
// others read their inputs, from one thread.
class Engine {
 public:
  // What `create` refuses before it opens anything. Errors: options out of range; what cannot run together.
  static Result<void> check(const Router& router, const Plan& plan, const RunOptions& options);
  // Whether the tables of a first generation fit the memory that the devices are told to keep tables in
  // (Device::use_table_memory). Errors: they do not, with both sizes.
  static Result<void> check_tables(const Router& router, const Plan& plan, const RunOptions& options,
                                   const Snapshot& snapshot);
  // `router` and `plan` outlive the engine. Opens all ports. Errors: as `check`; each port that cannot be opened.
  // Precondition: the packet scheduler has not to run it (Plan::by_packets).
  static Result<std::unique_ptr<Engine>> create(const Router& router, const Plan& plan, const RunOptions& options);
  // Any graph, with its first generation; nobody else uses its elements. Errors: the same; outputs that are other files
  // of the run, too; each element that cannot be bound to its tables; the first that cannot start.
  static Result<std::unique_ptr<Engine>> create(Router& router, const Plan& plan, const TableSet& tables,
                                                const RunOptions& options);
  ~Engine();

  // Where generations come from. At least one must be published before `run`; others may follow from any other thread.
  // Not of graphs that the packet scheduler runs: their tables are those of the graph.
  Publisher& publisher() { return publisher_; }

  // Reads all sources to their ends and commits the outputs; the calling thread is the first worker. Errors: damaged
  // input, then the outputs are partial; an output that failed, then none appears. The report is valid in both cases.
  // `files`: gets the output files, on the disk, for a caller that commits them with its own (AtomicFile::commit); none
  // where RunOptions::hold is set, before which they are committed. Call once.
  Result<void> run(RunReport& report, std::vector<AtomicFile>* files = nullptr);

  // The counters of a run that goes on, each thread's as of one moment, so that what is between two of them is missing
  // from the sums; without devices and ports. From one other thread, between `create` and the end of `run`.
  // Precondition: options.live. Errors: a thread gave none within a second.
  Result<void> look(RunReport& report);

  // Runs `change` between two commits, and once all packets are through. Thread and precondition as of `look`. Errors:
  // those of `change`; options.qos was not given; commits have not let it in for a second: nothing has changed then.
  Result<void> change_qos(const std::function<Result<void>(EgressQos&)>& change);

  // Calls `what` between two turns, when nothing is on its way: all that was read is committed, and all threads wait.
  // From another thread than those of the run, within ten seconds. Errors: the run is over, or did not come to it.
  Result<void> ask(const std::function<void()>& what);

  // `ask` with each element that carries state from batch to batch.
  Result<void> with_ordered(const std::function<void(const Element&, Element::Ordered&)>& what);

  // Puts another graph in the place of the one that runs; each packet meets one of the two, and none is lost. From
  // another thread than those of the run, one at a time with `look`. Sources and sinks of the same name, class and
  // configuration go on, outputs also by their file's name; other outputs appear at the end with the others. What
  // elements counted, and what those that are the same keep, goes by their names. Live ports open with it, or close, as
  // the graph names them. What can fail is done beside the graph that runs: it goes on untouched then. Errors: outputs
  // that are files of this graph or of one before; what `create` says; what cannot change here: batches, devices, who
  // runs packets; the run is over.
  Result<void> swap(std::unique_ptr<GraphGeneration> next);
  // The interface of the live port `port` was removed, and there is one of its name: packets go by that from here on.
  // Thread as of `ask`. False: it is not gone. Errors: it cannot be opened; those of `ask`.
  Result<bool> open_again(const std::string& port);
  // How many times it was replaced.
  uint64_t swaps() const;
  // The graph that runs. From whoever asks or swaps, and after the run.
  const Router& router() const;
  const Plan& plan() const;
  // The same with how its tables were made; nullptr: the one of `create`.
  GraphGeneration* generation();
  // Whether the packet scheduler runs its graphs.
  bool by_packets() const { return flow_ != nullptr; }

  // Handlers of graphs that the packet scheduler runs: "element.handler", then after a blank its argument; or one of
  // the router (list, config, flatconfig, requirements; write: stop, hotconfig). Before `run`, after it, or within
  // `ask`. Other graphs have config and flatconfig. Errors: those of the handler; there is none.
  Result<std::string> read(std::string_view handler, std::string_view argument = {});
  Result<void> write(std::string_view handler, std::string_view value);
  bool has_handler(std::string_view handler, bool writes) const;
  // Its tables are these from here on, which were made for the graph that runs; when as of `read`. Errors: an element
  // does not find its table.
  Result<void> use_tables(const TableSet& tables);
  // Whether a script waits for this signal now.
  bool wants_signal(int signal) const;
  // What its clock shows.
  uint64_t clock_ns() const;

  // What sinks find of a packet besides its frame (Plan::at_sinks).
  FieldMask at_sinks() const { return plan_->at_sinks; }

  // nullptr: the run has none.
  LivePorts* live_ports() { return live_ports_.get(); }
  const Neighbours* neighbours() const { return options_.neighbours.get(); }

  // The counters of access lists. Precondition: options.count_hits. Thread-safe, also after the run.
  HitLedger& hits() { return *ledger_; }

 private:
  struct LiveWorker;
  class Gated;
  class Sleeper;
  struct Flip;
  // Inputs that are read in turn, and the jobs that are made of them. Captures are one lane, which all workers share:
  // any of them takes any job. Queues of live ports are a lane for each worker, which reads, runs and sends alone.
  struct Lane {
    std::unique_ptr<Intake> intake;  // none: the packet scheduler takes packets in
    std::shared_ptr<JobRings> rings;
    bool alone = true;                     // one worker has it
    alignas(64) std::atomic_flag reading;  // some thread polls or waits for input
    std::atomic<bool> waiting{false};      // for input: what is written is flushed
    std::atomic<bool> closed{false};       // nothing comes any more
  };
  Engine(const Router& router, const Plan& plan, const RunOptions& options);

  std::vector<std::unique_ptr<Worker>> make_workers(const Router& router, const Plan& plan) const;
  std::vector<std::unique_ptr<Intake>> open_intakes(const Router& router, const Plan& plan, Error& errors) const;
  std::vector<LinkType> links_of(const std::vector<std::unique_ptr<Intake>>& intakes) const;
  // Jobs of a lane by class, and what each has room for.
  struct JobSize {
    uint32_t classes, places;
    uint32_t packets;
    size_t arena;  // bytes
  };
  JobSize job_size(const Lane& lane, uint32_t depth) const;
  Result<std::unique_ptr<Job>> make_job(uint32_t lane, const JobSize& size, OrderedNodes* ordered) const;
  // Of every lane.
  Result<std::vector<std::shared_ptr<JobRings>>> make_jobs(uint32_t depth, OrderedNodes* ordered) const;
  void connect(const Router& router, Intake& intake, JobRings& rings);
  Lane& lane_of(unsigned worker) { return *lanes_[lanes_.size() == 1 ? 0 : worker]; }
  Result<void> work_all();
  Result<void> work_together(unsigned all);
  void work_or_give_up(unsigned id);
  void work(unsigned id);
  Polled poll(Lane& lane, bool pausing);
  Polled take_in(Lane& lane, bool pausing);
  void send_on(bool by_clock);
  void wait_for_input(Lane& lane);
  void park();
  void leave(unsigned threads);
  Result<void> prepare(GraphGeneration& next, Flip& flip);
  void flip(Flip& flip);
  Result<void> swap_flow(std::unique_ptr<GraphGeneration> next);
  bool waits_with_others(const Lane& lane) const;
  void end_elements(Result<void>& result, bool& damaged, std::vector<AtomicFile>& files);
  void start(unsigned id, const ChunkClaim& claim);
  Batch* own_batch(unsigned id, Job& job);
  void finish(unsigned id, const ChunkClaim& claim);
  uint32_t resume(Lane& lane);
  void commit(Lane& lane, uint32_t qos_class, uint64_t sequence);
  bool anybody_sleeps();
  void wake(const Lane& lane, bool all = false);
  std::unique_lock<std::mutex> lock_egress_within_a_second();
  void sum_up(RunReport& report);

  const Router* router_;
  const Plan* plan_;
  const RunOptions options_;
  const bool alone_;  // there is one thread
  HomePlan homes_;
  std::unique_ptr<HitLedger> ledger_;
  Publisher publisher_;
  std::unique_ptr<GraphGeneration> graph_;  // the one that runs, after the first swap
  std::unique_ptr<LivePorts> live_ports_;   // none: the run has none. Outlives those who use its queues
  std::unique_ptr<Scheduler> flow_;         // none: batches
  std::unique_ptr<OrderedNodes> ordered_;   // none: the plan has none
  std::vector<std::unique_ptr<Lane>> lanes_;
  Intake::Shared shared_;
  std::unique_ptr<Egress> egress_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Batch>> own_batches_;  // by worker, from the first packets that it copies there
  std::unique_ptr<DeviceSet> devices_;               // none: the CPU alone
  std::vector<std::unique_ptr<LiveWorker>> live_;

  alignas(64) std::atomic<uint32_t> news_{0};  // changes where somebody who sleeps may have something to do
  std::atomic<uint32_t> sleepers_{0};
  int spins_ = 0;
  unsigned at_a_time_ = 1;  // batches that one thread reads for all

  // Whoever asks, and threads that wait for it to be done.
  struct Pause {
    std::mutex asking;  // one after the other
    std::mutex mutex;
    std::condition_variable changed;
    unsigned threads = 0;  // of the run; 0: it has not begun
    unsigned parked = 0, left = 0;
    uint64_t round = 0;
    bool over = false;
  };
  Pause pause_;
  std::atomic<bool> pausing_{false};
  std::atomic<bool> given_up_{false};  // a thread found no memory
  uint64_t swaps_ = 0;
  WorkerStats past_;      // of graphs before, by element of the one that runs
  ElementCounters gone_;  // of their elements that it has not
  RunFiles past_files_;

  Ending ending_ = Ending::kDiscard;
  bool output_failed_ = false;
  std::atomic<uint64_t> started_ns_{0}, ended_ns_{0};
};

}  // namespace sluice

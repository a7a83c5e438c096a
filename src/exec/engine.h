// host only
// Engine: runs a graph. Threads take turns at reading, running programs and writing; the result does not depend on
// their number.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "exec/device_set.h"
#include "exec/egress.h"
#include "exec/hits.h"
#include "exec/intake.h"
#include "exec/job.h"
#include "exec/live_gate.h"
#include "exec/ordered.h"
#include "exec/plan.h"
#include "exec/publisher.h"
#include "exec/run.h"
#include "exec/worker.h"

namespace sluice {

// Every thread is a worker and does the same (docs/design/engine.md): it claims a job and runs it; where none is ready
// and nobody else reads, it reads one; whoever finishes the oldest job commits it, and those behind it that are done.
// So outputs are written in the order of the input, class by class where there are classes, and nobody waits for a
// thread that has nothing to do with what it waits for.
class Engine {
 public:
  // What `create` refuses before it opens anything. Errors: options out of range; what cannot run together.
  static Result<void> check(const Router& router, const Plan& plan, const RunOptions& options);
  // `router` and `plan` outlive the engine. Opens all ports. Errors: as `check`; each port that cannot be opened.
  static Result<std::unique_ptr<Engine>> create(const Router& router, const Plan& plan, const RunOptions& options);
  ~Engine();

  // Where generations come from. At least one must be published before `run`; others may follow from any other thread.
  Publisher& publisher() { return publisher_; }

  // Reads all sources to their ends and commits the outputs; the calling thread is the first worker. Errors: damaged
  // input, then the outputs are partial; an output that failed, then none appears. The report is valid in both cases.
  // Call once.
  Result<void> run(RunReport& report);

  // The counters of a run that goes on, each thread's as of one moment, so that what is between two of them is missing
  // from the sums; without devices and ports. From one other thread, between `create` and the end of `run`.
  // Precondition: options.live. Errors: a thread gave none within a second.
  Result<void> look(RunReport& report);

  // Runs `change` between two commits, and once all packets are through. Thread and precondition as of `look`. Errors:
  // those of `change`; options.qos was not given; commits have not let it in for a second: nothing has changed then.
  Result<void> change_qos(const std::function<Result<void>(EgressQos&)>& change);

  // What sinks find of a packet besides its frame (Plan::at_sinks).
  FieldMask at_sinks() const { return plan_.at_sinks; }

  // The counters of access lists. Precondition: options.count_hits. Thread-safe, also after the run.
  HitLedger& hits() { return *ledger_; }

 private:
  struct LiveWorker;
  class Gated;
  class Sleeper;
  // Inputs that are read in turn, and the jobs that are made of them. Captures are one lane, which all workers share:
  // any of them takes any job. Queues of live ports are a lane for each worker, which reads, runs and sends alone.
  struct Lane {
    std::unique_ptr<Intake> intake;
    std::shared_ptr<JobRings> rings;
    unsigned number = 0;
    bool alone = true;                     // one worker has it
    alignas(64) std::atomic_flag reading;  // some thread polls or waits for input
    std::atomic<bool> waiting{false};      // for input: what is written is flushed
    std::atomic<bool> closed{false};       // nothing comes any more
  };
  Engine(const Router& router, const Plan& plan, const RunOptions& options);

  void open_sources(std::vector<LinkType>& links, Error& errors);
  Result<void> make_jobs(Lane& lane);
  Result<void> work_all();
  Lane& lane_of(unsigned worker) { return *lanes_[lanes_.size() == 1 ? 0 : worker]; }
  void work(unsigned id);
  Polled poll(Lane& lane);
  void wait_for_input(Lane& lane);
  void start(unsigned id, const ChunkClaim& claim);
  void finish(unsigned id, const ChunkClaim& claim);
  uint32_t resume(Lane& lane);
  void commit(Lane& lane, uint32_t qos_class, uint64_t sequence);
  void wake(const Lane& lane, bool all = false);
  std::unique_lock<std::mutex> lock_egress_within_a_second();
  void sum_up(RunReport& report);

  const Router& router_;
  const Plan& plan_;
  const RunOptions options_;
  const bool alone_;  // there is one thread
  HomePlan homes_;
  std::unique_ptr<HitLedger> ledger_;
  Publisher publisher_;
  std::unique_ptr<OrderedNodes> ordered_;  // none: the plan has none
  std::unique_ptr<LivePorts> live_ports_;  // none: the run has none. Outlives those who use its queues
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<Egress> egress_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<DeviceSet> devices_;  // none: the CPU alone
  std::vector<std::unique_ptr<LiveWorker>> live_;

  std::atomic<uint64_t> tickets_{0};           // of jobs that pass ordered elements
  alignas(64) std::atomic<uint32_t> news_{0};  // changes where somebody who sleeps may have something to do
  std::atomic<uint32_t> sleepers_{0};
  int spins_ = 0;

  Ending ending_ = Ending::kDiscard;
  bool output_failed_ = false;
  std::atomic<uint64_t> started_ns_{0}, ended_ns_{0};
};

}  // namespace sluice

// host only
#include "exec/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "exec/device/trace.h"
#include "exec/scheduler/scheduler.h"
#include "graph/graph_files.h"

namespace sluice {

// A worker's counters for `look`.
struct Engine::LiveWorker {
  explicit LiveWorker(const std::unique_ptr<Worker>& worker) : gate([this, &worker] { stats = worker->stats(); }) {}
  WorkerStats stats;
  LiveGate gate;
};

// The thread's counters are its own while one of these lives; `gate` may be nullptr.
class Engine::Gated {
 public:
  explicit Gated(LiveGate* gate) : gate_(gate) { enter(); }
  ~Gated() { leave(); }
  Gated(const Gated&) = delete;
  Gated& operator=(const Gated&) = delete;
  void poll() {
    if (gate_ != nullptr) gate_->poll();
  }
  void leave() {
    if (gate_ != nullptr) gate_->leave();
  }
  void enter() {
    if (gate_ != nullptr) gate_->enter();
  }

 private:
  LiveGate* gate_;
};

// A thread that finds nothing to do says so, looks once more, and then sleeps until there is news. Whoever changes
// something looks for sleepers afterwards: both are read-modify-writes of one word, so that of the two the later one
// sees what the other did before. Either the sleeper finds the change at its last look, or it is woken.
class Engine::Sleeper {
 public:
  explicit Sleeper(Engine& engine) : engine_(engine) {}
  ~Sleeper() { awake(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  // Before each look.
  void look() {
    if (announced_) seen_ = engine_.news_.load(std::memory_order_acquire);
  }
  // There was something to do.
  void awake() {
    if (!announced_) return;
    engine_.sleepers_.fetch_sub(1, std::memory_order_relaxed);
    announced_ = false;
  }
  // There was nothing. True: `sleep` is next; false: look again.
  bool nothing() {
    if (announced_) return true;
    engine_.sleepers_.fetch_add(1, std::memory_order_seq_cst);
    announced_ = true;
    return false;
  }
  void sleep() {
    std::atomic<uint32_t>& news = engine_.news_;
    for (int i = 0; i < engine_.spins_ && news.load(std::memory_order_acquire) == seen_; ++i) cpu_pause();
    news.wait(seen_, std::memory_order_acquire);
    awake();
  }

 private:
  Engine& engine_;
  bool announced_ = false;
  uint32_t seen_ = 0;
};

namespace {

// Looks at sources in one turn with classes: more packets come in than are run, so that the highest class is found
// behind the others.
constexpr int kPollsPerTurn = 4;

// Elements that would see packets of different classes in another order than that of the input.
std::vector<Diagnostic> order_dependent(const Router& router, const Plan& plan) {
  std::vector<Diagnostic> wrong;
  for (const unsigned e : plan.ordered) {
    wrong.push_back(router.elements[e]->diagnostic(
        fmt::format("'{}' carries state from batch to batch: that needs all packets in the order of the input",
                    router.elements[e]->name)));
  }
  return wrong;
}

Result<std::vector<uint32_t>> shares_of(const PriorityOptions& o) {
  unsigned named = 0;
  for (unsigned dscp = 0; dscp < 64; ++dscp) named = std::max(named, o.classes.class_of(dscp) + 1);
  if (named > kMaxQosClasses)
    return Error(fmt::format("class {} is out of range", named - 1), fmt::format("use 0 to {}", kMaxQosClasses - 1));
  if (o.shares.empty()) return default_shares(named);
  if (o.shares.size() < named || o.shares.size() > kMaxQosClasses) {
    return Error(fmt::format("{} shares do not fit {} classes", o.shares.size(), named),
                 fmt::format("give one for each class, {} at most", kMaxQosClasses));
  }
  return o.shares;
}

Result<void> check_ranges(const RunOptions& o) {
  const auto check = [](const char* what, uint64_t value, uint64_t least, uint64_t most) -> Result<void> {
    if (value >= least && value <= most) return {};
    return Error(fmt::format("{} {} is out of range", value, what), fmt::format("use {} to {}", least, most));
  };
  if (auto ok = check("workers", o.workers, 1, 256); !ok) return ok;
  if (auto ok = check("packets per batch", o.batch, 1, Batch::kMaxPackets); !ok) return ok;
  if (!o.priorities) return {};
  if (auto ok = check("packets per chunk", o.priorities->chunk, 1, Batch::kMaxPackets); !ok) return ok;
  const uint32_t places = o.priorities->places;
  if (places == 0) return {};
  if (auto ok = check("places", places, 1, 65'536); !ok) return ok;
  if (!std::has_single_bit(places))
    return Error(fmt::format("{} places are not a power of two", places), fmt::format("use {}", std::bit_ceil(places)));
  return {};
}

HomePlan homes_of(const RunOptions& options) {
  const std::vector<uint32_t> one = {1};
  return {options.workers, options.priorities ? *shares_of(*options.priorities) : one};
}

}  // namespace

Result<void> Engine::check(const Router& router, const Plan& plan, const RunOptions& options) {
  if (auto ok = check_ranges(options); !ok) return ok;
  if (plan.by_packets && (!options.device.devices.empty() || options.priorities || options.ended))
    return Error("the packet scheduler runs this graph: not on devices, by priorities, or with verdicts");
  if (!options.priorities) return {};
  if (auto shares = shares_of(*options.priorities); !shares) return std::move(shares).error();
  if (options.ended) return Error("packets that are followed are told in the order of the input: not by priorities");
  Error errors;
  errors.diagnostics = order_dependent(router, plan);
  if (errors.diagnostics.empty()) return {};
  errors.message = "this graph cannot run by priorities";
  errors.hint = "run it without, where packets keep the order of the input";
  return errors;
}

Engine::Engine(const Router& router, const Plan& plan, const RunOptions& options)
    : router_(&router), plan_(&plan), options_(options), alone_(options.workers == 1), homes_(homes_of(options)) {
  past_files_ = options.files;
}

Engine::~Engine() {
  if (devices_ == nullptr) return;
  // Before the tables that a device was reading (publisher_).
  struct Memory {
    std::shared_ptr<JobRings> rings;
    std::vector<Buffer> set_aside;
  };
  auto memory = std::make_shared<Memory>(Memory{std::move(rings_), intake_->take_set_aside()});
  DeviceSet::end(std::move(devices_), workers_, std::move(memory));
}

Result<std::unique_ptr<Engine>> Engine::create(const Router& router, const Plan& plan, const RunOptions& options) {
  SLUICE_CHECK(!plan.by_packets);
  if (auto ok = check(router, plan, options); !ok) return std::move(ok).error();
  (void)kept_runs();
  if (auto ok = check_files(router, options.files); !ok) return std::move(ok).error();
  std::unique_ptr<Engine> made(new Engine(router, plan, options));
  Engine& e = *made;
  if (!plan.ordered.empty()) e.ordered_ = std::make_unique<OrderedNodes>(plan, router);
  Error errors;
  e.intake_ = std::make_unique<Intake>(router, plan, e.options_, errors);
  e.egress_ = std::make_unique<Egress>(router, plan, e.options_, e.intake_->links(),
                                       e.ordered_ != nullptr ? e.ordered_->delayed() : 0, errors);
  if (auto ok = ports_opened(std::move(errors)); !ok) return std::move(ok).error();
  e.workers_ = e.make_workers(router, plan);
  if (!options.device.devices.empty()) {
    auto devices = DeviceSet::open(router, plan, e.options_, e.workers_);
    if (!devices) return std::move(devices).error();
    e.devices_ = std::move(*devices);
  }
  if (options.count_hits) e.ledger_ = std::make_unique<HitLedger>(options.workers);
  if (options.live) {
    for (const auto& worker : e.workers_) e.live_.push_back(std::make_unique<LiveWorker>(worker));
  }
  auto rings = e.make_jobs(e.workers_[0]->depth(), e.ordered_.get());
  if (!rings) return std::move(rings).error();
  e.rings_ = std::move(*rings);
  e.connect(*e.intake_, *e.rings_);
  e.publisher_.set_prepare([&e](Snapshot& snapshot) {
    if (e.ledger_ != nullptr) attach_hits(snapshot, *e.ledger_);
    if (e.devices_ != nullptr) e.devices_->make_resident(snapshot, e.publisher_, e.workers_);
  });
  return made;
}

std::vector<std::unique_ptr<Worker>> Engine::make_workers(const Router& router, const Plan& plan) const {
  std::vector<std::unique_ptr<Worker>> workers;
  for (unsigned w = 0; w < options_.workers; ++w)
    workers.push_back(std::make_unique<Worker>(plan, router, w, options_.fast_path && !options_.ended));
  return workers;
}

// Every worker has as many jobs as it works on at a time, and as many may wait to be committed.
Result<std::shared_ptr<JobRings>> Engine::make_jobs(uint32_t depth, OrderedNodes* ordered) const {
  const uint32_t workers = options_.workers;
  uint32_t classes = 1, places = std::bit_ceil(depth), packets = options_.batch;
  size_t arena = size_t{1} << 21;
  if (!alone_) places = std::bit_ceil((depth + 1) * workers);
  if (options_.priorities) {
    const PriorityOptions& o = *options_.priorities;
    classes = static_cast<uint32_t>(homes_.counts().size());
    places = o.places != 0 ? o.places : std::bit_ceil(std::max(8u, 4 * workers * depth));
    packets = o.chunk;
    arena = size_t{1} << 14;
  }
  auto rings = std::make_shared<JobRings>(classes, places);
  for (uint32_t c = 0; c < classes; ++c) {
    for (uint32_t p = 0; p < places; ++p) {
      // A batch that is empty grows for a frame that is larger; one that is not is handed on before it.
      auto batch = Batch::create(packets, std::max(arena, size_t{packets} * 2048));
      if (!batch) return std::move(batch).error();
      auto job = std::make_unique<Job>();
      job->batch = std::move(*batch);
      if (ordered != nullptr) {
        job->ordered = std::make_unique<OrderedPass>(*ordered);
        job->share.ordered = job->ordered.get();
      }
      if (options_.qos != nullptr) job->batch.keep_egress_notes();
      if (devices_ != nullptr) devices_->pin(job->batch);
      rings->jobs[c].push_back(std::move(job));
    }
  }
  return rings;
}

void Engine::connect(Intake& intake, JobRings& rings) const {
  // One thread that has no batches with a device is quiescent between jobs: no generation that it read can go before.
  intake.connect(rings, *egress_, publisher_, !alone_ || devices_ != nullptr);
}

// --- a turn ---

// Something changed that somebody may be sleeping for.
void Engine::wake(bool all) {
  if (alone_ || sleepers_.fetch_add(0, std::memory_order_seq_cst) == 0) return;
  news_.fetch_add(1, std::memory_order_release);
  if (all) {
    news_.notify_all();
  } else {
    news_.notify_one();
  }
}

// What comes in next: a batch, or some turns of the packet scheduler. `pausing`: nothing does, and kIdle says that all
// that came in is on its way.
Polled Engine::take_in(bool pausing) {
  if (flow_ == nullptr) return pausing ? intake_->settle() : intake_->poll();
  if (!pausing) return flow_->poll();
  flow_->settle();
  return Polled::kIdle;
}

// Reads, if nobody else does.
Polled Engine::poll(bool pausing) {
  if (closed_.load(std::memory_order_acquire)) return Polled::kEnd;
  if (!alone_ && reading_.test_and_set(std::memory_order_acquire)) return Polled::kBusy;
  const Polled polled = take_in(pausing);
  if (polled == Polled::kEnd) closed_.store(true, std::memory_order_release);
  if (alone_) return polled;
  reading_.clear(std::memory_order_release);
  // After kFull somebody who sleeps would find nothing else.
  if (polled != Polled::kFull) wake(polled == Polled::kEnd);
  return polled;
}

// The input has nothing, and neither has this thread: it sleeps there, unless another one does.
void Engine::wait_for_input() {
  if (!alone_ && reading_.test_and_set(std::memory_order_acquire)) return;
  // Whoever reads an output gets what there is, and what others write from here on.
  waiting_.store(true, std::memory_order_relaxed);
  {
    const auto lock = egress_->lock();
    egress_->flush();
  }
  if (!closed_.load(std::memory_order_relaxed)) flow_ != nullptr ? flow_->wait() : intake_->wait();
  waiting_.store(false, std::memory_order_relaxed);
  if (alone_) return;
  reading_.clear(std::memory_order_release);
  wake();
}

void Engine::start(unsigned id, const ChunkClaim& claim) {
  Worker& worker = *workers_[id];
  Job& job = rings_->at(claim.qos_class, claim.sequence);
  job.stolen = claim.stolen;
  if (options_.priorities || worker.stats().batches % WorkerStats::kTimed == 0) {
    const uint64_t now = now_ns();
    worker.stats().wait.record(now - std::min(now, job.reads.front().at_ns));
  }
  if (alone_) worker.expect(intake_->next());
  worker.start(*job.snapshot, job.batch, job.share, job.source);
}

void Engine::finish(unsigned id, const ChunkClaim& claim) {
  Job& job = rings_->at(claim.qos_class, claim.sequence);
  job.done_ns = now_ns();
  for (const Job::Read& read : job.reads)
    workers_[id]->stats().latency.record(job.done_ns - std::min(job.done_ns, read.at_ns), read.packets);
  const ChunkRing& ring = rings_->view.rings[claim.qos_class];
  const uint32_t committed = ring.finish<HostAtomics>(claim.sequence, ring.capacity,
                                                      [&](uint64_t sequence) { commit(claim.qos_class, sequence); });
  if (committed != 0) wake();
}

// Goes on with commits that another thread left. Returns how many.
uint32_t Engine::resume() {
  uint32_t committed = 0;
  for (uint32_t c = 0; c < rings_->view.classes; ++c) {
    const ChunkRing& ring = rings_->view.rings[c];
    committed += ring.resume<HostAtomics>(ring.capacity, [&](uint64_t sequence) { commit(c, sequence); });
  }
  if (committed != 0) wake();
  return committed;
}

void Engine::commit(uint32_t qos_class, uint64_t sequence) {
  Job& job = rings_->at(qos_class, sequence);
  std::unique_lock<std::mutex> lock;
  if (!alone_ || options_.live) lock = egress_->lock();
  egress_->commit(job, qos_class);
  if (waiting_.load(std::memory_order_relaxed)) egress_->flush();
  if (!alone_ || devices_ != nullptr) Publisher::release(job.snapshot);
  job.snapshot = nullptr;
}

void Engine::work(unsigned id) {
  Worker* worker = workers_[id].get();
  const bool by_class = options_.priorities.has_value();
  std::vector<ChunkClaim> flying(worker->depth());
  uint64_t begun = 0, done = 0;
  QsbrReader reader;
  Gated gate(live_.empty() ? nullptr : &live_[id]->gate);
  Sleeper sleeper(*this);
  TraceSpan waiting;
  for (uint64_t look = 0;; ++look) {
    gate.poll();
    if (begun == done || !alone_ || devices_ != nullptr) reader.quiescent();
    sleeper.look();
    // Before the look: nothing can come after one that finds nothing then.
    const bool last = closed_.load(std::memory_order_acquire);
    const bool pausing = pausing_.load(std::memory_order_acquire);
    bool moved = alone_ ? false : resume() != 0;
    Polled polled = Polled::kFull;
    ChunkClaim claim;
    bool claimed = false;
    if (begun - done < flying.size()) {
      const uint32_t home = homes_.home(id, look);
      if (!by_class) claimed = rings_->view.look<HostAtomics>(home, claim);
      for (int i = 0; !claimed && i < (by_class ? kPollsPerTurn : 1); ++i) {
        polled = poll(pausing);
        if (polled != Polled::kFrames) break;
        moved = true;
      }
      if (!claimed) claimed = rings_->view.look<HostAtomics>(home, claim);
    }
    if (claimed) {
      waiting.end();
      sleeper.awake();
      flying[begun++ % flying.size()] = claim;
      start(id, claim);
    }
    if (begun != done) {
      if (worker->finish()) {
        waiting.end();
        finish(id, flying[done++ % flying.size()]);
      } else if (!claimed) {
        waiting.begin("wait");
        spin_once(spins_ != 0);
      }
      continue;
    }
    if (moved) continue;
    if (last) break;
    // Nothing to do.
    if (pausing) {
      if (polled != Polled::kIdle || !rings_->all_committed()) {
        spin_once(false);  // others have something on its way
        continue;
      }
      sleeper.awake();
      reader.offline();
      gate.leave();
      park();
      gate.enter();
      reader.online();
      worker = workers_[id].get();  // of another graph
      continue;
    }
    if (polled == Polled::kIdle) {
      sleeper.awake();
      reader.offline();
      gate.leave();
      wait_for_input();
      gate.enter();
      reader.online();
    } else if (polled != Polled::kEnd && !alone_ && sleeper.nothing()) {
      reader.offline();
      gate.leave();
      sleeper.sleep();
      gate.enter();
      reader.online();
    }
  }
  leave(1);
}

Result<void> Engine::work_all() {
  // A futex costs several microseconds; a batch is often shorter than that. Spin first where every thread has a core of
  // its own.
  spins_ = std::thread::hardware_concurrency() >= workers_.size() ? 4000 : 0;
  const auto all = static_cast<unsigned>(workers_.size());
  {
    const std::lock_guard lock(pause_.mutex);
    pause_.threads = all;
  }
  std::vector<std::jthread> threads;
  threads.reserve(workers_.size());
  // Nobody reads before all have begun.
  if (!alone_) reading_.test_and_set(std::memory_order_acquire);
  Result<void> result;
  for (unsigned w = 1; w < workers_.size() && result.ok(); ++w) {
    auto thread = start_thread([this, w] { work(w); });
    if (thread) {
      threads.push_back(std::move(*thread));
    } else {
      result = std::move(thread).error();
      closed_.store(true, std::memory_order_release);
      leave(all - w);
    }
  }
  if (!alone_) {
    reading_.clear(std::memory_order_release);
    wake(true);
  }
  if (result.ok()) {
    work(0);
  } else {
    leave(1);
  }
  return result;
}

Result<void> Engine::run(RunReport& report) {
  if (flow_ == nullptr && publisher_.current() == nullptr) return Error("no generation was published before the run");
  started_ns_ = now_ns();
  Result<void> result = work_all();
  if (result.ok()) result = flow_ != nullptr ? flow_->result() : intake_->result();
  bool damaged = flow_ != nullptr ? flow_->damaged() : intake_->damaged();
  const bool interrupted = flow_ != nullptr ? flow_->interrupted() : intake_->interrupted();
  {
    const auto lock = egress_->lock();
    egress_->drain();
    // The time is that of the packets: how long a disk takes to keep what it was given is not theirs.
    ended_ns_ = now_ns();
    // What an output says comes before what an input says: then nothing appears.
    const auto output_failed = [&] {
      output_failed_ = egress_->failed() && (result.ok() || damaged);
      if (!output_failed_) return;
      result = egress_->result();
      damaged = false;
      ending_ = Ending::kDiscard;
    };
    output_failed();
    if (result.ok() || damaged)
      ending_ = damaged || (interrupted && !options_.stop_is_end) ? Ending::kPartial : Ending::kWhole;
    if (flow_ != nullptr) {
      // No output appears before all are on the disk, and elements' own are the last.
      if (ending_ != Ending::kDiscard) egress_->settle();
      output_failed();
      end_elements(result, damaged);
    }
    if (ending_ != Ending::kDiscard) {
      egress_->end(ending_);
      output_failed();
    }
    egress_->close();
  }
  if (intake_ != nullptr) intake_->close();
  if (result.ok() && options_.hold && flow_ == nullptr) options_.hold();
  if (devices_ != nullptr) devices_->stop(workers_);

  report = {};
  for (const auto& worker : workers_) report.totals.add(worker->stats());
  if (flow_ != nullptr) flow_->report(report);
  {
    // Somebody may be looking.
    const auto lock = egress_->lock();
    sum_up(report);
    egress_->report_at_end(report);
  }
  report.interrupted = interrupted;
  report.partial = ending_ == Ending::kPartial;
  report.output_failed = output_failed_;
  if (devices_ == nullptr) return result;
  devices_->fill(report, workers_);
  report.set_aside_bytes += intake_->set_aside_bytes();
  for (const auto& jobs : rings_->jobs) {
    for (const auto& job : jobs) {
      if (job->share.given_up) report.set_aside_bytes += job->batch.arena().size();
    }
  }
  return result;
}

// --- counters ---

// What follows from the totals of the workers.
void Engine::sum_up(RunReport& report) {
  report.totals.add(past_);
  report.gone.add(gone_);
  egress_->report(report);
  if (intake_ != nullptr) intake_->report(report);
  if (flow_ != nullptr) report.generation = flow_->swaps() + 1;
  report.packets_in = report.totals.packets_in;
  report.bytes_in = report.totals.bytes_in;
  report.generated = report.totals.generated;
  const auto add_drops = [&report](const ElementCounters& e) {
    for (size_t r = 0; r < kDropReasons; ++r) {
      report.drops[r] += e.drops[r];
      report.dropped += e.drops[r];
    }
  };
  for (const ElementCounters& e : report.totals.elements) add_drops(e);
  add_drops(report.gone);
  const uint64_t started = started_ns_, ended = ended_ns_ != 0 ? ended_ns_.load() : now_ns();
  report.seconds = started == 0 ? 0 : static_cast<double>(ended - started) * 1e-9;
  report.workers = static_cast<unsigned>(workers_.size());
  if (!options_.priorities) return;
  for (uint32_t c = 0; c < rings_->view.classes; ++c) {
    const Intake::Read read = intake_->read_of(c);
    PriorityReport& k = report.priorities.emplace_back();
    k.packets = read.packets;
    k.bytes = read.bytes;
    k.refused = read.refused;
    k.turns = homes_.counts()[c];
    egress_->report_class(k, c);
  }
}

// Empty: commits did not let us in.
std::unique_lock<std::mutex> Engine::lock_egress_within_a_second() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (;;) {
    auto lock = egress_->try_lock();
    if (lock.owns_lock() || std::chrono::steady_clock::now() > end) return lock;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

Result<void> Engine::look(RunReport& report) {
  const auto late = [] { return Error("a thread of the run did not answer within a second", "ask again"); };
  report = {};
  if (flow_ != nullptr) {
    return ask([&] {
      flow_->report(report);
      sum_up(report);
    });
  }
  for (auto& worker : live_) {
    if (!worker->gate.look(std::chrono::seconds(1))) return late();
    report.totals.add(worker->stats);
  }
  const auto lock = lock_egress_within_a_second();
  if (!lock.owns_lock()) return late();
  sum_up(report);
  return {};
}

Result<void> Engine::change_qos(const std::function<Result<void>(EgressQos&)>& change) {
  if (options_.qos == nullptr || !options_.live)
    return Error("this run has no classes of service", "start it with --qos FILE");
  if (flow_ != nullptr) {
    Result<void> changed;
    auto asked = ask([&] { changed = change(*egress_->qos()); });
    return asked.ok() ? std::move(changed) : std::move(asked);
  }
  const auto lock = lock_egress_within_a_second();
  if (!lock.owns_lock()) return Error("an output of the run does not take packets: nothing was changed", "ask again");
  return change(*egress_->qos());
}

}  // namespace sluice

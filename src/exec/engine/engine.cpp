// host only
#include "exec/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <new>
#include <optional>
#include <thread>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "exec/account/hits.h"
#include "exec/account/rule_log.h"
#include "exec/device/device_set.h"
#include "exec/device/trace.h"
#include "exec/engine/egress.h"
#include "exec/engine/generation.h"
#include "exec/engine/job.h"
#include "exec/engine/live_gate.h"
#include "exec/scheduler/scheduler.h"
#include "exec/walk/ordered.h"
#include "exec/walk/worker.h"
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
// something looks for sleepers afterwards; a fence on either side, between the write and the look, makes one of the two
// see what the other wrote. Either the sleeper finds the change at its last look, or it is woken.
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
    std::atomic_thread_fence(std::memory_order_seq_cst);
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

Result<void> Engine::check_tables(const Router& router, const Plan& plan, const RunOptions& options,
                                  const Snapshot& snapshot) {
  return DeviceSet::check_tables(router, plan, options, snapshot);
}

Engine::Engine(const Router& router, const Plan& plan, const RunOptions& options)
    : router_(&router), plan_(&plan), options_(options), alone_(options.workers == 1), homes_(homes_of(options)) {
  past_files_ = options.files;
}

Engine::~Engine() {
  if (devices_ == nullptr) return;
  // Before the tables that a device was reading (publisher_).
  struct Memory {
    std::vector<std::shared_ptr<JobRings>> rings;
    std::vector<Buffer> set_aside;
    std::shared_ptr<FramePool> frames;
    std::vector<std::unique_ptr<Intake>> sources;  // packets may lie in their memory
  };
  auto memory = std::make_shared<Memory>();
  for (const auto& lane : lanes_) {
    memory->rings.push_back(std::move(lane->rings));
    for (Buffer& arena : lane->intake->take_set_aside()) memory->set_aside.push_back(std::move(arena));
    memory->sources.push_back(std::move(lane->intake));
  }
  if (live_ports_ != nullptr) memory->frames = live_ports_->shared_pool();
  DeviceSet::end(std::move(devices_), workers_, std::move(memory));
}

Result<std::unique_ptr<Engine>> Engine::create(const Router& router, const Plan& plan, const RunOptions& options) {
  SLUICE_CHECK(!plan.by_packets);
  if (auto ok = check(router, plan, options); !ok) return std::move(ok).error();
  (void)kept_runs();
  if (auto ok = check_files(router, options.files); !ok) return std::move(ok).error();
  Error errors;
  // Frames, rings and jobs lie at the node of the first core.
  std::optional<OnCore> at_node;
  if (!options.cores.empty()) at_node.emplace(options.cores[0]);
  auto live_ports = LivePorts::open(router, plan, options.workers, errors);
  if (auto ok = ports_opened(std::move(errors)); !ok) return std::move(ok).error();
  RunOptions wanted = options;
  // A worker without a queue has nothing to do.
  if (live_ports != nullptr) wanted.workers = std::min(options.workers, live_ports->most_rx_queues());
  std::unique_ptr<Engine> made(new Engine(router, plan, wanted));
  Engine& e = *made;
  e.live_ports_ = std::move(live_ports);
  if (!plan.ordered.empty()) e.ordered_ = std::make_unique<OrderedNodes>(plan, router);
  errors = {};
  auto intakes = e.open_intakes(router, plan, errors);
  e.egress_ = std::make_unique<Egress>(router, plan, e.options_, e.live_ports_.get(), e.links_of(intakes),
                                       e.ordered_ != nullptr ? e.ordered_->delayed() : 0, errors);
  if (auto ok = ports_opened(std::move(errors)); !ok) return std::move(ok).error();
  for (auto& intake : intakes) {
    e.lanes_.push_back(std::make_unique<Lane>());
    e.lanes_.back()->alone = e.alone_ || intakes.size() > 1;
    e.lanes_.back()->intake = std::move(intake);
  }
  e.workers_ = e.make_workers(router, plan);
  e.own_batches_.resize(e.workers_.size());
  if (!options.device.devices.empty()) {
    auto devices = DeviceSet::open(router, plan, e.options_, e.workers_, e.egress_->counts_only());
    if (!devices) return std::move(devices).error();
    e.devices_ = std::move(*devices);
  }
  if (options.count_hits) e.ledger_ = std::make_unique<HitLedger>(wanted.workers);
  if (options.rule_log != nullptr) options.rule_log->open(wanted.workers);
  if (options.live) {
    for (const auto& worker : e.workers_) e.live_.push_back(std::make_unique<LiveWorker>(worker));
  }
  if (e.devices_ != nullptr && e.live_ports_ != nullptr) e.devices_->pin(e.live_ports_->shared_pool()->memory());
  auto rings = e.make_jobs(e.workers_[0]->depth(), e.ordered_.get());
  if (!rings) return std::move(rings).error();
  for (size_t l = 0; l < e.lanes_.size(); ++l) {
    Lane& lane = *e.lanes_[l];
    lane.rings = std::move((*rings)[l]);
    e.connect(router, *lane.intake, *lane.rings);
  }
  e.publisher_.set_prepare([&e](Snapshot& snapshot) {
    if (e.ledger_ != nullptr) attach_hits(snapshot, *e.ledger_);
    if (e.options_.rule_log != nullptr) e.options_.rule_log->attach(snapshot, *e.router_, *e.plan_);
    if (e.devices_ != nullptr) e.devices_->make_resident(snapshot, e.publisher_, e.workers_);
  });
  return made;
}

std::vector<std::unique_ptr<Worker>> Engine::make_workers(const Router& router, const Plan& plan) const {
  std::vector<std::unique_ptr<Worker>> workers;
  for (unsigned w = 0; w < options_.workers; ++w) {
    workers.push_back(std::make_unique<Worker>(plan, router, w, options_.fast_path && !options_.ended));
    if (options_.count_dscp) workers.back()->stats().count_dscp();
  }
  return workers;
}

// Where there are live ports, each worker has a lane of its own.
std::vector<std::unique_ptr<Intake>> Engine::open_intakes(const Router& router, const Plan& plan, Error& errors) const {
  std::vector<std::unique_ptr<Intake>> intakes;
  const unsigned lanes = live_ports_ != nullptr ? options_.workers : 1;
  for (unsigned l = 0; l < lanes; ++l) {
    const Intake* before = l < lanes_.size() ? lanes_[l]->intake.get() : nullptr;
    intakes.push_back(
        std::make_unique<Intake>(router, plan, options_, Intake::Share{live_ports_.get(), l, lanes}, errors, before));
  }
  return intakes;
}
std::vector<LinkType> Engine::links_of(const std::vector<std::unique_ptr<Intake>>& intakes) const {
  std::vector<LinkType> links;
  for (const auto& intake : intakes) {
    for (const LinkType link : intake->links()) links.push_back(link);
  }
  return links;
}

Result<std::unique_ptr<Job>> Engine::make_job(uint32_t lane, const JobSize& size, OrderedNodes* ordered) const {
  // A batch that is empty grows for a frame that is larger; one that is not is handed on before it.
  auto batch = Batch::create(size.packets, std::max(size.arena, size_t{size.packets} * 2048));
  if (!batch) return std::move(batch).error();
  auto job = std::make_unique<Job>();
  job->lane = lane;
  job->batch = std::move(*batch);
  if (ordered != nullptr) {
    job->ordered = std::make_unique<OrderedPass>(*ordered);
    job->share.ordered = job->ordered.get();
  }
  if (options_.qos != nullptr) job->batch.keep_egress_notes();
  if (devices_ != nullptr) devices_->pin(job->batch.arena());
  return job;
}

// Every worker has as many jobs as it works on at a time, and as many may wait to be committed.
Engine::JobSize Engine::job_size(const Lane& lane, uint32_t depth) const {
  const uint32_t workers = lane.alone ? 1 : options_.workers;
  if (options_.priorities) {
    const PriorityOptions& o = *options_.priorities;
    return {static_cast<uint32_t>(homes_.counts().size()),
            o.places != 0 ? o.places : std::bit_ceil(4 * workers * depth), o.chunk, size_t{1} << 14};
  }
  return {1, std::bit_ceil(lane.alone ? depth : (depth + 1) * workers), options_.batch, size_t{1} << 21};
}

Result<std::vector<std::shared_ptr<JobRings>>> Engine::make_jobs(uint32_t depth, OrderedNodes* ordered) const {
  std::vector<std::shared_ptr<JobRings>> all;
  for (unsigned l = 0; l < lanes_.size(); ++l) {
    const JobSize size = job_size(*lanes_[l], depth);
    auto rings = std::make_shared<JobRings>(size.classes, size.places);
    for (auto& jobs : rings->jobs) {
      for (uint32_t p = 0; p < size.places; ++p) {
        auto job = make_job(l, size, ordered);
        if (!job) return std::move(job).error();
        jobs.push_back(std::move(*job));
      }
    }
    all.push_back(std::move(rings));
  }
  return all;
}

void Engine::connect(const Router& router, Intake& intake, JobRings& rings) {
  // A lane of one thread that has no batches with a device is quiescent between jobs: no generation that it read can go
  // before. Chunks of classes wait while others run.
  if (devices_ != nullptr && devices_->takes_lent()) {
    std::vector<bool> lends;
    for (const LentMemory& memory : intake.lendable(devices_->chunks_stay()))
      lends.push_back(devices_->pin_source(memory));
    intake.lend(lends);
  }
  intake.connect(rings, *egress_, publisher_,
                 !lanes_[0]->alone || devices_ != nullptr || options_.priorities.has_value(), shared_,
                 Egress::in_order(router, options_, live_ports_.get()));
}

// --- a turn ---

// Behind a change: whether somebody may have missed it.
bool Engine::anybody_sleeps() {
#if defined(SLUICE_SANITIZED_THREADS)
  // The thread sanitizer knows no fences.
  return sleepers_.fetch_add(0, std::memory_order_seq_cst) != 0;
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return sleepers_.load(std::memory_order_relaxed) != 0;
#endif
}

// Something changed that somebody may be sleeping for.
void Engine::wake(const Lane& lane, bool all) {
  if (lane.alone || !anybody_sleeps()) return;
  news_.fetch_add(1, std::memory_order_release);
  if (all) {
    news_.notify_all();
  } else {
    news_.notify_one();
  }
}

// A lane without sources is there as long as others have some: the next graph may bring one.
bool Engine::waits_with_others(const Lane& lane) const {
  if (!lane.intake->empty() || options_.stopped()) return false;
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& other) {
    return !other->intake->empty() && !other->closed.load(std::memory_order_acquire);
  });
}

// What comes in next: a batch, or some turns of the packet scheduler. `pausing`: nothing does, and kIdle says that all
// that came in is on its way.
Polled Engine::take_in(Lane& lane, bool pausing) {
  if (flow_ == nullptr) {
    if (waits_with_others(lane)) return Polled::kIdle;
    return pausing ? lane.intake->settle() : lane.intake->poll();
  }
  Polled polled = Polled::kIdle;
  if (pausing) {
    flow_->settle();
  } else {
    polled = flow_->poll();
  }
  send_on(flow_->live());
  return polled;
}

// Live ports send what they were given. `by_clock`: what waits at egress for a time goes by that of the packets, which
// live ports stamp with the time of day. Whoever calls it has egress.
void Engine::send_on(bool by_clock) {
  if (live_ports_ == nullptr) return;
  by_clock ? egress_->advance(wall_ns()) : egress_->look_at_neighbours();
  egress_->kick();
}

// Reads, if nobody else does.
Polled Engine::poll(Lane& lane, bool pausing) {
  if (lane.closed.load(std::memory_order_acquire)) return Polled::kEnd;
  if (!lane.alone && lane.reading.test_and_set(std::memory_order_acquire)) return Polled::kBusy;
  const Polled polled = take_in(lane, pausing);
  // What costs next to nothing to read is read for others as well, who need not come here then.
  bool several = false;
  for (unsigned more = 1; more < at_a_time_ && flow_ == nullptr && polled == Polled::kFrames; ++more) {
    if (!lane.intake->took() || take_in(lane, pausing) != Polled::kFrames) break;
    several = true;
  }
  if (polled == Polled::kEnd) lane.closed.store(true, std::memory_order_release);
  if (lane.alone) return polled;
  lane.reading.clear(std::memory_order_release);
  // After kFull somebody who sleeps would find nothing else, and after kAhead this thread looks again.
  if (polled != Polled::kFull && polled != Polled::kAhead) wake(lane, several || polled == Polled::kEnd);
  return polled;
}

// The input has nothing, and neither has this thread: it sleeps there, unless another one does.
void Engine::wait_for_input(Lane& lane) {
  if (!lane.alone && lane.reading.test_and_set(std::memory_order_acquire)) return;
  // Whoever reads an output gets what there is, and what others write from here on.
  lane.waiting.store(true, std::memory_order_relaxed);
  uint64_t due = ~uint64_t{0};
  {
    const auto lock = egress_->lock();
    // What waits for its time leaves also while nothing comes.
    const bool live = flow_ != nullptr ? flow_->live() : lane.intake->live();
    send_on(live);
    // Where that is by the clock (send_on).
    if (const uint64_t next = egress_->next_ns(); live && live_ports_ != nullptr && next != ~uint64_t{0})
      due = next - std::min(next, wall_ns());
    egress_->flush();
  }
  if (!lane.closed.load(std::memory_order_relaxed)) flow_ != nullptr ? flow_->wait(due) : lane.intake->wait(due);
  lane.waiting.store(false, std::memory_order_relaxed);
  if (lane.alone) return;
  lane.reading.clear(std::memory_order_release);
  wake(lane);
}

void Engine::start(unsigned id, const ChunkClaim& claim) {
  Worker& worker = *workers_[id];
  Lane& lane = lane_of(id);
  Job& job = lane.rings->at(claim.qos_class, claim.sequence);
  job.stolen = claim.stolen;
  if (options_.priorities || worker.stats().batches % WorkerStats::kTimed == 0) {
    const uint64_t now = now_ns();
    worker.stats().wait.record(now - std::min(now, job.reads.front().at_ns));
  }
  for (FollowedRow& f : job.share.followed) f.packet->worker = id;
  if (lane.alone) worker.expect(lane.intake->next());
  job.ran_in = own_batch(id, job);
  if (job.ran_in != nullptr) {
    job.copies->copy(*job.ran_in, job.taken);
    job.copies = nullptr;
  }
  job.copy();
  worker.start(*job.snapshot, job.ran_in != nullptr ? *job.ran_in : job.batch, job.share, job.source);
}

// Jobs go from core to core, and their memory with them. Where packets are still to be copied, and nobody looks at them
// when their worker has done with them, they may as well be copied to memory that stays with the worker. nullptr: they
// may not.
Batch* Engine::own_batch(unsigned id, Job& job) {
  if (job.copies == nullptr || alone_ || devices_ != nullptr || ordered_ != nullptr || job.share.fates != nullptr ||
      !egress_->only_counts(job.share))
    return nullptr;
  std::unique_ptr<Batch>& own = own_batches_[id];
  if (own == nullptr) {
    auto made = Batch::create(job.batch.capacity(), job.batch.arena().size());
    if (made) own = std::make_unique<Batch>(std::move(*made));
  }
  // Whoever read them has looked for room in the job's batch.
  const bool fits =
      own != nullptr && own->capacity() >= job.batch.size() && own->arena().size() >= job.batch.arena().size();
  return fits ? own.get() : nullptr;
}

void Engine::finish(unsigned id, const ChunkClaim& claim) {
  Lane& lane = lane_of(id);
  Job& job = lane.rings->at(claim.qos_class, claim.sequence);
  if (Batch* const own = std::exchange(job.ran_in, nullptr); own == nullptr) {
    (void)egress_->count(id, job.batch, job.share);
  } else if (egress_->count(id, *own, job.share)) {
    own->clear_annotations(job.share.annotated);
    job.share.annotated.clear();
  } else {
    std::swap(job.batch, *own);  // somebody looks after all
  }
  job.done_ns = now_ns();
  for (const Job::Read& read : job.reads)
    workers_[id]->stats().latency.record(job.done_ns - std::min(job.done_ns, read.at_ns), read.packets);
  const ChunkRing& ring = lane.rings->view.rings[claim.qos_class];
  const uint32_t committed = ring.finish<HostAtomics>(
      claim.sequence, ring.capacity, [&](uint64_t sequence) { commit(lane, claim.qos_class, sequence); });
  if (committed != 0) wake(lane);
}

// Goes on with commits that another thread left. Returns how many.
uint32_t Engine::resume(Lane& lane) {
  uint32_t committed = 0;
  for (uint32_t c = 0; c < lane.rings->view.classes; ++c) {
    const ChunkRing& ring = lane.rings->view.rings[c];
    committed += ring.resume<HostAtomics>(ring.capacity, [&](uint64_t sequence) { commit(lane, c, sequence); });
  }
  if (committed != 0) wake(lane);
  return committed;
}

void Engine::commit(Lane& lane, uint32_t qos_class, uint64_t sequence) {
  Job& job = lane.rings->at(qos_class, sequence);
  std::unique_lock<std::mutex> lock;
  if (!alone_ || options_.live) lock = egress_->lock();
  egress_->commit(job, qos_class);
  if (lane.intake->live()) egress_->advance(job.batch.timestamp_ns(job.batch.size() - 1));
  send_on(false);
  if (lane.waiting.load(std::memory_order_relaxed)) egress_->flush();
  if (!lane.alone || devices_ != nullptr || options_.priorities) Publisher::release(job.snapshot);
  job.snapshot = nullptr;
}

void Engine::work(unsigned id) {
  if (!options_.cores.empty()) (void)pin_thread(options_.cores[id % options_.cores.size()]);  // checked before
  Worker* worker = workers_[id].get();
  Lane& lane = lane_of(id);
  const bool by_class = options_.priorities.has_value();
  std::vector<ChunkClaim> flying(worker->depth());
  uint64_t begun = 0, done = 0;
  QsbrReader reader;
  Gated gate(live_.empty() ? nullptr : &live_[id]->gate);
  Sleeper sleeper(*this);
  TraceSpan waiting;
  for (uint64_t look = 0; !given_up_.load(std::memory_order_relaxed); ++look) {
    gate.poll();
    if (begun == done || !lane.alone || devices_ != nullptr || by_class) reader.quiescent();
    sleeper.look();
    // Before the look: nothing can come after one that finds nothing then.
    const bool last = lane.closed.load(std::memory_order_acquire);
    const bool pausing = pausing_.load(std::memory_order_acquire);
    bool moved = lane.alone ? false : resume(lane) != 0;
    Polled polled = Polled::kFull;
    ChunkClaim claim;
    bool claimed = false;
    if (begun - done < flying.size()) {
      const uint32_t home = homes_.home(id, look);
      if (!by_class) claimed = lane.rings->view.look<HostAtomics>(home, claim);
      for (int i = 0; !claimed && i < (by_class ? kPollsPerTurn : 1); ++i) {
        polled = poll(lane, pausing);
        if (polled != Polled::kFrames) break;
        moved = true;
      }
      if (!claimed) claimed = lane.rings->view.look<HostAtomics>(home, claim);
      const bool others = polled == Polled::kBusy || polled == Polled::kAhead;
      if (!claimed && others && !pausing && lane.intake->read_ahead()) {
        moved = true;
        wake(lane);
      }
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
      if (polled != Polled::kIdle || !lane.rings->all_committed()) {
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
      wait_for_input(lane);
      gate.enter();
      reader.online();
    } else if (polled == Polled::kAhead) {
      // Whoever reads there may find nothing and sleep: one has to stay awake.
      spin_once(false);
    } else if (polled != Polled::kEnd && !lane.alone && sleeper.nothing()) {
      reader.offline();
      gate.leave();
      sleeper.sleep();
      gate.enter();
      reader.online();
    }
  }
  leave(1);
}

// One that finds no memory ends the run for all: what it had on its way cannot go on, and is lost with the outputs.
void Engine::work_or_give_up(unsigned id) {
  try {
    work(id);
  } catch (const std::bad_alloc&) {
    given_up_.store(true, std::memory_order_release);
    news_.fetch_add(1, std::memory_order_seq_cst);
    news_.notify_all();
    leave(1);
  }
}

Result<void> Engine::work_all() {
  // A futex costs several microseconds; a batch is often shorter than that. Spin first where every thread has a core of
  // its own.
  spins_ = std::thread::hardware_concurrency() >= workers_.size() ? 4000 : 0;
  at_a_time_ = std::clamp(static_cast<unsigned>(workers_.size() / 2), 1u, 8u);
  const auto all = static_cast<unsigned>(workers_.size());
  {
    const std::lock_guard lock(pause_.mutex);
    pause_.threads = all;
  }
  Result<void> result = work_together(all);
  if (!given_up_.load(std::memory_order_acquire)) return result;
  Error error("out of memory", "raise the memory limit, or use smaller input");
  error.system = true;
  return error;
}

Result<void> Engine::work_together(unsigned all) {
  std::vector<std::jthread> threads;
  threads.reserve(all);
  // Nobody reads before all have begun.
  Lane& first = *lanes_[0];
  if (!first.alone) first.reading.test_and_set(std::memory_order_acquire);
  Result<void> result;
  for (unsigned w = 1; w < all && result.ok(); ++w) {
    auto thread = start_thread([this, w] { work_or_give_up(w); });
    if (thread) {
      threads.push_back(std::move(*thread));
    } else {
      result = std::move(thread).error();
      for (const auto& lane : lanes_) lane->closed.store(true, std::memory_order_release);
      leave(all - w);
    }
  }
  if (!first.alone) {
    first.reading.clear(std::memory_order_release);
    wake(first, true);
  }
  if (result.ok()) {
    if (options_.ready) options_.ready();
    work_or_give_up(0);
  } else {
    leave(1);
  }
  return result;
}

Result<void> Engine::run(RunReport& report, std::vector<AtomicFile>* files) {
  if (flow_ == nullptr && publisher_.current() == nullptr) return Error("no generation was published before the run");
  started_ns_ = now_ns();
  Result<void> result = work_all();
  bool damaged = flow_ != nullptr && flow_->damaged(), interrupted = flow_ != nullptr && flow_->interrupted();
  if (flow_ != nullptr && result.ok()) result = flow_->result();
  for (const auto& lane : lanes_) {
    if (lane->intake == nullptr) continue;
    if (result.ok()) result = lane->intake->result();
    damaged |= lane->intake->damaged();
    interrupted |= lane->intake->interrupted();
  }
  {
    std::vector<AtomicFile> outputs;
    const auto lock = egress_->lock();
    if (!given_up_.load(std::memory_order_relaxed)) egress_->drain();
    // The time is that of the packets: how long a disk takes to keep what it was given is not theirs.
    ended_ns_ = now_ns();
    // What an output says comes before what an input says: then nothing appears.
    const auto fail_output = [&](const Result<void>& why) {
      output_failed_ = !why.ok() && (result.ok() || damaged);
      if (!output_failed_) return;
      result = why;
      damaged = false;
      ending_ = Ending::kDiscard;
    };
    const auto output_failed = [&] { fail_output(egress_->result()); };
    output_failed();
    if (result.ok() || damaged)
      ending_ = damaged || (interrupted && !options_.stop_is_end) ? Ending::kPartial : Ending::kWhole;
    if (flow_ != nullptr) {
      if (ending_ != Ending::kDiscard) egress_->settle();
      output_failed();
      end_elements(result, damaged, outputs);
      flow_->close();
    }
    if (ending_ != Ending::kDiscard) {
      egress_->end(ending_, outputs);
      output_failed();
    }
    // No output appears before all are on the disk. A run that is held shows them: what the caller adds comes later.
    const bool holds = result.ok() && options_.hold && flow_ == nullptr;
    if (ending_ != Ending::kDiscard && (files == nullptr || holds)) {
      fail_output(AtomicFile::commit(outputs, ending_));
    } else if (ending_ != Ending::kDiscard) {
      *files = std::move(outputs);
    }
    egress_->close();
  }
  for (const auto& lane : lanes_) {
    if (lane->intake != nullptr) lane->intake->close();
  }
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
  for (const auto& lane : lanes_) {
    report.set_aside_bytes += lane->intake->set_aside_bytes();
    for (const auto& jobs : lane->rings->jobs) {
      for (const auto& job : jobs) {
        if (job->share.given_up && job->lender == nullptr) report.set_aside_bytes += job->batch.arena().size();
      }
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
  for (const auto& lane : lanes_) {
    if (lane->intake != nullptr) lane->intake->report(report);
  }
  if (live_ports_ != nullptr) report.live_ports = live_ports_->report();
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
  for (uint32_t c = 0; c < lanes_[0]->rings->view.classes; ++c) {
    PriorityReport& k = report.priorities.emplace_back();
    for (const auto& lane : lanes_) {
      const Intake::Read read = lane->intake->read_of(c);
      k.packets += read.packets;
      k.bytes += read.bytes;
      k.refused += read.refused;
    }
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

// host only
#include "exec/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/scope_exit.h"
#include "base/thread.h"
#include "exec/device/trace.h"
#include "exec/egress_limiter.h"
#include "graph/graph_files.h"
#include "net/parse.h"

namespace sluice {
// One batch on its way: read by one thread, shared out to all workers, committed in order.
struct Runtime::Job {
  Batch batch;
  unsigned source = 0;
  const Snapshot* snapshot = nullptr;
  uint64_t started_ns = 0;
  uint64_t round = 0;  // of the sizer, when it was read
  std::atomic<uint64_t> done_ns{0};
  std::vector<JobShare> shares;        // by worker
  std::atomic<uint32_t> remaining{0};  // workers that have not finished their share
  std::unique_ptr<OrderedPass> ordered;
  // For RunOptions::ended, by row; frames are as they came, one behind the other.
  std::vector<PacketFate> fates;
  struct Came {
    size_t at;
    uint32_t bytes, wire_bytes;
  };
  std::vector<Came> came;
  std::vector<uint8_t> frames;

  // A device was given up with frames of the batch.
  bool given_up() const {
    return std::any_of(shares.begin(), shares.end(), [](const JobShare& share) { return share.given_up; });
  }
};

// Token bucket over the packets' own time stamps, so that results do not depend on the machine: the generic cell rate
// algorithm (ITU-T I.371), tokens counted in nanoseconds of theoretical arrival time.
struct Runtime::Limiter : EgressLimiter {
  unsigned element;
};

// Gates and copies for `look`. The committing thread has a gate of its own.
struct Runtime::Live {
  struct OfWorker {
    explicit OfWorker(Worker& worker) : gate([this, &worker] { stats = worker.stats(); }) {}
    WorkerStats stats;
    LiveGate gate;
  };
  explicit Live(Runtime& runtime)
      : commit([this, &runtime] {
          commit_stats = runtime.commit_stats_;
          sinks = runtime.sink_counters_;
          generation = runtime.last_generation_;
          if (runtime.qos_ == nullptr) return;
          {
            const std::lock_guard lock(mutex);
            if (change) std::exchange(change, nullptr)(*runtime.qos_);
          }
          qos = runtime.qos_->report();
        }) {
    for (auto& worker : runtime.workers_) workers.push_back(std::make_unique<OfWorker>(*worker));
  }
  std::vector<std::unique_ptr<OfWorker>> workers;
  WorkerStats commit_stats;
  std::vector<RunReport::Sink> sinks;
  uint64_t generation = 0;
  std::vector<QosPortReport> qos;
  std::mutex mutex;
  std::function<void(EgressQos&)> change;  // to be made once
  LiveGate commit;
};

namespace {

// The thread's counters are its own while one of these lives; `gate` may be nullptr.
class Gated {
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

}  // namespace

Runtime::Runtime(const Router& router, const Plan& plan, const RunOptions& options)
    : router_(router), plan_(plan), options_(options), ports_(size_t{1} << 16) {
  commit_stats_.elements.resize(router.elements.size());
  for (unsigned e : limited_elements(router)) {
    limiters_.push_back({EgressLimiter::of(router.elements[e]->egress_rate()), e});
  }
}

// What devices that do not stop may still read and write, and what they are waited for with.
struct Runtime::Kept {
  std::vector<std::unique_ptr<Job>> jobs;
  std::vector<Buffer> set_aside;
  std::vector<std::unique_ptr<DeviceState>> devices;
  std::vector<WorkerDevice> workers;

  // Whether all have stopped.
  bool stop() {
    std::vector<const WorkerDevice*> all;
    for (const WorkerDevice& worker : workers) all.push_back(&worker);
    bool stopped = true;
    for (size_t d = 0; d < devices.size(); ++d) stopped &= stop_device(*devices[d], d, all, 0).ok();
    return stopped;
  }
  // They have stopped. Channels go first, and a master's after its users.
  void let_go() {
    workers.clear();
    for (auto& state : devices) {
      state->master.reset();
      for (void* host : state->pins) state->device->unpin(host);
    }
  }

  // What is left at the end of the process stays as it is.
  struct All {
    std::mutex mutex;
    std::vector<Kept> runs;
  };
  static All& all() {
    static auto* made = new All();
    return *made;
  }
};

size_t kept_runs() {
  Runtime::Kept::All& all = Runtime::Kept::all();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.runs, [](Runtime::Kept& run) {
    const bool stopped = run.stop();
    if (stopped) run.let_go();
    return stopped;
  });
  return all.runs.size();
}

// Waits until the device is done with what it was given. Errors: it is not.
Result<void> Runtime::stop_device(DeviceState& state, size_t index, const std::vector<const WorkerDevice*>& workers,
                                  uint64_t limit_ns) {
  Result<void> result;
  const auto stop = [&](auto& what) {
    // One that does not stop says enough of the device.
    if (auto ok = what.stop(result.ok() ? limit_ns : 0); !ok && result.ok()) result = std::move(ok);
  };
  if (state.master != nullptr) stop(*state.master);
  for (const WorkerDevice* worker : workers) {
    if (worker->index != index) continue;
    for (const auto* channels : {&worker->ipv4, &worker->others}) {
      for (const auto& channel : *channels) {
        if (channel != nullptr) stop(*channel);
      }
    }
  }
  return result;
}

// No worker has a batch, and none gets one. Once.
void Runtime::stop_devices() {
  if (stopped_) return;
  stopped_ = true;
  std::vector<const WorkerDevice*> workers;
  for (const auto& worker : workers_) workers.push_back(&worker->device());
  for (size_t d = 0; d < devices_.size(); ++d) {
    DeviceState& state = *devices_[d];
    const Result<void> result = stop_device(state, d, workers, kStopLimitNs);
    if (result.ok()) continue;
    const std::lock_guard lock(state.mutex);
    state.report.still_running = true;
    if (state.report.failure.empty()) state.report.failure = result.error().message;
  }
}

Runtime::~Runtime() {
  stop_devices();
  Kept run;
  for (auto& worker : workers_) run.workers.push_back(worker->release_device());
  run.devices = std::move(devices_);
  run.jobs = std::move(jobs_);
  run.set_aside = std::move(set_aside_);
  if (std::none_of(run.devices.begin(), run.devices.end(), [](const auto& d) { return d->report.still_running; })) {
    // Before the tables that a device was reading (publisher_).
    run.let_go();
    return;
  }
  Kept::All& all = Kept::all();
  const std::lock_guard lock(all.mutex);
  all.runs.push_back(std::move(run));
}

// Channels of every worker to its device.
Result<void> Runtime::open_channels() {
  const DeviceOptions& d = options_.device;
  offloads_ = plan_offloads(plan_, router_, d.record_choice(), options_.count_hits);
  for (const auto& device : d.devices) {
    auto state = std::make_unique<DeviceState>();
    state->device = device;
    state->report.info = device->info();
    if (d.threading == DeviceThreading::kMaster) {
      state->master = std::make_unique<MasterThread>(*device, static_cast<unsigned>(workers_.size()));
    }
    devices_.push_back(std::move(state));
  }
  // Elements that keep state from batch to batch, and packets that go in circles, must see batches one after another.
  bool one_by_one = false;
  for (size_t n = 0; n < plan_.nodes.size(); ++n) {
    for (const PlanTarget& exit : plan_.nodes[n].exits) one_by_one |= exit.node != ~0u && exit.node <= n;
  }
  for (const auto& element : router_.elements) {
    if (element->kind() == ElementKind::kHost && element->make_state() != nullptr) one_by_one = true;
  }
  ChannelOptions options = d.channel(std::max<uint32_t>(options_.batch, 256));
  if (one_by_one) options.flights = 1;
  // A worker's share of a batch is what its flights hold.
  options.busy_records = std::max<uint32_t>(1, options_.batch / static_cast<uint32_t>(workers_.size()) / 2);
  auto open = [&](DeviceState& state, size_t w, size_t line,
                  const RecordShape& shape) -> Result<std::unique_ptr<RecordChannel>> {
    if (state.master != nullptr) {
      return state.master->channel(static_cast<unsigned>(w), static_cast<uint32_t>(line), shape, options);
    }
    auto channel = Channel::create(*state.device, shape, options);
    if (!channel) return std::move(channel).error();
    return std::unique_ptr<RecordChannel>(std::move(*channel));
  };
  for (size_t w = 0; w < workers_.size(); ++w) {
    WorkerDevice worker;
    worker.index = static_cast<unsigned>(w % devices_.size());
    worker.offloads = &offloads_;
    worker.flights = options.flights;
    DeviceState& state = *devices_[worker.index];
    worker.pinned = &state.pinned;
    worker.ipv4.resize(plan_.nodes.size());
    worker.others.resize(plan_.nodes.size());
    for (size_t n = 0; n < plan_.nodes.size(); ++n) {
      const Offload& offload = offloads_[n];
      if (!offload.on_device) continue;
      RecordShape shape = offload.shape;
      if (offload.keys) shape.kind = RecordKind::kKey4;
      auto channel = open(state, w, 2 * n, shape);
      if (!channel) return std::move(channel).error();
      worker.ipv4[n] = std::move(*channel);
      if (!offload.keys) continue;
      shape.kind = RecordKind::kKey6;
      channel = open(state, w, 2 * n + 1, shape);
      if (!channel) return std::move(channel).error();
      worker.others[n] = std::move(*channel);
    }
    if (auto ok = open_pools(*state.device, options, worker); !ok) return ok;
    workers_[w]->use_device(std::move(worker));
  }
  for (auto& state : devices_) {
    if (state->master == nullptr) continue;
    if (auto ok = state->master->start(); !ok) return ok;
  }
  return {};
}

// Whether frames are copied to a pool on the device. Rings have no copies around them: their records name host memory.
bool Runtime::pooled() const {
  return options_.device.transport == Transport::kCommPool && options_.device.mode == DeviceMode::kLaunch;
}

// Room for the frames of each flight, on both sides, where some segment's records are addresses.
Result<void> Runtime::open_pools(Device& device, const ChannelOptions& options, WorkerDevice& worker) {
  bool addresses = false;
  for (const Offload& o : offloads_) addresses |= o.on_device && !o.keys && o.shape.kind == RecordKind::kAddress;
  if (!pooled() || !addresses) return {};
  // A batch of usual frames fits; what does not stays on the host.
  const size_t bytes = (size_t{1} << 16) + size_t{options_.batch} * 2048;
  for (uint32_t f = 0; f < options.flights; ++f) {
    auto host = device.allocate(MemorySpace::kStaging, bytes);
    if (!host) return std::move(host).error();
    auto there = device.allocate(MemorySpace::kDevice, bytes);
    if (!there) return std::move(there).error();
    worker.pools.push_back({std::move(*host), std::move(*there)});
  }
  return {};
}

void Runtime::prepare(Snapshot& snapshot) {
  if (ledger_ != nullptr) attach_hits(snapshot, *ledger_);
  if (!devices_.empty()) make_resident(snapshot);
}

// Puts a generation into the memory of every device before it becomes current.
void Runtime::make_resident(Snapshot& snapshot) {
  // Program slots take turns: the generation before last must have come home.
  publisher_.drain_retired();
  const uint32_t parity = ++loads_ & 1;
  snapshot.residents.resize(devices_.size());
  for (size_t d = 0; d < devices_.size(); ++d) {
    DeviceState& state = *devices_[d];
    auto resident = sluice::make_resident(*state.device, snapshot, plan_, offloads_);
    Result<void> result;
    if (!resident) {
      result = std::move(resident).error();
    } else {
      (*resident)->parity = parity;
      for (const auto& worker : workers_) {
        if (worker->device().index != d) continue;
        for (size_t n = 0; n < plan_.nodes.size(); ++n) {
          for (const auto* channels : {&worker->device().ipv4, &worker->device().others}) {
            RecordChannel* channel = (*channels)[n].get();
            if (channel == nullptr || !result.ok()) continue;
            result = channel->install((*resident)->programs[n], parity);
          }
        }
      }
    }
    const std::lock_guard lock(state.mutex);
    if (!result.ok()) {
      ++state.report.refused_generations;
      if (state.report.failure.empty()) state.report.failure = result.error().message;
      continue;
    }
    state.report.resident_bytes = (*resident)->bytes;
    state.report.uploaded_bytes += (*resident)->uploaded_bytes;
    snapshot.residents[d] = std::move(*resident);
  }
}

// Lets devices reach the frames of a batch, where some segment's records are addresses.
void Runtime::pin(Batch& batch) {
  bool addresses = false;
  for (const Offload& o : offloads_) addresses |= o.on_device && !o.keys && o.shape.kind == RecordKind::kAddress;
  if (!addresses || pooled()) return;
  const std::span<std::byte> arena = batch.arena();
  for (auto& state : devices_) {
    auto device = state->device->pin(arena.data(), arena.size());
    if (!device) {
      // Its frames stay on the host then.
      const std::lock_guard lock(state->mutex);
      if (state->report.failure.empty()) state->report.failure = device.error().message;
      continue;
    }
    state->pinned.add(arena.data(), arena.size(), static_cast<std::byte*>(*device));
    state->pins.push_back(arena.data());
  }
}

Result<std::unique_ptr<Runtime>> Runtime::create(const Router& router, const Plan& plan, const RunOptions& options) {
  if (options.workers == 0 || options.workers > 256) {
    return Error(fmt::format("{} workers is out of range", options.workers), "use 1 to 256");
  }
  if (options.batch == 0 || options.batch > Batch::kMaxPackets) {
    return Error(fmt::format("a batch of {} packets is out of range", options.batch),
                 fmt::format("use 1 to {}", Batch::kMaxPackets));
  }
  (void)kept_runs();
  if (auto ok = check_files(router); !ok) return std::move(ok).error();
  std::unique_ptr<Runtime> runtime(new Runtime(router, plan, options));
  Error errors;
  auto note = [&](unsigned e, const Error& error) {
    Diagnostic d = router.elements[e]->diagnostic(error.message);
    d.suggestion = error.hint;
    errors.diagnostics.push_back(std::move(d));
  };
  FrameCache own;
  for (const PlanSource& s : plan.sources) {
    auto source = open_source(router.elements[s.element]->port(), options.frames != nullptr ? *options.frames : own,
                              options.inputs);
    if (!source) {
      note(s.element, source.error());
      continue;
    }
    runtime->sources_.push_back(std::move(*source));
  }
  std::vector<LinkType> links;
  for (const auto& source : runtime->sources_) links.push_back(source->link());
  for (unsigned e : plan.sinks) {
    const PortSpec spec = router.elements[e]->port();
    auto sink = open_sink(spec, sink_link(router, e, links));
    if (!sink) {
      note(e, sink.error());
      continue;
    }
    runtime->sinks_.push_back(std::move(*sink));
    runtime->sink_counters_.push_back({router.elements[e]->name, spec.path});
  }
  if (!errors.diagnostics.empty()) {
    errors.message =
        fmt::format("{} port{} cannot be opened", errors.diagnostics.size(), errors.diagnostics.size() == 1 ? "" : "s");
    return errors;
  }
  runtime->source_done_.resize(runtime->sources_.size());
  if (!plan.sources.empty()) runtime->turn_left_ = source_turn(router.elements[plan.sources[0].element]->port());
  runtime->sizer_ = BatchSizer(runtime->sources_.size() == 1 ? options.latency_target_ns : 0, options.batch,
                               std::max(options.least_batch, BatchSizer::kSmallest));
  if (!plan.ordered.empty()) {
    runtime->ordered_ = std::make_unique<OrderedNodes>(plan, router, options.workers);
    if (const uint64_t delayed = runtime->ordered_->delayed()) {
      const auto room = static_cast<uint32_t>(std::min<uint64_t>(delayed, EgressWheel::kMostPackets));
      for (const auto& sink : runtime->sinks_)
        runtime->wheels_.push_back(sink != nullptr ? std::make_unique<EgressWheel>(room) : nullptr);
    }
  }
  for (unsigned w = 0; w < options.workers; ++w)
    runtime->workers_.push_back(std::make_unique<Worker>(plan, router, w, options.fast_path && !options.ended));
  if (!options.device.devices.empty()) {
    if (auto ok = runtime->open_channels(); !ok) return std::move(ok).error();
  }
  if (options.count_hits) runtime->ledger_ = std::make_unique<HitLedger>(options.workers);
  if (options.qos != nullptr) runtime->make_egress_qos();
  if (options.live) runtime->live_ = std::make_unique<Live>(*runtime);
  runtime->publisher_.set_prepare([made = runtime.get()](Snapshot& snapshot) { made->prepare(snapshot); });
  return runtime;
}

// Whether the next read returns at once: nothing is to wait behind one that does not.
bool Runtime::ready() {
  return source_done_[next_source_] || read_ >= options_.max_packets || sources_[next_source_]->ready();
}

// Before a read that waits: whoever reads an output gets what there is.
Result<void> Runtime::flush_sinks() {
  Result<void> result;
  for (const auto& sink : sinks_) {
    if (sink == nullptr) continue;
    if (auto ok = sink->flush(); !ok && result.ok()) result = std::move(ok);
  }
  return result;
}

// Fills the job with the next batch, sources in turn. False when every source is done.
Result<bool> Runtime::read(Job& job) {
  while (read_ < options_.max_packets) {
    if (options_.stopped()) {
      interrupted_ = true;
      return false;
    }
    size_t tried = 0;
    while (tried < sources_.size() && source_done_[next_source_]) {
      next_source_ = (next_source_ + 1) % sources_.size();
      ++tried;
    }
    if (tried == sources_.size()) return false;
    if (job.given_up()) {
      if (auto ok = exchange_frames(job); !ok) return std::move(ok).error();
    }
    job.source = static_cast<unsigned>(next_source_);
    job.started_ns = now_ns();
    job.round = sizer_.round();
    const bool turns = sources_.size() > 1;
    const auto left = static_cast<uint32_t>(std::min<uint64_t>(options_.max_packets - read_, sizer_.limit()));
    job.batch.set_limit(turns ? std::min(left, turn_left_) : left);
    for (const JobShare& share : job.shares) job.batch.clear_annotations(share.annotated);
    if (auto ok = sources_[next_source_]->read(job.batch); !ok) {
      if (options_.stopped()) continue;
      damaged_ = true;
      return std::move(ok).error();
    }
    const bool done = job.batch.size() == 0;
    if (done) source_done_[next_source_] = true;
    if (turns) turn_left_ -= job.batch.size();
    if (done || turn_left_ == 0) {
      next_source_ = (next_source_ + 1) % sources_.size();
      turn_left_ = source_turn(router_.elements[plan_.sources[next_source_].element]->port());
    }
    if (done) continue;
    read_ += job.batch.size();
    for (JobShare& share : job.shares) share.clear();
    if (job.ordered != nullptr) job.ordered->begin(batches_++);
    if (!wheels_.empty()) job.batch.clear_departures();
    if (options_.ended) follow(job);
    steer(job);
    return true;
  }
  return false;
}

// Makes room for what becomes of the packets of a batch that was read, and keeps them as they came.
void Runtime::follow(Job& job) {
  const uint32_t n = job.batch.size();
  job.fates.assign(n, {});
  for (JobShare& share : job.shares) share.fates = job.fates.data();
  if (!options_.keeps_frames) return;
  job.came.clear();
  job.frames.clear();
  for (uint32_t i = 0; i < n; ++i) {
    const Extent& extent = job.batch.extent(i);
    const uint8_t* frame = job.batch.frame(i) + extent.data;
    const uint32_t bytes = job.batch.data_length(i);
    job.came.push_back({job.frames.size(), bytes, extent.wire_end - static_cast<uint32_t>(extent.data)});
    job.frames.insert(job.frames.end(), frame, frame + bytes);
  }
}

// What left by a sink has its rule and its next hop where it left them.
void Runtime::tell_ended(const Job& job) {
  PacketEnd packet;
  packet.snapshot = job.snapshot;
  for (uint32_t i = 0; i < job.batch.size(); ++i) {
    packet.number = committed_ + i + 1;
    packet.fate = job.fates[i];
    if (packet.fate.reason == DropReason::kNone) {
      packet.fate.rule = job.batch.annotation(i).rule;
      packet.fate.next_hop = job.batch.annotation(i).next_hop;
    }
    packet.timestamp_ns = job.batch.timestamp_ns(i);
    if (options_.keeps_frames) {
      packet.frame = {job.frames.data() + job.came[i].at, job.came[i].bytes};
      packet.wire_bytes = job.came[i].wire_bytes;
    }
    options_.ended(packet);
  }
}

// A device that was given up with frames of this batch may still write into them: the next packets lie elsewhere. That
// is not pinned, as to pin may wait for this very device; so no device reaches it, none is given up with frames there,
// and a job sets one arena aside at most.
Result<void> Runtime::exchange_frames(Job& job) {
  auto old = job.batch.exchange_arena();
  if (!old) return std::move(old).error();
  set_aside_.push_back(std::move(*old));
  for (JobShare& share : job.shares) share.given_up = false;
  return {};
}

void Runtime::steer(Job& job) {
  const uint32_t n = job.batch.size();
  const auto workers = static_cast<uint32_t>(workers_.size());
  if (workers == 1) {
    job.shares[0].packets.fill(n);
    return;
  }
  for (JobShare& share : job.shares) share.packets.clear();
  Headers headers;
  for (uint32_t i = 0; i < n; ++i) {
    const Extent& e = job.batch.extent(i);
    const bool ip = parse_ethernet(job.batch.frame(i), e.end, e.wire_end, headers) == ParseStatus::kOk;
    // ECMP hashes with another seed, so the two choices stay independent.
    const uint32_t w = ip ? static_cast<uint32_t>(uint64_t{flow_hash(headers.key, 0x51u)} * workers >> 32) : 0;
    job.batch.worker(i) = static_cast<uint16_t>(w);
    job.shares[w].packets.add(i);
  }
}

// Counts packets of a batch that left by a sink; `rows` is used up.
void Runtime::count_sent(size_t s, Batch& batch, Selection& rows) {
  RunReport::Sink& counters = sink_counters_[s];
  const BatchView view = batch.view();
  PortCounters* ports = ports_.data();
  if (qos_ != nullptr) {
    const EgressQos::Counted most = qos_->count_noted(s, batch, rows);
    counters.packets += most.packets;
    counters.bytes += most.bytes;
    ports[most.port].packets += most.packets;
    ports[most.port].bytes += most.bytes;
  }
  for (uint32_t w = 0; w * 64 < view.count; ++w) {
    const uint64_t bits = rows.word(w);
    if (bits == 0) continue;
    const auto packets = static_cast<uint64_t>(std::popcount(bits));
    counters.packets += packets;
    if (qos_ != nullptr) qos_->count(s, batch, w, bits);
    const uint64_t bytes = batch.bytes(rows, w);
    counters.bytes += bytes;
    // All have one port, or the first and the last most often show that they have not. Where they have, a counter that
    // each reads, adds to and writes would make each wait for the one before.
    const uint16_t* port = view.port + w * 64;
    if (bits == ~uint64_t{0} && port[0] == port[63]) {
      uint16_t differ = 0;
      for (uint32_t i = 0; i < 64; ++i) differ |= static_cast<uint16_t>(port[i] ^ port[0]);
      if (differ == 0) {
        ports[port[0]].packets += packets;
        ports[port[0]].bytes += bytes;
        continue;
      }
    }
    for (uint64_t b = bits; b != 0; b &= b - 1) {
      const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(b));
      ++ports[view.port[i]].packets;
      ports[view.port[i]].bytes += batch.data_length(i);
    }
  }
}

// Writes to a sink what may leave it; what cannot be written is counted as such.
void Runtime::write_out(size_t s, std::vector<TxRecord>& records, Result<void>& result) {
  if (records.empty()) return;
  size_t written = 0;
  if (result.ok()) result = sinks_[s]->write(records, written);
  RunReport::Sink& counters = sink_counters_[s];
  for (size_t i = 0; i < written; ++i) {
    counters.bytes += records[i].captured;
    PortCounters& port = ports_[records[i].port];
    ++port.packets;
    port.bytes += records[i].captured;
  }
  counters.packets += written;
  commit_stats_.elements[plan_.sinks[s]].drops[static_cast<size_t>(DropReason::kOutputFailed)] +=
      records.size() - written;
}

// Packets that come to a sink, in their order: with classes of service they may wait there.
void Runtime::send(size_t s, std::vector<TxRecord>& records, Result<void>& result) {
  if (qos_ == nullptr) return write_out(s, records, result);
  if (!qos_->timed()) {
    for (const TxRecord& record : records) qos_->count(s, record);
    return write_out(s, records, result);
  }
  departing_.clear();
  for (const TxRecord& record : records) qos_->pass(s, record, departing_);
  write_out(s, departing_, result);
  qos_->forget();
}

void Runtime::make_egress_qos() {
  std::vector<EgressQos::SinkSpec> sinks;
  for (size_t s = 0; s < sinks_.size(); ++s) {
    sinks.push_back({sink_counters_[s].element, sinks_[s] != nullptr && sinks_[s]->reads_frames(),
                     &commit_stats_.elements[plan_.sinks[s]].drops});
  }
  qos_ = std::make_unique<EgressQos>(*options_.qos, sinks);
}

Result<void> Runtime::change_qos(std::function<Result<void>(EgressQos&)> change) {
  if (qos_ == nullptr || live_ == nullptr)
    return Error("this run has no classes of service", "start it with --qos FILE");
  auto result = std::make_shared<Result<void>>();
  {
    const std::lock_guard lock(live_->mutex);
    live_->change = [result, change = std::move(change)](EgressQos& qos) { *result = change(qos); };
  }
  if (!live_->commit.look(std::chrono::seconds(1)))
    return Error("a thread of the run did not answer within a second", "see 'sluice show qos' for the result");
  return std::move(*result);
}

// The input is at its end, or an output failed: what waits for its time leaves.
Result<void> Runtime::drain_wheels() {
  Gated gate(live_ != nullptr ? &live_->commit : nullptr);
  Result<void> result;
  for (size_t s = 0; s < wheels_.size(); ++s) {
    if (wheels_[s] == nullptr) continue;
    leaving_.clear();
    wheels_[s]->drain(leaving_);
    send(s, leaving_, result);
    wheels_[s]->forget();
  }
  for (size_t s = 0; qos_ != nullptr && s < sinks_.size(); ++s) {
    if (sinks_[s] == nullptr) continue;
    departing_.clear();
    qos_->drain(s, departing_);
    write_out(s, departing_, result);
    qos_->forget();
  }
  return result;
}

Result<void> Runtime::commit(Job& job) {
  const TraceRange trace("commit");
  Result<void> result;
  const bool timed = qos_ != nullptr && qos_->timed();
  if (!limiters_.empty()) {
    hold_to_rates(job.shares, limited_, [&](const TxRecord& record) {
      Limiter& limiter = limiters_[record.limiter - 1u];
      if (limiter.admit(record.timestamp_ns)) return true;
      ++commit_stats_.elements[limiter.element].drops[static_cast<size_t>(DropReason::kIcmpRateLimited)];
      return false;
    });
  }
  for (size_t s = 0; s < sinks_.size(); ++s) {
    if (sinks_[s] == nullptr) continue;
    const bool sees_packets = timed || sinks_[s]->reads_frames();
    merged_.clear();
    uint64_t failed = 0;  // not written, because an output failed
    for (const JobShare& share : job.shares) {
      merged_.insert(merged_.end(), share.sent[s].made.begin(), share.sent[s].made.end());
    }
    const bool made = !merged_.empty();
    Selection rows = job.shares[0].sent[s].rows;
    for (size_t w = 1; w < job.shares.size(); ++w) rows.merge(job.shares[w].sent[s].rows);
    // Packets that no element made are in order already, and a sink that does not read them need not see them.
    if (sees_packets) {
      rows.for_each([&](uint32_t i) { merged_.push_back(tx_record(job.batch, i, 0)); });
    } else if (result.ok()) {
      count_sent(s, job.batch, rows);
    } else {
      failed += rows.count();
    }
    if (made) {
      std::sort(merged_.begin(), merged_.end(), [](const TxRecord& x, const TxRecord& y) {
        return x.order != y.order ? x.order < y.order : x.sequence < y.sequence;
      });
    }
    if (!wheels_.empty() && sees_packets) {
      leaving_.clear();
      for (const TxRecord& record : merged_) {
        wheels_[s]->pass(record, record.sequence == 0 ? job.batch.departure_ns(record.order) : 0, leaving_);
      }
      send(s, leaving_, result);
      wheels_[s]->forget();
    } else {
      send(s, merged_, result);
    }
    commit_stats_.elements[plan_.sinks[s]].drops[static_cast<size_t>(DropReason::kOutputFailed)] += failed;
  }
  prints_.clear();
  for (const JobShare& share : job.shares) {
    for (size_t i = 0; i < share.print_count; ++i) prints_.push_back(&share.prints[i]);
  }
  if (!prints_.empty() && options_.print) {
    std::sort(prints_.begin(), prints_.end(), [](const PrintRecord* a, const PrintRecord* b) { return *a < *b; });
    for (const PrintRecord* p : prints_) options_.print(p->text);
  }
  if (options_.ended) tell_ended(job);
  last_generation_ = job.snapshot->generation;
  Publisher::release(job.snapshot);
  job.snapshot = nullptr;
  const uint64_t now = now_ns();
  commit_stats_.egress.record(now - job.done_ns.load(std::memory_order_relaxed));
  commit_stats_.through.record(now - job.started_ns, job.batch.size());
  sizer_.took(job.done_ns.load(std::memory_order_relaxed) - job.started_ns, job.batch.size(), job.round);
  committed_ += job.batch.size();
  if (options_.progress) options_.progress(committed_);
  return result;
}

Result<void> Runtime::make_jobs(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    auto batch = Batch::create(options_.batch, std::max<size_t>(size_t{1} << 21, size_t{options_.batch} * 2048));
    if (!batch) return std::move(batch).error();
    jobs_.push_back(std::make_unique<Job>());
    jobs_.back()->batch = std::move(*batch);
    jobs_.back()->shares.resize(workers_.size());
    if (ordered_ != nullptr) {
      jobs_.back()->ordered = std::make_unique<OrderedPass>(*ordered_);
      for (JobShare& share : jobs_.back()->shares) share.ordered = jobs_.back()->ordered.get();
    }
    if (qos_ != nullptr) jobs_.back()->batch.keep_egress_notes();
    pin(jobs_.back()->batch);
  }
  return {};
}

// One thread does all: with a device it has several batches on their way.
Result<void> Runtime::run_inline() {
  Worker& worker = *workers_[0];
  const size_t depth = worker.depth();
  if (auto ok = make_jobs(depth); !ok) return ok;
  const std::vector<std::unique_ptr<Job>>& jobs = jobs_;
  QsbrReader reader;
  Gated gate(live_ != nullptr ? &live_->workers[0]->gate : nullptr);
  Gated commit_gate(live_ != nullptr ? &live_->commit : nullptr);
  Result<void> result;
  bool more = true;
  TraceSpan waiting;
  for (uint64_t made = 0, done = 0; more || done < made;) {
    const bool comes = more && made - done < depth && ready();
    if (more && made == done && !comes) {
      if (auto ok = flush_sinks(); !ok) {
        output_failed(result, std::move(ok));
        more = false;
        continue;
      }
    }
    if (comes || (more && made == done)) {
      Job& job = *jobs[made % depth];
      if (live_ != nullptr) {
        // An input may let us wait.
        reader.offline();
        gate.leave();
        commit_gate.leave();
      }
      auto got = read(job);
      if (live_ != nullptr) {
        commit_gate.enter();
        gate.enter();
        reader.online();
      }
      if (!got) {
        if (result.ok()) result = std::move(got).error();
        more = false;
        continue;
      }
      more = *got;
      if (!more) continue;
      job.snapshot = publisher_.acquire();
      if (worker.stats().batches % WorkerStats::kTimed == 0) worker.stats().wait.record(now_ns() - job.started_ns);
      worker.expect(sources_[next_source_]->next());
      worker.start(*job.snapshot, job.batch, job.shares[0], job.source);
      ++made;
    }
    if (!worker.finish()) {
      if (!comes) waiting.begin("wait");
    } else {
      waiting.end();
      Job& job = *jobs[done % depth];
      const uint64_t now = now_ns();
      worker.stats().latency.record(now - job.started_ns, job.batch.size());
      job.done_ns.store(now, std::memory_order_relaxed);
      ++done;
      if (auto ok = commit(job); !ok) {
        output_failed(result, std::move(ok));
        more = false;
      }
    }
    reader.quiescent();
    gate.poll();
    commit_gate.poll();
  }
  return result;
}

// The calling thread reads and commits; the workers each take their share of every job, in order.
Result<void> Runtime::run_threads() {
  const uint32_t depth = workers_[0]->depth();
  const size_t ring = 2 * workers_.size() + 4 + depth;
  // A futex costs several microseconds; a batch is often shorter than that. Spin first where every thread has a core of
  // its own.
  const int spins = std::thread::hardware_concurrency() > workers_.size() ? 4000 : 0;
  if (auto ok = make_jobs(ring); !ok) return ok;
  const std::vector<std::unique_ptr<Job>>& jobs = jobs_;
  constexpr uint64_t kClosed = uint64_t{1} << 63;
  std::atomic<uint64_t> published{0};  // jobs handed out; kClosed is set when no more will come
  std::vector<std::jthread> threads;
  threads.reserve(workers_.size());
  // However this ends, the workers are told that no more jobs come.
  const ScopeExit close([&] {
    published.fetch_or(kClosed, std::memory_order_release);
    published.notify_all();
  });
  for (size_t w = 0; w < workers_.size(); ++w) {
    auto thread = start_thread([&, w] {
      Worker& worker = *workers_[w];
      Gated gate(live_ != nullptr ? &live_->workers[w]->gate : nullptr);
      uint64_t next = 0;  // job to start
      uint64_t done = 0;  // job to finish
      TraceSpan waiting;
      while (true) {
        gate.poll();
        uint64_t seen = published.load(std::memory_order_acquire);
        if ((seen & ~kClosed) == next && next == done) {
          if ((seen & kClosed) != 0) return;
          for (int i = 0; i < spins && (seen = published.load(std::memory_order_acquire)) == next; ++i) cpu_pause();
          if (seen == next) {
            gate.leave();
            published.wait(seen, std::memory_order_acquire);
            gate.enter();
          }
          continue;
        }
        if ((seen & ~kClosed) != next && next - done < worker.depth()) {
          waiting.end();
          Job& job = *jobs[next % ring];
          if (worker.stats().batches % WorkerStats::kTimed == 0) worker.stats().wait.record(now_ns() - job.started_ns);
          worker.start(*job.snapshot, job.batch, job.shares[w], job.source);
          ++next;
        }
        if (!worker.finish()) {
          waiting.begin("wait");
          spin_once(spins != 0);
          continue;
        }
        waiting.end();
        Job& job = *jobs[done % ring];
        const uint64_t now = now_ns();
        worker.stats().latency.record(now - job.started_ns, job.shares[w].packets.count());
        // The last of the workers counts; the others' times are a little earlier at most.
        job.done_ns.store(now, std::memory_order_relaxed);
        ++done;
        if (job.remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) job.remaining.notify_one();
      }
    });
    if (!thread) return std::move(thread).error();
    threads.push_back(std::move(*thread));
  }
  QsbrReader reader;
  Gated gate(live_ != nullptr ? &live_->commit : nullptr);
  Result<void> result;
  uint64_t made = 0;
  uint64_t done = 0;
  bool more = true;
  while (more || done < made) {
    const bool comes = more && ready();
    while (done < made) {
      Job& job = *jobs[done % ring];
      uint32_t left = job.remaining.load(std::memory_order_acquire);
      if (left != 0 && comes && more && made - done < ring) break;
      if (left != 0) {
        reader.offline();
        gate.leave();
        for (int i = 0; i < spins && job.remaining.load(std::memory_order_acquire) != 0; ++i) cpu_pause();
        while ((left = job.remaining.load(std::memory_order_acquire)) != 0)
          job.remaining.wait(left, std::memory_order_acquire);
        gate.enter();
        reader.online();
      }
      if (auto ok = commit(job); !ok) {
        output_failed(result, std::move(ok));
        more = false;
      }
      ++done;
    }
    reader.quiescent();
    gate.poll();
    if (!more || made - done == ring) continue;
    if (!comes) {
      if (auto ok = flush_sinks(); !ok) {
        output_failed(result, std::move(ok));
        more = false;
        continue;
      }
    }
    Job& job = *jobs[made % ring];
    if (live_ != nullptr) {
      reader.offline();
      gate.leave();
    }
    auto got = read(job);
    if (live_ != nullptr) {
      gate.enter();
      reader.online();
    }
    if (!got) {
      if (result.ok()) result = std::move(got).error();
      more = false;
    } else {
      more = *got;
    }
    if (!more) continue;
    job.snapshot = publisher_.acquire();
    job.remaining.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
    published.store(++made, std::memory_order_release);
    published.notify_all();
  }
  return result;
}

Result<void> Runtime::run(RunReport& report) {
  if (publisher_.current() == nullptr) return Error("no generation was published before the run");
  started_ns_ = now_ns();
  Result<void> result = workers_.size() == 1 ? run_inline() : run_threads();
  if (auto drained = drain_wheels(); !drained) output_failed(result, std::move(drained));
  // The time is that of the packets: how long a disk takes to keep what it was given is not theirs.
  ended_ns_ = now_ns();
  seconds_ = static_cast<double>(ended_ns_ - started_ns_) * 1e-9;
  if (result.ok() || damaged_) {
    ending_ = damaged_ || (interrupted_ && !options_.stop_is_end) ? Ending::kPartial : Ending::kWhole;
    std::vector<PacketSink*> sinks;
    for (const auto& sink : sinks_) sinks.push_back(sink.get());
    // Not in the counters, at which another thread may be looking.
    for (size_t s = 0; s < sinks.size(); ++s) placed_.push_back(place_of(sinks[s], sink_counters_[s].path, ending_));
    if (auto ok = end_outputs(sinks, ending_); !ok) output_failed(result, std::move(ok));
  }
  sources_.clear();
  sinks_.clear();
  if (result.ok() && options_.hold) options_.hold();
  stop_devices();
  fill(report);
  return result;
}

Result<void> Runtime::look(RunReport& report) {
  constexpr auto kLimit = std::chrono::seconds(1);
  const auto late = [] { return Error("a thread of the run did not answer within a second", "ask again"); };
  report = {};
  for (auto& worker : live_->workers) {
    if (!worker->gate.look(kLimit)) return late();
    report.totals.add(worker->stats);
  }
  if (!live_->commit.look(kLimit)) return late();
  report.totals.add(live_->commit_stats);
  const uint64_t started = started_ns_, ended = ended_ns_ != 0 ? ended_ns_.load() : now_ns();
  report.qos = live_->qos;
  sum_up(report, live_->sinks, live_->generation, started == 0 ? 0 : static_cast<double>(ended - started) * 1e-9);
  return {};
}

// What follows from the totals.
void Runtime::sum_up(RunReport& report, const std::vector<RunReport::Sink>& sinks, uint64_t generation,
                     double seconds) {
  report.packets_in = report.totals.packets_in;
  report.bytes_in = report.totals.bytes_in;
  report.generated = report.totals.generated;
  for (const ElementCounters& e : report.totals.elements) {
    for (size_t r = 0; r < kDropReasons; ++r) {
      report.drops[r] += e.drops[r];
      report.dropped += e.drops[r];
    }
  }
  for (size_t s = 0; s < sinks.size(); ++s) {
    if (router_.elements[plan_.sinks[s]]->port().type == PortSpec::Type::kNull) continue;
    report.sinks.push_back(sinks[s]);
    report.packets_out += sinks[s].packets;
    report.bytes_out += sinks[s].bytes;
  }
  report.seconds = seconds;
  report.generation = generation;
  report.has_classes = qos_ != nullptr;
  report.workers = static_cast<unsigned>(workers_.size());
}

// What an output says comes before what an input says: then nothing appears.
void Runtime::output_failed(Result<void>& result, Result<void> why) {
  if (result.ok() || damaged_) result = std::move(why);
  damaged_ = false;
  output_failed_ = true;
  ending_ = Ending::kDiscard;
}

void Runtime::fill(RunReport& report) {
  report = {};
  for (const auto& worker : workers_) report.totals.add(worker->stats());
  report.totals.add(commit_stats_);
  if (qos_ != nullptr) report.qos = qos_->report();
  std::vector<RunReport::Sink> sinks = sink_counters_;
  for (size_t s = 0; s < placed_.size(); ++s) sinks[s].path = placed_[s];
  sum_up(report, sinks, last_generation_, seconds_);
  report.interrupted = interrupted_;
  report.partial = ending_ == Ending::kPartial;
  report.output_failed = output_failed_;
  for (size_t p = 0; p < ports_.size(); ++p) {
    if (ports_[p].packets != 0) report.ports[static_cast<uint16_t>(p)] = ports_[p];
  }
  for (size_t d = 0; d < devices_.size(); ++d) {
    DeviceState& state = *devices_[d];
    const std::lock_guard lock(state.mutex);
    report.devices.push_back(state.report);
    DeviceReport& device = report.devices.back();
    device.power = state.device->power();
    if (state.master != nullptr) {
      // What the workers see is in their channels; what crossed, in the master's.
      const ChannelStats real = state.master->stats();
      device.channels.launches = real.launches;
      device.channels.switches = real.switches;
      device.channels.pushed = real.pushed;
      device.channels.bytes_in = real.bytes_in;
      device.channels.bytes_out = real.bytes_out;
      device.channels.kernel.merge(real.kernel);
      device.channels.transfer.merge(real.transfer);
      device.master_flights = real.flights;
    }
    for (const auto& worker : workers_) {
      if (worker->device().index != d) continue;
      for (const auto* channels : {&worker->device().ipv4, &worker->device().others}) {
        for (const auto& channel : *channels) {
          if (channel == nullptr) continue;
          device.channels.add(channel->final_stats());
          if (channel->failed() && device.failure.empty()) device.failure = channel->why();
        }
      }
    }
  }
  if (!devices_.empty()) report.segments.resize(plan_.nodes.size());
  for (const auto& worker : workers_) {
    for (size_t n = 0; n < worker->device_counters().size(); ++n) {
      report.segments[n].add(worker->device_counters()[n]);
      report.offload.add(worker->device_counters()[n]);
    }
    for (const FramePool& pool : worker->device().pools) {
      if (pool.given_up) report.set_aside_bytes += pool.host->size();
    }
  }
  for (const Buffer& arena : set_aside_) report.set_aside_bytes += arena.size();
  for (const auto& job : jobs_) {
    if (job->given_up()) report.set_aside_bytes += job->batch.arena().size();
  }
  report.batch.target_ns = source_done_.size() == 1 ? options_.latency_target_ns : 0;
  report.batch.limit = sizer_.limit();
  report.batch.raised = sizer_.raised();
  report.batch.lowered = sizer_.lowered();
}

}  // namespace sluice

// host only
#include "exec/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "exec/device/trace.h"
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
};

// Token bucket over the packets' own time stamps, so that results do not depend on the machine: the generic cell rate
// algorithm (ITU-T I.371), tokens counted in nanoseconds of theoretical arrival time.
struct Runtime::Limiter {
  unsigned element;
  uint64_t interval_ns;
  uint64_t tolerance_ns;
  uint64_t theoretical_ns = 0;

  bool admit(uint64_t timestamp_ns) {
    const uint64_t arrival = std::max(theoretical_ns, timestamp_ns);
    if (arrival - timestamp_ns > tolerance_ns) return false;
    theoretical_ns = arrival + interval_ns;
    return true;
  }
};

Runtime::Runtime(const Router& router, const Plan& plan, const RunOptions& options)
    : router_(router), plan_(plan), options_(options), ports_(size_t{1} << 16) {
  commit_stats_.elements.resize(router.elements.size());
  for (unsigned e : limited_elements(router)) {
    const Element::EgressRate rate = router.elements[e]->egress_rate();
    const uint64_t interval = std::max<uint64_t>(1, 1'000'000'000 / rate.per_second);
    limiters_.push_back({e, interval, interval * (std::max(1u, rate.burst) - 1)});
  }
}

Runtime::~Runtime() {
  for (auto& state : devices_) {
    if (state->master != nullptr) state->master->stop();
  }
  // Channels go before the tables that a device may still be reading (publisher_), and a master's after its users.
  workers_.clear();
  for (auto& state : devices_) {
    state->master.reset();
    for (void* host : state->pins) state->device->unpin(host);
  }
}

// Channels of every worker to its device.
Result<void> Runtime::open_channels() {
  const DeviceOptions& d = options_.device;
  const RecordChoice records =
      d.transport == Transport::kCommList || d.transport == Transport::kCommPool ? RecordChoice::kAddress : d.records;
  offloads_ = plan_offloads(plan_, router_, records);
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
    if (state->master != nullptr) state->master->start();
  }
  publisher_.set_prepare([this](Snapshot& snapshot) { make_resident(snapshot); });
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
  const size_t bytes = std::min<size_t>(size_t{8} << 20, (size_t{1} << 16) + size_t{options_.batch} * 2048);
  for (uint32_t f = 0; f < options.flights; ++f) {
    auto host = device.allocate(MemorySpace::kStaging, bytes);
    if (!host) return std::move(host).error();
    auto there = device.allocate(MemorySpace::kDevice, bytes);
    if (!there) return std::move(there).error();
    worker.pools.push_back({std::move(*host), std::move(*there)});
  }
  return {};
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
  std::unique_ptr<Runtime> runtime(new Runtime(router, plan, options));
  Error errors;
  auto note = [&](unsigned e, const Error& error) {
    Diagnostic d = router.elements[e]->diagnostic(error.message);
    d.suggestion = error.hint;
    errors.diagnostics.push_back(std::move(d));
  };
  for (const PlanSource& s : plan.sources) {
    auto source = open_source(router.elements[s.element]->port());
    if (!source) {
      note(s.element, source.error());
      continue;
    }
    runtime->sources_.push_back(std::move(*source));
  }
  for (unsigned e : plan.sinks) {
    const PortSpec spec = router.elements[e]->port();
    auto sink = open_sink(spec);
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
  // Sources take turns by batches: with more than one, the size of batches decides the order of packets.
  runtime->sizer_ = BatchSizer(runtime->sources_.size() == 1 ? options.latency_target_ns : 0, options.batch);
  for (unsigned w = 0; w < options.workers; ++w)
    runtime->workers_.push_back(std::make_unique<Worker>(plan, router, w, options.fast_path));
  if (!options.device.devices.empty()) {
    if (auto ok = runtime->open_channels(); !ok) return std::move(ok).error();
  }
  return runtime;
}

// Fills the job with the next batch, sources in turn. False when every source is done.
Result<bool> Runtime::read(Job& job) {
  while (read_ < options_.max_packets &&
         (options_.stop == nullptr || !options_.stop->load(std::memory_order_relaxed))) {
    size_t tried = 0;
    while (tried < sources_.size() && source_done_[next_source_]) {
      next_source_ = (next_source_ + 1) % sources_.size();
      ++tried;
    }
    if (tried == sources_.size()) return false;
    job.source = static_cast<unsigned>(next_source_);
    job.started_ns = now_ns();
    job.round = sizer_.round();
    job.batch.set_limit(sizer_.limit());
    if (auto ok = sources_[next_source_]->read(job.batch); !ok) return std::move(ok).error();
    const bool done = job.batch.size() == 0;
    if (done) source_done_[next_source_] = true;
    next_source_ = (next_source_ + 1) % sources_.size();
    if (done) continue;
    read_ += job.batch.size();
    for (JobShare& share : job.shares) share.clear();
    steer(job);
    return true;
  }
  return false;
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

Result<void> Runtime::commit(Job& job) {
  const TraceRange trace("commit");
  Result<void> result;
  for (size_t s = 0; s < sinks_.size(); ++s) {
    if (sinks_[s] == nullptr) continue;
    const std::vector<TxRecord>* records = &job.shares[0].sent[s];
    auto before = [](const TxRecord& a, const TxRecord& b) {
      return a.order != b.order ? a.order < b.order : a.sequence < b.sequence;
    };
    if (job.shares.size() > 1 || !job.shares[0].in_order[s]) {
      merged_.clear();
      for (const JobShare& share : job.shares)
        merged_.insert(merged_.end(), share.sent[s].begin(), share.sent[s].end());
      std::sort(merged_.begin(), merged_.end(), before);
      records = &merged_;
    }
    if (!limiters_.empty()) {
      if (records != &merged_) merged_.assign(records->begin(), records->end());
      std::erase_if(merged_, [&](const TxRecord& record) {
        if (record.limiter == 0) return false;
        Limiter& limiter = limiters_[record.limiter - 1u];
        if (limiter.admit(record.timestamp_ns)) return false;
        ++commit_stats_.elements[limiter.element].drops[static_cast<size_t>(DropReason::kIcmpRateLimited)];
        return true;
      });
      records = &merged_;
    }
    size_t written = 0;
    if (result.ok()) result = sinks_[s]->write(*records, written);
    RunReport::Sink& counters = sink_counters_[s];
    // Runs of one port are summed in registers.
    for (size_t i = 0; i < written;) {
      const uint16_t port = (*records)[i].port;
      uint64_t bytes = 0;
      const size_t first = i;
      for (; i < written && (*records)[i].port == port; ++i) bytes += (*records)[i].captured;
      counters.bytes += bytes;
      ports_[port].packets += i - first;
      ports_[port].bytes += bytes;
    }
    counters.packets += written;
    commit_stats_.elements[plan_.sinks[s]].drops[static_cast<size_t>(DropReason::kOutputFailed)] +=
        records->size() - written;
  }
  prints_.clear();
  for (const JobShare& share : job.shares) {
    for (size_t i = 0; i < share.print_count; ++i) prints_.push_back(&share.prints[i]);
  }
  if (!prints_.empty() && options_.print) {
    std::sort(prints_.begin(), prints_.end(), [](const PrintRecord* a, const PrintRecord* b) {
      return a->order != b->order ? a->order < b->order : a->sequence < b->sequence;
    });
    for (const PrintRecord* p : prints_) options_.print(p->text);
  }
  last_generation_ = job.snapshot->generation;
  Publisher::release(job.snapshot);
  job.snapshot = nullptr;
  commit_stats_.egress.record(now_ns() - job.done_ns.load(std::memory_order_relaxed));
  sizer_.took(job.done_ns.load(std::memory_order_relaxed) - job.started_ns, job.batch.size(), job.round);
  committed_ += job.batch.size();
  if (options_.progress) options_.progress(committed_);
  return result;
}

Result<std::vector<std::unique_ptr<Runtime::Job>>> Runtime::make_jobs(size_t count) {
  std::vector<std::unique_ptr<Job>> jobs;
  for (size_t i = 0; i < count; ++i) {
    auto batch = Batch::create(options_.batch, std::max<size_t>(size_t{1} << 20, size_t{options_.batch} * 2048));
    if (!batch) return std::move(batch).error();
    jobs.push_back(std::make_unique<Job>());
    jobs.back()->batch = std::move(*batch);
    jobs.back()->shares.resize(workers_.size());
    pin(jobs.back()->batch);
  }
  return jobs;
}

// One thread does all: with a device it has several batches on their way.
Result<void> Runtime::run_inline() {
  Worker& worker = *workers_[0];
  const size_t depth = worker.depth();
  auto made_jobs = make_jobs(depth);
  if (!made_jobs) return std::move(made_jobs).error();
  const std::vector<std::unique_ptr<Job>> jobs = std::move(*made_jobs);
  QsbrReader reader;
  Result<void> result;
  bool more = true;
  TraceSpan waiting;
  for (uint64_t made = 0, done = 0; more || done < made;) {
    if (more && made - done < depth) {
      Job& job = *jobs[made % depth];
      auto got = read(job);
      if (!got) {
        result = std::move(got).error();
        more = false;
        continue;
      }
      more = *got;
      if (!more) continue;
      job.snapshot = publisher_.acquire();
      worker.stats().wait.record(now_ns() - job.started_ns);
      worker.start(*job.snapshot, job.batch, job.shares[0], job.source);
      ++made;
    }
    if (!worker.finish()) {
      if (!more || made - done == depth) waiting.begin("wait");
    } else {
      waiting.end();
      Job& job = *jobs[done % depth];
      const uint64_t now = now_ns();
      worker.stats().latency.record(now - job.started_ns, job.batch.size());
      job.done_ns.store(now, std::memory_order_relaxed);
      ++done;
      if (auto ok = commit(job); !ok && result.ok()) {
        result = std::move(ok);
        more = false;
      }
    }
    reader.quiescent();
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
  auto made_jobs = make_jobs(ring);
  if (!made_jobs) return std::move(made_jobs).error();
  const std::vector<std::unique_ptr<Job>> jobs = std::move(*made_jobs);
  constexpr uint64_t kClosed = uint64_t{1} << 63;
  std::atomic<uint64_t> published{0};  // jobs handed out; kClosed is set when no more will come
  std::vector<std::jthread> threads;
  for (size_t w = 0; w < workers_.size(); ++w) {
    threads.emplace_back([&, w] {
      Worker& worker = *workers_[w];
      uint64_t next = 0;  // job to start
      uint64_t done = 0;  // job to finish
      TraceSpan waiting;
      while (true) {
        uint64_t seen = published.load(std::memory_order_acquire);
        if ((seen & ~kClosed) == next && next == done) {
          if ((seen & kClosed) != 0) return;
          for (int i = 0; i < spins && (seen = published.load(std::memory_order_acquire)) == next; ++i) cpu_pause();
          if (seen == next) published.wait(seen, std::memory_order_acquire);
          continue;
        }
        if ((seen & ~kClosed) != next && next - done < worker.depth()) {
          waiting.end();
          Job& job = *jobs[next % ring];
          worker.stats().wait.record(now_ns() - job.started_ns);
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
  }
  QsbrReader reader;
  Result<void> result;
  uint64_t made = 0;
  uint64_t done = 0;
  bool more = true;
  while (more || done < made) {
    while (done < made) {
      Job& job = *jobs[done % ring];
      uint32_t left = job.remaining.load(std::memory_order_acquire);
      if (left != 0 && more && made - done < ring) break;
      if (left != 0) {
        reader.offline();
        for (int i = 0; i < spins && job.remaining.load(std::memory_order_acquire) != 0; ++i) cpu_pause();
        while ((left = job.remaining.load(std::memory_order_acquire)) != 0)
          job.remaining.wait(left, std::memory_order_acquire);
        reader.online();
      }
      auto ok = commit(job);
      if (!ok && result.ok()) {
        result = std::move(ok);
        more = false;
      }
      ++done;
    }
    reader.quiescent();
    if (!more || made - done == ring) continue;
    Job& job = *jobs[made % ring];
    auto got = read(job);
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
  published.store(made | kClosed, std::memory_order_release);
  published.notify_all();
  return result;
}

Result<void> Runtime::run(RunReport& report) {
  if (publisher_.current() == nullptr) return Error("no generation was published before the run");
  const uint64_t start = now_ns();
  Result<void> result = workers_.size() == 1 ? run_inline() : run_threads();
  if (result.ok()) {
    for (auto& sink : sinks_) {
      if (sink == nullptr) continue;
      auto ok = sink->commit();
      if (!ok && result.ok()) result = std::move(ok);
    }
  }
  for (auto& state : devices_) {
    if (state->master != nullptr) state->master->stop();
  }
  sources_.clear();
  sinks_.clear();
  seconds_ = static_cast<double>(now_ns() - start) * 1e-9;
  fill(report);
  return result;
}

void Runtime::fill(RunReport& report) {
  report = {};
  for (const auto& worker : workers_) report.totals.add(worker->stats());
  report.totals.add(commit_stats_);
  report.packets_in = report.totals.packets_in;
  report.bytes_in = report.totals.bytes_in;
  report.generated = report.totals.generated;
  for (const ElementCounters& e : report.totals.elements) {
    for (size_t r = 0; r < kDropReasons; ++r) {
      report.drops[r] += e.drops[r];
      report.dropped += e.drops[r];
    }
  }
  for (size_t s = 0; s < sink_counters_.size(); ++s) {
    if (router_.elements[plan_.sinks[s]]->port().type == PortSpec::Type::kNull) continue;
    report.sinks.push_back(sink_counters_[s]);
    report.packets_out += sink_counters_[s].packets;
    report.bytes_out += sink_counters_[s].bytes;
  }
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
  for (const auto& worker : workers_) report.offload.add(worker->device_counters());
  report.seconds = seconds_;
  report.generation = last_generation_;
  report.workers = static_cast<unsigned>(workers_.size());
  report.batch.target_ns = source_done_.size() == 1 ? options_.latency_target_ns : 0;
  report.batch.limit = sizer_.limit();
  report.batch.raised = sizer_.raised();
  report.batch.lowered = sizer_.lowered();
}

}  // namespace sluice

// host only
#include "exec/device/device_set.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {

// What devices that do not stop may still read and write, and what they are waited for with.
struct DeviceSet::Kept {
  std::shared_ptr<void> memory;  // frames; they outlive the channels, by which devices are waited for
  std::vector<Offload> offloads;
  std::vector<std::unique_ptr<State>> devices;
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
  DeviceSet::Kept::All& all = DeviceSet::Kept::all();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.runs, [](DeviceSet::Kept& run) {
    const bool stopped = run.stop();
    if (stopped) run.let_go();
    return stopped;
  });
  return all.runs.size();
}

// Waits until the device is done with what it was given. Errors: it is not.
Result<void> DeviceSet::stop_device(State& state, size_t index, const std::vector<const WorkerDevice*>& workers,
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

void DeviceSet::stop(Workers workers) {
  if (stopped_) return;
  stopped_ = true;
  std::vector<const WorkerDevice*> all;
  for (const auto& worker : workers) {
    if (worker->device() != nullptr) all.push_back(&worker->device()->device());
  }
  for (size_t d = 0; d < devices_.size(); ++d) {
    State& state = *devices_[d];
    const Result<void> result = stop_device(state, d, all, kStopLimitNs);
    if (result.ok()) continue;
    const std::lock_guard lock(state.mutex);
    state.report.still_running = true;
    if (state.report.failure.empty()) state.report.failure = result.error().message;
  }
}

void DeviceSet::end(std::unique_ptr<DeviceSet> devices, Workers workers, std::shared_ptr<void> memory) {
  devices->stop(workers);
  Kept run;
  run.memory = std::move(memory);
  for (const auto& worker : workers) {
    if (worker->device() != nullptr) run.workers.push_back(worker->device()->release());
  }
  run.offloads = std::move(devices->offloads_);
  run.devices = std::move(devices->devices_);
  if (std::none_of(run.devices.begin(), run.devices.end(), [](const auto& d) { return d->report.still_running; })) {
    run.let_go();
    return;
  }
  Kept::All& all = Kept::all();
  const std::lock_guard lock(all.mutex);
  all.runs.push_back(std::move(run));
}

namespace {

// What workers take at a time is what flights hold.
uint32_t most_records(const RunOptions& options) {
  return options.priorities ? options.priorities->chunk : options.batch;
}
std::vector<Offload> offloads_of(const Router& router, const Plan& plan, const RunOptions& options) {
  return plan_offloads(plan, router, options.device.record_choice(most_records(options)), options.needs_rules(),
                       options.device.pooled());
}

}  // namespace

Result<void> DeviceSet::check_tables(const Router& router, const Plan& plan, const RunOptions& options,
                                     const Snapshot& snapshot) {
  const std::vector<Offload> offloads = offloads_of(router, plan, options);
  for (const auto& device : options.device.devices) {
    if (auto ok = sluice::check_tables(*device, snapshot, plan, offloads); !ok) return ok;
  }
  return {};
}

Result<std::unique_ptr<DeviceSet>> DeviceSet::open(const Router& router, const Plan& plan, const RunOptions& options,
                                                   Workers workers, bool counts_only) {
  std::unique_ptr<DeviceSet> set(new DeviceSet(plan, options.device));
  set->counts_only_ = counts_only;
  const uint32_t batch = most_records(options);
  set->offloads_ = offloads_of(router, plan, options);
  set->options_.mode = options.device.mode_of(set->offloads_, options.workers);
  set->options_.flights = options.device.flights_of(set->offloads_, options.workers);
  for (Offload& o : set->offloads_) {
    // Whoever follows packets asks for rules and next hops.
    if (options.ended && o.crosses_as_frames()) o.shape.key_out = 1;
  }
  if (auto ok = set->open_channels(batch, workers); !ok) {
    end(std::move(set), workers, nullptr);
    return std::move(ok).error();
  }
  return set;
}

// Channels of every worker to its device.
Result<void> DeviceSet::open_channels(uint32_t batch, Workers workers) {
  const DeviceOptions& d = options_;
  for (const auto& device : d.devices) {
    auto state = std::make_unique<State>();
    state->device = device;
    state->report.info = device->info();
    if (d.threading == DeviceThreading::kMaster) {
      state->master = std::make_unique<MasterThread>(*device, static_cast<unsigned>(workers.size()));
    }
    devices_.push_back(std::move(state));
  }
  ChannelOptions options = d.channel(std::max<uint32_t>(batch, 256));
  options.busy_records = std::max<uint32_t>(1, batch / 2);
  auto open = [&](State& state, size_t w, size_t line,
                  const RecordShape& shape) -> Result<std::unique_ptr<RecordChannel>> {
    if (state.master != nullptr) {
      return state.master->channel(static_cast<unsigned>(w), static_cast<uint32_t>(line), shape, options);
    }
    auto channel = Channel::create(*state.device, shape, options);
    if (!channel) return std::move(channel).error();
    return std::unique_ptr<RecordChannel>(std::move(*channel));
  };
  for (size_t w = 0; w < workers.size(); ++w) {
    WorkerDevice worker;
    worker.index = static_cast<unsigned>(w % devices_.size());
    worker.offloads = &offloads_;
    worker.flights = options.flights;
    State& state = *devices_[worker.index];
    worker.pinned = &state.pinned;
    worker.device = state.device.get();
    worker.frames_there = d.frames_there;
    worker.copies_runs = devices_.size() == 1;
    worker.lists = options_.transport == Transport::kCommList;
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
    if (frames() && d.threading != DeviceThreading::kFull) return Error("frame records need full threading");
    if (auto ok = open_pools(*state.device, options, batch, worker); !ok) return ok;
    workers[w]->use_device(std::move(worker));
  }
  for (auto& state : devices_) {
    if (state->master == nullptr) continue;
    if (auto ok = state->master->start(); !ok) return ok;
  }
  return {};
}

// Whether frames are copied to a pool on the device.
bool DeviceSet::pooled() const {
  return options_.pooled();
}

// Whether some segment's packets cross as frames.
bool DeviceSet::frames() const {
  return std::any_of(offloads_.begin(), offloads_.end(), [](const Offload& o) { return o.crosses_as_frames(); });
}

// Whether some of these are read to their end.
bool DeviceSet::sums() const {
  return std::any_of(offloads_.begin(), offloads_.end(),
                     [](const Offload& o) { return o.crosses_as_frames() && o.shape.sums != 0; });
}

bool DeviceSet::takes_lent() const {
  if (plan_.shows_headroom || plan_.sources.empty()) return false;
  return std::all_of(plan_.sources.begin(), plan_.sources.end(), [&](const PlanSource& source) {
    if (source.target.node == ~0u) return false;
    return offloads_[source.target.node].crosses_as_frames();
  });
}

bool DeviceSet::chunks_stay() const {
  return options_.frames_there && counts_only_ && takes_lent();
}

// Room for the frames of each flight, on both sides where they are copied.
Result<void> DeviceSet::open_pools(Device& device, const ChannelOptions& options, uint32_t batch,
                                   WorkerDevice& worker) {
  if (!frames()) return {};
  // A batch of usual frames fits; what does not stays on the host.
  // Of frames that are listed or copied heads come back, beside those that move.
  const size_t each =
      kFrameMostRoom + (pooled() ? kFrameMostRoom : 0) + (pooled() || worker.lists || sums() ? kFrameEdited : 0);
  const size_t bytes = (size_t{1} << 16) + size_t{batch} * each;
  for (uint32_t f = 0; f < options.flights; ++f) {
    auto host = device.allocate(MemorySpace::kStaging, bytes);
    if (!host) return std::move(host).error();
    std::shared_ptr<DeviceBlob> there;
    if (pooled()) {
      auto made = device.allocate(MemorySpace::kDevice, bytes);
      if (!made) return std::move(made).error();
      there = std::move(*made);
    }
    std::shared_ptr<DeviceBlob> stays;
    if (chunks_stay()) {
      // As much as a batch's arena holds.
      auto made = device.allocate(MemorySpace::kDevice, size_t{batch} * 2048);
      if (!made) return std::move(made).error();
      stays = std::move(*made);
    }
    worker.pools.push_back({std::move(*host), std::move(there), std::move(stays)});
  }
  return {};
}

void DeviceSet::make_resident(Snapshot& snapshot, Publisher& publisher, Workers workers) {
  // Program slots take turns: the generation before last must have come home.
  publisher.drain_retired();
  const uint32_t parity = ++loads_ & 1;
  snapshot.residents.resize(devices_.size());
  for (size_t d = 0; d < devices_.size(); ++d) {
    State& state = *devices_[d];
    auto resident = sluice::make_resident(*state.device, snapshot, plan_, offloads_);
    Result<void> result;
    if (!resident) {
      result = std::move(resident).error();
    } else {
      (*resident)->parity = parity;
      for (const auto& worker : workers) {
        if (worker->device() == nullptr) continue;
        const WorkerDevice& its = worker->device()->device();
        if (its.index != d) continue;
        for (size_t n = 0; n < plan_.nodes.size(); ++n) {
          for (const auto* channels : {&its.ipv4, &its.others}) {
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

void DeviceSet::pin(std::span<std::byte> frames) {
  const bool listed = this->frames() && (options_.transport == Transport::kCommList || sums());
  if (frames.empty() || !(takes_lent() || listed)) return;
  for (auto& state : devices_) {
    // Its frames stay on the host then.
    if (auto ok = pin_on(*state, frames); !ok) {
      const std::lock_guard lock(state->mutex);
      if (state->report.failure.empty()) state->report.failure = ok.error().message;
    }
  }
}

bool DeviceSet::pin_source(const LentMemory& memory) {
  if (memory.frames.empty()) return false;
  // Of long frames only the first bytes are gathered.
  if (pooled() && !options_.frames_there && memory.longest > kFrameRegion) return false;
  return std::all_of(devices_.begin(), devices_.end(), [&](auto& state) { return pin_source(*state, memory); });
}

bool DeviceSet::pin_source(State& state, const LentMemory& memory) {
  // Nobody writes there.
  const auto writable = [](const auto& span) {
    const auto bytes = std::as_bytes(span);
    return std::span<std::byte>(const_cast<std::byte*>(bytes.data()), bytes.size());
  };
  state.lent.push_back(memory.owner);
  Result<void> ok = copy_to(state, writable(memory.records));
  if (ok.ok()) {
    const std::span<std::byte> frames = writable(memory.frames);
    ok = options_.frames_there ? copy_to(state, frames) : pin_on(state, frames);
  }
  if (ok.ok() || !options_.frames_there) return ok.ok();
  // They are gathered then, which nobody asked for.
  const std::lock_guard lock(state.mutex);
  if (state.report.failure.empty())
    state.report.failure = fmt::format("frames of a source do not fit: {}", ok.error().message);
  return false;
}

// Memory that nobody writes to any more: the device has a copy of its own.
Result<void> DeviceSet::copy_to(State& state, std::span<std::byte> memory) {
  if (state.pinned.device_address(reinterpret_cast<const uint8_t*>(memory.data()), memory.size()) != nullptr) return {};
  auto blob = state.device->allocate(MemorySpace::kDevice, memory.size());
  if (!blob) return std::move(blob).error();
  if (auto ok = state.device->upload(**blob, 0, memory.data(), memory.size()); !ok) return ok;
  state.pinned.add(memory.data(), memory.size(), static_cast<std::byte*>((*blob)->device()));
  state.records.push_back(std::move(*blob));
  return {};
}

Result<void> DeviceSet::pin_on(State& state, std::span<std::byte> frames) {
  if (std::find(state.pins.begin(), state.pins.end(), frames.data()) != state.pins.end()) return {};
  auto device = state.device->pin(frames.data(), frames.size());
  if (!device) return std::move(device).error();
  state.pinned.add(frames.data(), frames.size(), static_cast<std::byte*>(*device));
  state.pins.push_back(frames.data());
  return {};
}

void DeviceSet::fill(RunReport& report, Workers workers) {
  for (size_t d = 0; d < devices_.size(); ++d) {
    State& state = *devices_[d];
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
    for (const auto& worker : workers) {
      if (worker->device() == nullptr) continue;
      const WorkerDevice& its = worker->device()->device();
      if (its.index != d) continue;
      for (const auto* channels : {&its.ipv4, &its.others}) {
        for (const auto& channel : *channels) {
          if (channel == nullptr) continue;
          device.channels.add(channel->final_stats());
          if (channel->failed() && device.failure.empty()) device.failure = channel->why();
        }
      }
    }
  }
  report.segments.resize(plan_.nodes.size());
  for (const auto& worker : workers) {
    if (worker->device() == nullptr) continue;
    const std::vector<DeviceCounters>& counters = worker->device()->counters();
    for (size_t n = 0; n < counters.size(); ++n) {
      report.segments[n].add(counters[n]);
      report.offload.add(counters[n]);
    }
    for (const FlightFrames& pool : worker->device()->device().pools) {
      if (pool.given_up) report.set_aside_bytes += pool.host->size();
    }
  }
}

}  // namespace sluice

// host only
#include "exec/priority/priority_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/scope_exit.h"
#include "base/thread.h"
#include "graph/graph_files.h"
#include "qos/frame_class.h"

namespace sluice {

// One chunk, for as long as its place is taken: written by the reader, then by the worker that claimed it, then by the
// thread that commits it.
struct PriorityRuntime::Chunk {
  // Packets that were read at one time.
  struct Run {
    uint64_t read_ns;
    uint32_t packets;
  };
  Batch batch;
  JobShare share;
  std::vector<Run> runs;
  unsigned source = 0;
  const Snapshot* snapshot = nullptr;
  bool stolen = false;
  bool full = false;
};

struct PriorityRuntime::Class {
  // The reader's.
  Chunk* open = nullptr;
  uint64_t packets = 0, bytes = 0, refused = 0;
  std::vector<std::unique_ptr<Chunk>> chunks;  // by place

  // Of whoever commits: one thread at a time, each after the one before.
  alignas(64) uint64_t committed = 0;
  uint64_t stolen = 0, early = 0;
  Histogram latency;
  std::vector<RunReport::Sink> sinks;
  std::vector<PortCounters> ports;
  WorkerStats stats;  // what happens at egress
  std::vector<TxRecord> records;
  std::vector<TxRecord*> limited;
  std::vector<const PrintRecord*> prints;
};

PriorityRuntime::PriorityRuntime(const Router& router, const Plan& plan, const PriorityOptions& options,
                                 std::vector<uint32_t> shares)
    : router_(router),
      plan_(plan),
      options_(options),
      homes_(options.run.workers, shares),
      places_(options.places != 0 ? options.places : std::bit_ceil(std::max(8u, 4 * options.run.workers))),
      buffers_(static_cast<uint32_t>(shares.size()), places_),
      view_(buffers_.view()),
      open_(options.chunk, options.timeout_ns) {
  reader_stats_.elements.resize(router.elements.size());
  for (const unsigned e : limited_elements(router)) {
    limiters_.push_back({EgressLimiter::of(router.elements[e]->egress_rate()), e});
  }
  for (size_t c = 0; c < shares.size(); ++c) classes_.push_back(std::make_unique<Class>());
}

PriorityRuntime::~PriorityRuntime() = default;

namespace {

// The runtime's word `freed_`: the low bits are the class that the reader waits for, counted from 1; 0: it does not.
// The others count commits. Whichever of the reader's or and a committer's addition comes later sees what the other
// thread did before: the reader finds the place free, or the committer finds that it is wanted.
constexpr uint32_t kWanted = 15;
static_assert(kMaxQosClasses < kWanted);

bool half_free(const ChunkRing& ring) {
  const uint64_t filled = HostAtomics::load(ring.filled);
  return filled - HostAtomics::load(ring.committed) <= ring.capacity / 2;
}

// Elements that would see packets of different classes in another order than that of the input. Circles are none: a
// worker takes a chunk to its end before the next.
std::vector<Diagnostic> order_dependent(const Router& router, const Plan& plan) {
  std::vector<Diagnostic> wrong;
  const auto refuse = [&](unsigned e, const char* why) {
    wrong.push_back(router.elements[e]->diagnostic(
        fmt::format("'{}' {}: that needs all packets in the order of the input", router.elements[e]->name, why)));
  };
  for (const unsigned e : plan.ordered) refuse(e, "carries state from batch to batch");
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    const Element& element = *router.elements[e];
    if (element.kind() == ElementKind::kHost && element.make_state() != nullptr) refuse(e, "keeps state by worker");
  }
  return wrong;
}

Result<std::vector<uint32_t>> checked_shares(const PriorityOptions& o) {
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

Result<void> check_ranges(const PriorityOptions& o) {
  const auto check = [](const char* what, uint64_t value, uint64_t least, uint64_t most) -> Result<void> {
    if (value >= least && value <= most) return {};
    return Error(fmt::format("{} {} is out of range", value, what), fmt::format("use {} to {}", least, most));
  };
  if (auto ok = check("workers", o.run.workers, 1, 256); !ok) return ok;
  if (auto ok = check("packets per batch", o.run.batch, 1, Batch::kMaxPackets); !ok) return ok;
  if (auto ok = check("packets per chunk", o.chunk, 1, Batch::kMaxPackets); !ok) return ok;
  if (o.places != 0) {
    if (auto ok = check("places", o.places, 1, 65'536); !ok) return ok;
    if (!std::has_single_bit(o.places))
      return Error(fmt::format("{} places are not a power of two", o.places),
                   fmt::format("use {}", std::bit_ceil(o.places)));
  }
  if (!o.run.device.devices.empty()) return Error("priorities run only on the CPU", "leave the device out");
  return {};
}

}  // namespace

Result<void> PriorityRuntime::check(const Router& router, const Plan& plan, const PriorityOptions& options) {
  if (auto ok = check_ranges(options); !ok) return ok;
  if (auto shares = checked_shares(options); !shares) return std::move(shares).error();
  Error errors;
  errors.diagnostics = order_dependent(router, plan);
  if (errors.diagnostics.empty()) return {};
  errors.message = "this graph cannot run by priorities";
  errors.hint = "run it without, where packets keep the order of the input";
  return errors;
}

Result<std::unique_ptr<PriorityRuntime>> PriorityRuntime::create(const Router& router, const Plan& plan,
                                                                 const PriorityOptions& options) {
  if (auto ok = check(router, plan, options); !ok) return std::move(ok).error();
  auto shares = checked_shares(options);
  if (auto ok = check_files(router); !ok) return std::move(ok).error();
  Error errors;
  std::unique_ptr<PriorityRuntime> made(new PriorityRuntime(router, plan, options, std::move(*shares)));
  const auto note = [&](unsigned e, const Error& error) {
    Diagnostic d = router.elements[e]->diagnostic(error.message);
    d.suggestion = error.hint;
    errors.diagnostics.push_back(std::move(d));
  };
  FrameCache own;
  for (const PlanSource& s : plan.sources) {
    auto source = open_source(router.elements[s.element]->port(),
                              options.run.frames != nullptr ? *options.run.frames : own, options.run.inputs);
    if (!source) {
      note(s.element, source.error());
      continue;
    }
    made->sources_.push_back(std::move(*source));
  }
  std::vector<LinkType> links;
  for (const auto& source : made->sources_) links.push_back(source->link());
  for (const unsigned e : plan.sinks) {
    const PortSpec spec = router.elements[e]->port();
    auto sink = open_sink(spec, sink_link(router, e, links));
    if (!sink) {
      note(e, sink.error());
      continue;
    }
    made->sinks_.push_back(std::move(*sink));
    made->sink_names_.push_back({router.elements[e]->name, spec.path});
  }
  if (!errors.diagnostics.empty()) {
    errors.message =
        fmt::format("{} port{} cannot be opened", errors.diagnostics.size(), errors.diagnostics.size() == 1 ? "" : "s");
    return errors;
  }
  made->source_done_.resize(made->sources_.size());
  for (unsigned w = 0; w < options.run.workers; ++w)
    made->workers_.push_back(std::make_unique<Worker>(plan, router, w, options.run.fast_path));
  if (auto ok = made->make_chunks(); !ok) return std::move(ok).error();
  if (options.run.count_hits) made->ledger_ = std::make_unique<HitLedger>(options.run.workers);
  made->publisher_.set_prepare([runtime = made.get()](Snapshot& snapshot) {
    if (runtime->ledger_ != nullptr) attach_hits(snapshot, *runtime->ledger_);
  });
  return made;
}

Result<void> PriorityRuntime::make_chunks() {
  const uint32_t batch = options_.run.batch;
  auto read = Batch::create(batch, std::max<size_t>(size_t{1} << 21, size_t{batch} * 2048));
  if (!read) return std::move(read).error();
  read_ = std::move(*read);
  for (auto& k : classes_) {
    k->sinks = sink_names_;
    k->ports.resize(size_t{1} << 16);
    k->stats.elements.resize(router_.elements.size());
    for (uint32_t p = 0; p < places_; ++p) {
      // A batch that is empty grows for a frame that is larger; one that is not is handed on before it.
      auto made = Batch::create(options_.chunk, std::max<size_t>(size_t{1} << 14, size_t{options_.chunk} * 2048));
      if (!made) return std::move(made).error();
      k->chunks.push_back(std::make_unique<Chunk>());
      k->chunks.back()->batch = std::move(*made);
    }
  }
  return {};
}

// -- the reader

// The class's open chunk is ready for the workers.
void PriorityRuntime::hand_on(unsigned qos_class) {
  Chunk& chunk = *classes_[qos_class]->open;
  classes_[qos_class]->open = nullptr;
  const uint32_t n = open_.taken(qos_class);
  chunk.full = n == options_.chunk;
  chunk.share.packets.fill(n);
  chunk.snapshot = publisher_.acquire();
  view_.rings[qos_class].fill<HostAtomics>();
  ready_.fetch_add(1, std::memory_order_release);
  ready_.notify_one();
}

void PriorityRuntime::hand_on_due(uint64_t now) {
  for (unsigned c = 0; c < classes_.size(); ++c) {
    if (open_.due(c, now)) hand_on(c);
  }
}

// Opens the next chunk of the class. False: there is no place, and packets are to be dropped then.
Result<bool> PriorityRuntime::open_chunk(unsigned qos_class, unsigned source) {
  Class& k = *classes_[qos_class];
  const ChunkRing& ring = view_.rings[qos_class];
  uint64_t sequence = 0;
  if (!ring.may_fill<HostAtomics>(sequence)) {
    if (options_.drop_when_full) return false;
    // What the other classes have gets no more for a while.
    for (unsigned c = 0; c < classes_.size(); ++c) {
      if (open_.count(c) != 0) hand_on(c);
    }
    // Half of the places are waited for: to wake for each would cost more than a chunk does.
    reader_->offline();
    freed_.fetch_or(qos_class + 1, std::memory_order_acq_rel);
    for (uint32_t seen = freed_.load(std::memory_order_acquire); !half_free(ring);
         seen = freed_.load(std::memory_order_acquire)) {
      freed_.wait(seen, std::memory_order_acquire);
    }
    freed_.fetch_and(~kWanted, std::memory_order_relaxed);
    SLUICE_CHECK(ring.may_fill<HostAtomics>(sequence));
    reader_->online();
  }
  Chunk& chunk = *k.chunks[ring.place(sequence)];
  chunk.share.clear();
  chunk.batch.clear();
  chunk.runs.clear();
  chunk.source = source;
  k.open = &chunk;
  return true;
}

// Gives the packets that were read to the chunks of their classes.
Result<void> PriorityRuntime::take_packets(unsigned source, uint64_t read_ns) {
  const unsigned at_source = plan_.sources[source].element;
  const uint32_t n = read_.size();
  for (uint32_t i = 0; i < n; ++i) {
    const Extent& extent = read_.extent(i);
    const uint8_t* frame = read_.frame(i);
    const unsigned c = options_.classes.class_of(dscp_of_frame(frame, extent.end));
    Class& k = *classes_[c];
    ++k.packets;
    k.bytes += extent.end;
    if (k.open != nullptr && (k.open->source != source || !k.open->batch.has_room(extent.end))) hand_on(c);
    if (k.open == nullptr) {
      auto opened = open_chunk(c, source);
      if (!opened) return std::move(opened).error();
      if (!*opened) {
        ++k.refused;
        ElementCounters& counters = reader_stats_.elements[at_source];
        ++counters.packets;
        counters.bytes += extent.end;
        ++counters.drops[static_cast<size_t>(DropReason::kQueueFull)];
        ++reader_stats_.packets_in;
        reader_stats_.bytes_in += extent.end;
        continue;
      }
    }
    Chunk& chunk = *k.open;
    uint8_t* to = chunk.batch.reserve(extent.end);
    if (to == nullptr) return Error(fmt::format("no memory for a frame of {} bytes", extent.end));
    std::memcpy(to, frame, extent.end);
    chunk.batch.push(to, extent.end, extent.wire_end, read_.timestamp_ns(i), chunk.batch.size());
    if (chunk.runs.empty() || chunk.runs.back().read_ns != read_ns) chunk.runs.push_back({read_ns, 0});
    ++chunk.runs.back().packets;
    if (open_.add(c, read_ns)) hand_on(c);
  }
  return {};
}

// One read, of sources in turn. False: there is nothing more.
Result<bool> PriorityRuntime::read() {
  const RunOptions& o = options_.run;
  while (packets_read_ < o.max_packets && !failed_.load(std::memory_order_relaxed)) {
    if (o.stopped()) {
      interrupted_ = true;
      return false;
    }
    uint64_t arrived_ns = now_ns();
    hand_on_due(arrived_ns);
    uint64_t most = std::min<uint64_t>(o.batch, o.max_packets - packets_read_);
    if (options_.offered_pps != 0) {
      const auto due = static_cast<uint64_t>(static_cast<unsigned __int128>(arrived_ns - begin_ns_) *
                                             options_.offered_pps / 1'000'000'000);
      if (due <= packets_read_) {
        reader_->quiescent();
        spin_once(spins_ != 0);
        continue;
      }
      most = std::min(most, due - packets_read_);
      // Of the first of them.
      const uint64_t first = begin_ns_ + static_cast<uint64_t>(static_cast<unsigned __int128>(packets_read_) *
                                                               1'000'000'000 / options_.offered_pps);
      late_ns_ = std::max(late_ns_, arrived_ns - first);
      arrived_ns = first;
    }
    size_t tried = 0;
    while (tried < sources_.size() && source_done_[next_source_]) {
      next_source_ = (next_source_ + 1) % sources_.size();
      ++tried;
    }
    if (tried == sources_.size()) return false;
    const auto source = static_cast<unsigned>(next_source_);
    next_source_ = (next_source_ + 1) % sources_.size();
    read_.set_limit(static_cast<uint32_t>(most));
    if (auto ok = sources_[source]->read(read_); !ok) {
      if (o.stopped()) continue;
      damaged_ = true;
      return std::move(ok).error();
    }
    if (read_.size() == 0) {
      source_done_[source] = true;
      continue;
    }
    packets_read_ += read_.size();
    if (auto ok = take_packets(source, arrived_ns); !ok) return std::move(ok).error();
    return true;
  }
  return false;
}

// -- the workers

void PriorityRuntime::work(unsigned id) {
  Worker& worker = *workers_[id];
  const auto told = [this](unsigned c, uint32_t committed) {
    if (committed == 0) return;
    const uint32_t before = freed_.fetch_add(kWanted + 1, std::memory_order_acq_rel);
    if ((before & kWanted) == c + 1 && half_free(view_.rings[c])) freed_.notify_one();
  };
  for (uint64_t look = 0;; ++look) {
    // Before the look: what is handed on after it has changed this.
    const uint32_t seen = ready_.load(std::memory_order_acquire);
    const bool last = closed_.load(std::memory_order_acquire);
    uint32_t resumed = 0;
    for (unsigned c = 0; c < classes_.size(); ++c) {
      const uint32_t count =
          view_.rings[c].resume<HostAtomics>(places_, [&](uint64_t sequence) { commit(c, sequence); });
      told(c, count);
      resumed += count;
    }
    const uint32_t home = homes_.home(id, look);
    ChunkClaim claim;
    if (!view_.look<HostAtomics>(home, claim)) {
      if (resumed != 0) continue;  // there may be more of that
      if (last) return;
      for (int i = 0; i < spins_ && ready_.load(std::memory_order_acquire) == seen; ++i) cpu_pause();
      if (ready_.load(std::memory_order_acquire) == seen) ready_.wait(seen, std::memory_order_acquire);
      continue;
    }
    const ChunkRing& ring = view_.rings[claim.qos_class];
    Chunk& chunk = *classes_[claim.qos_class]->chunks[ring.place(claim.sequence)];
    chunk.stolen = claim.stolen;
    const uint64_t begin = now_ns();
    worker.stats().wait.record(begin - std::min(begin, chunk.runs.front().read_ns));
    worker.run(*chunk.snapshot, chunk.batch, chunk.share, chunk.source);
    const uint64_t now = now_ns();
    for (const Chunk::Run& run : chunk.runs)
      worker.stats().latency.record(now - std::min(now, run.read_ns), run.packets);
    told(claim.qos_class, ring.finish<HostAtomics>(claim.sequence, places_,
                                                   [&](uint64_t sequence) { commit(claim.qos_class, sequence); }));
  }
}

// Gives what the chunk sent to one sink.
void PriorityRuntime::write(Class& k, size_t s, const Chunk& chunk) {
  const JobShare::Sent& sent = chunk.share.sent[s];
  std::vector<TxRecord>& records = k.records;
  records = sent.made;
  RunReport::Sink& counters = k.sinks[s];
  if (sinks_[s]->reads_frames()) {
    sent.rows.for_each([&](uint32_t i) { records.push_back(tx_record(chunk.batch, i, 0)); });
  } else {
    sent.rows.for_each([&](uint32_t i) {
      const uint32_t length = chunk.batch.data_length(i);
      PortCounters& port = k.ports[chunk.batch.port(i)];
      ++port.packets;
      port.bytes += length;
      ++counters.packets;
      counters.bytes += length;
    });
  }
  if (records.empty()) return;
  if (!sent.made.empty()) {
    std::sort(records.begin(), records.end(), [](const TxRecord& x, const TxRecord& y) {
      return x.order != y.order ? x.order < y.order : x.sequence < y.sequence;
    });
  }
  const std::lock_guard lock(egress_);
  size_t written = 0;
  if (output_.ok()) output_ = sinks_[s]->write(records, written);
  if (!output_.ok()) failed_.store(true, std::memory_order_relaxed);
  for (size_t i = 0; i < written; ++i) {
    counters.bytes += records[i].captured;
    PortCounters& port = k.ports[records[i].port];
    ++port.packets;
    port.bytes += records[i].captured;
  }
  counters.packets += written;
  k.stats.elements[plan_.sinks[s]].drops[static_cast<size_t>(DropReason::kOutputFailed)] += records.size() - written;
}

void PriorityRuntime::commit(unsigned qos_class, uint64_t sequence) {
  Class& k = *classes_[qos_class];
  Chunk& chunk = *k.chunks[view_.rings[qos_class].place(sequence)];
  const uint64_t done = now_ns();
  if (!limiters_.empty()) {
    const std::lock_guard lock(egress_);
    hold_to_rates({&chunk.share, 1}, k.limited, [&](const TxRecord& record) {
      Limited& limited = limiters_[record.limiter - 1u];
      if (limited.rate.admit(record.timestamp_ns)) return true;
      ++k.stats.elements[limited.element].drops[static_cast<size_t>(DropReason::kIcmpRateLimited)];
      return false;
    });
  }
  for (size_t s = 0; s < sinks_.size(); ++s) {
    if (sinks_[s] != nullptr) write(k, s, chunk);
  }
  if (chunk.share.print_count != 0 && options_.run.print) {
    k.prints.clear();
    for (size_t i = 0; i < chunk.share.print_count; ++i) k.prints.push_back(&chunk.share.prints[i]);
    std::sort(k.prints.begin(), k.prints.end(), [](const PrintRecord* a, const PrintRecord* b) { return *a < *b; });
    const std::lock_guard lock(egress_);
    for (const PrintRecord* p : k.prints) options_.run.print(p->text);
  }
  uint64_t generation = last_generation_.load(std::memory_order_relaxed);
  while (generation < chunk.snapshot->generation &&
         !last_generation_.compare_exchange_weak(generation, chunk.snapshot->generation, std::memory_order_relaxed)) {
  }
  Publisher::release(chunk.snapshot);
  chunk.snapshot = nullptr;
  ++k.committed;
  k.stolen += chunk.stolen ? 1 : 0;
  k.early += chunk.full ? 0 : 1;
  const uint64_t now = now_ns();
  k.stats.egress.record(now - done);
  for (const Chunk::Run& run : chunk.runs) k.latency.record(now - std::min(now, run.read_ns), run.packets);
}

Result<void> PriorityRuntime::run(PriorityReport& report) {
  if (publisher_.current() == nullptr) return Error("no generation was published before the run");
  // A futex costs several microseconds: spin first where every thread has a core of its own.
  spins_ = std::thread::hardware_concurrency() > workers_.size() ? 4000 : 0;
  begin_ns_ = now_ns();
  Result<void> result;
  {
    std::vector<std::jthread> threads;
    threads.reserve(workers_.size());
    // However this ends, the workers are told that no more chunks come.
    const ScopeExit close([this] {
      closed_.store(true, std::memory_order_release);
      ready_.fetch_add(1, std::memory_order_release);
      ready_.notify_all();
    });
    for (unsigned w = 0; w < workers_.size() && result.ok(); ++w) {
      auto thread = start_thread([this, w] { work(w); });
      if (thread.ok()) {
        threads.push_back(std::move(*thread));
      } else {
        result = std::move(thread).error();
      }
    }
    QsbrReader reader;
    reader_ = &reader;
    while (result.ok()) {
      auto more = read();
      reader.quiescent();
      if (!more) {
        result = std::move(more).error();
        break;
      }
      if (options_.run.progress) options_.run.progress(packets_read_);
      if (!*more) break;
    }
    for (unsigned c = 0; c < classes_.size(); ++c) {
      if (open_.count(c) != 0) hand_on(c);
    }
    reader_ = nullptr;
  }
  seconds_ = static_cast<double>(now_ns() - begin_ns_) * 1e-9;
  // What an output says comes before what an input says: then nothing appears.
  if (!output_.ok() && (result.ok() || damaged_)) {
    result = std::move(output_);
    damaged_ = false;
    output_failed_ = true;
  }
  if (result.ok() || damaged_) {
    ending_ = damaged_ || (interrupted_ && !options_.run.stop_is_end) ? Ending::kPartial : Ending::kWhole;
    std::vector<PacketSink*> sinks;
    for (size_t s = 0; s < sinks_.size(); ++s) {
      sinks.push_back(sinks_[s].get());
      sink_names_[s].path = place_of(sinks[s], sink_names_[s].path, ending_);
    }
    if (auto ok = end_outputs(sinks, ending_); !ok) {
      result = std::move(ok);
      output_failed_ = true;
      ending_ = Ending::kDiscard;
    }
  }
  sources_.clear();
  sinks_.clear();
  if (result.ok() && options_.run.hold) options_.run.hold();
  fill(report);
  return result;
}

void PriorityRuntime::fill(PriorityReport& report) {
  report = {};
  RunReport& run = report.run;
  std::vector<RunReport::Sink> sinks = sink_names_;
  for (const auto& worker : workers_) run.totals.add(worker->stats());
  run.totals.add(reader_stats_);
  for (unsigned c = 0; c < classes_.size(); ++c) {
    const Class& k = *classes_[c];
    run.totals.add(k.stats);
    for (size_t s = 0; s < sinks.size(); ++s) {
      sinks[s].packets += k.sinks[s].packets;
      sinks[s].bytes += k.sinks[s].bytes;
    }
    for (size_t p = 0; p < k.ports.size(); ++p) {
      if (k.ports[p].packets == 0) continue;
      PortCounters& port = run.ports[static_cast<uint16_t>(p)];
      port.packets += k.ports[p].packets;
      port.bytes += k.ports[p].bytes;
    }
    report.classes.push_back(
        {k.packets, k.bytes, k.refused, k.committed, k.stolen, k.early, homes_.counts()[c], k.latency});
  }
  run.packets_in = run.totals.packets_in;
  run.bytes_in = run.totals.bytes_in;
  run.generated = run.totals.generated;
  for (const ElementCounters& e : run.totals.elements) {
    for (size_t r = 0; r < kDropReasons; ++r) {
      run.drops[r] += e.drops[r];
      run.dropped += e.drops[r];
    }
  }
  for (size_t s = 0; s < sinks.size(); ++s) {
    if (router_.elements[plan_.sinks[s]]->port().type == PortSpec::Type::kNull) continue;
    run.sinks.push_back(sinks[s]);
    run.packets_out += sinks[s].packets;
    run.bytes_out += sinks[s].bytes;
  }
  run.interrupted = interrupted_;
  run.partial = ending_ == Ending::kPartial;
  run.output_failed = output_failed_;
  run.seconds = seconds_;
  run.generation = last_generation_;
  run.workers = static_cast<unsigned>(workers_.size());
  run.batch.limit = options_.run.batch;
  report.late_ns = late_ns_;
}

}  // namespace sluice

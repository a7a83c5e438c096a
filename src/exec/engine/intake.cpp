// host only
#include "exec/engine/intake.h"

#include <algorithm>

#include "base/clock.h"
#include "base/thread.h"
#include "exec/engine/egress.h"
#include "exec/engine/generation.h"
#include "exec/engine/intake_ahead.h"
#include "exec/engine/job.h"
#include "exec/engine/publisher.h"

namespace sluice {
namespace {

// How long an idle source is waited for at a time: the flag that ends a run is looked at in between.
constexpr uint64_t kLookNs = 50'000'000;

}  // namespace

Intake::Source::Source() = default;
Intake::Source::Source(Source&&) noexcept = default;
Intake::Source& Intake::Source::operator=(Source&&) noexcept = default;
Intake::Source::~Source() = default;

Intake::Intake(const Router& router, const Plan& plan, const RunOptions& options, const Share& share, Error& errors,
               const Intake* before)
    : router_(router), plan_(plan), options_(options), sleep_(options.poll) {
  FrameCache own;
  std::vector<unsigned> same;
  if (before != nullptr) same = same_elements(before->router_, router);
  const auto add = [&](unsigned entry, unsigned queue, auto&& open) {
    const unsigned e = plan.sources[entry].element;
    Source source;
    source.entry = entry;
    source.queue = queue;
    for (size_t b = 0; before != nullptr && b < before->sources_.size(); ++b) {
      const Source& other = before->sources_[b];
      if (other.queue == queue && same[e] == before->plan_.sources[other.entry].element) source.goes_on = b;
    }
    if (source.goes_on != ~size_t{0}) {
      source.link = before->sources_[source.goes_on].link;
      source.live = before->sources_[source.goes_on].live;
    } else {
      Result<std::unique_ptr<BatchSource>> port = open();
      if (!port) {
        add_port_error(router, e, port.error(), errors);
        return;
      }
      source.port = std::move(*port);
      source.link = source.port->link();
      source.live = source.port->live();
    }
    live_ |= source.live;
    sources_.push_back(std::move(source));
    lie_close(sources_.back());
  };
  for (unsigned entry = 0; entry < plan.sources.size(); ++entry) {
    const PortSpec spec = router.elements[plan.sources[entry].element]->port();
    if (spec.type == PortSpec::Type::kDevice && share.live_ports != nullptr) {
      for (unsigned q = share.lane; q < share.live_ports->rx_queues(spec); q += share.lanes)
        add(entry, q, [&] { return share.live_ports->open_source(spec, q); });
    } else if (share.lane == 0) {
      add(entry, 0, [&]() -> Result<std::unique_ptr<BatchSource>> {
        if (options.source) {
          auto given = options.source(*router.elements[plan.sources[entry].element]);
          if (!given.ok() || *given != nullptr) return given;
        }
        return open_source(spec, options.frames != nullptr ? *options.frames : own, options.inputs);
      });
    }
  }
  if (!sources_.empty()) turn_left_ = turn_of(0);
  live_ |= sources_.empty() && share.live_ports != nullptr;
  // What is read with a device lies where that reaches it, and a limit counts in the order of turns.
  if (options.workers == 1 || sources_.size() == 1 || live_ || share.live_ports != nullptr || options.priorities ||
      !options.device.devices.empty() || options.max_packets != ~uint64_t{0})
    return;
  for (size_t s = 0; s < sources_.size(); ++s) {
    if (sources_[s].goes_on != ~size_t{0}) continue;
    sources_[s].ahead = std::make_unique<Ahead>();
    sources_[s].ahead->turn_left = turn_of(s);
  }
}

std::vector<LinkType> Intake::links() const {
  std::vector<LinkType> links;
  for (const Source& source : sources_) links.push_back(source.link);
  return links;
}

std::vector<LentMemory> Intake::lendable(bool chunks) const {
  std::vector<LentMemory> all;
  for (const Source& source : sources_) {
    const bool may = source.port != nullptr && source.ahead == nullptr && (chunks || !options_.priorities);
    all.push_back(may ? source.port->lent() : LentMemory());
  }
  return all;
}

void Intake::lend(const std::vector<bool>& lends) {
  for (size_t s = 0; s < sources_.size(); ++s) sources_[s].lends = lends[s];
}

// Devices want frames that begin multiples of 16, and classes copy them into chunks.
void Intake::lie_close(const Source& source) const {
  if (source.port == nullptr) return;
  source.port->lie_close(plan_.stays_close && options_.device.devices.empty() && !options_.priorities);
}

uint32_t Intake::turn_of(size_t source) const {
  return source_turn(router_.elements[plan_.sources[sources_[source].entry].element]->port());
}

void Intake::follow(Intake& before) {
  for (size_t s = 0; s < sources_.size(); ++s) {
    Source& source = sources_[s];
    if (source.goes_on == ~size_t{0}) continue;
    Source& from = before.sources_[source.goes_on];
    source.port = std::move(from.port);
    source.ahead = std::move(from.ahead);
    source.done = from.done;
    lie_close(source);
    if (source.goes_on != before.next_source_) continue;
    next_source_ = s;
    turn_.store(static_cast<uint32_t>(s), std::memory_order_relaxed);
    turn_left_ = before.turn_left_;
  }
  set_aside_ = std::move(before.set_aside_);
  for (size_t c = 0; c < classes_.size(); ++c) {
    classes_[c]->packets.add(before.classes_[c]->packets.get());
    classes_[c]->bytes.add(before.classes_[c]->bytes.get());
    classes_[c]->refused_before = before.read_of(static_cast<uint32_t>(c)).refused;
  }
  begin_ns_ = before.begin_ns_;
  late_ns_ = before.late_ns_;
}

Polled Intake::settle() {
  if (ended_ || !options_.priorities) return Polled::kIdle;
  if (read_left_ != 0) {
    if (const Polled handed = distribute(); handed != Polled::kFrames) return handed;
  }
  for (unsigned c = 0; c < classes_.size(); ++c) {
    if (open_.count(c) != 0) hand_on(c);
  }
  return Polled::kIdle;
}

void Intake::connect(JobRings& rings, Egress& egress, const Publisher& publisher, bool pinned, Shared& shared,
                     bool numbered) {
  shared_ = &shared;
  numbered_ = numbered;
  rings_ = &rings;
  egress_ = &egress;
  publisher_ = &publisher;
  pinned_ = pinned;
  copies_later_ =
      options_.workers > 1 && !live_ && !options_.ended && !options_.priorities && options_.device.devices.empty();
  if (!options_.priorities) return;
  close_ = plan_.stays_close && options_.device.devices.empty();
  open_ = OpenChunks(options_.priorities->chunk, options_.priorities->timeout_ns);
  for (uint32_t c = 0; c < rings.view.classes; ++c) {
    classes_.push_back(std::make_unique<Class>());
    for (size_t s = 0; s < sources_.size(); ++s) refused_.push_back(std::make_unique<Refused>());
  }
}

size_t Intake::set_aside_bytes() const {
  size_t bytes = 0;
  for (const Buffer& arena : set_aside_) bytes += arena.size();
  return bytes;
}

Intake::Read Intake::read_of(uint32_t c) const {
  Read read{classes_[c]->packets.get(), classes_[c]->bytes.get(), classes_[c]->refused_before};
  for (size_t s = 0; s < sources_.size(); ++s) read.refused += refused_[c * sources_.size() + s]->packets.get();
  return read;
}

void Intake::report(RunReport& report) const {
  report.late_ns = std::max(report.late_ns, late_ns_);
  for (size_t i = 0; i < refused_.size(); ++i) {
    const uint64_t packets = refused_[i]->packets.get();
    const uint64_t bytes = refused_[i]->bytes.get();
    if (packets == 0) continue;
    ElementCounters& counters = report.totals.elements[plan_.sources[sources_[i % sources_.size()].entry].element];
    counters.packets += packets;
    counters.bytes += bytes;
    counters.drops[static_cast<size_t>(DropReason::kQueueFull)] += packets;
    report.totals.packets_in += packets;
    report.totals.bytes_in += bytes;
  }
}

Polled Intake::poll() {
  if (ended_) return Polled::kEnd;
  return options_.priorities ? poll_classes() : poll_job();
}

Polled Intake::end() {
  for (unsigned c = 0; c < classes_.size(); ++c) {
    if (open_.count(c) != 0) hand_on(c);
  }
  ended_ = true;
  return Polled::kEnd;
}

Polled Intake::fail(Result<void> why) {
  result_ = std::move(why);
  return end();
}

// A signal ends the waits of inputs: what they say is what it did to them.
Polled Intake::read_failed(Result<void> why) {
  interrupted_ |= options_.stopped();
  if (interrupted_) return end();
  damaged_ = true;
  return fail(std::move(why));
}

// False: nothing is to be read any more.
bool Intake::choose_source() {
  if (shared_->packets.load(std::memory_order_relaxed) >= options_.max_packets || egress_->failed()) return false;
  if (options_.stopped()) {
    interrupted_ = true;
    return false;
  }
  for (size_t tried = 0; tried < sources_.size(); ++tried) {
    if (!sources_[next_source_].done) return true;
    next_turn();
  }
  return false;
}

void Intake::next_turn() {
  next_source_ = (next_source_ + 1) % sources_.size();
  turn_left_ = turn_of(next_source_);
  turn_.store(static_cast<uint32_t>(next_source_), std::memory_order_relaxed);
}

// The source whose turn it is has nothing now. True: neither has any other that may be asked before it.
bool Intake::nothing(size_t& idle) {
  // Captures take turns, whoever is slow.
  if (!live_) return true;
  next_turn();
  return ++idle >= sources_.size();
}

// Fills a batch from the source whose turn it is; that of a job may be filled by whoever runs it. False: the source is
// at its end.
Result<bool> Intake::read(unsigned source, Batch& batch, uint64_t most, Job* job) {
  const bool turns = sources_.size() > 1;
  batch.set_limit(static_cast<uint32_t>(std::min<uint64_t>(most, turns ? turn_left_ : batch.capacity())));
  BatchSource& port = *sources_[source].port;
  took_ = job != nullptr && copies_later_ && port.take(batch, job->taken);
  if (took_) {
    if (batch.size() != 0) job->copies = &port;
    counted(source, batch.size());
    return batch.size() != 0;
  }
  // Packets of classes are copied to their chunks.
  const bool lends = options_.priorities || sources_[source].lends;
  if (auto ok = lends ? port.lend(batch) : port.read(batch); !ok) return std::move(ok).error();
  // Whoever follows packets reads them one by one.
  if (options_.ended) batch.fill();
  counted(source, batch.size());
  return batch.size() != 0;
}

// So many packets of the source whose turn it is came in; 0: it is at its end, or a live port has none.
void Intake::counted(unsigned source, uint32_t packets) {
  // One that was read ahead takes its turns also while it is the only one: another graph may bring others.
  const bool turns = sources_.size() > 1 || sources_[source].ahead != nullptr;
  const bool empty = packets == 0, live = sources_[source].port->live();
  if (empty && !live) sources_[source].done = true;
  if (turns) turn_left_ -= packets;
  // Live ports have what came meanwhile: each gives one batch.
  if (live ? turns && !empty : empty || turn_left_ == 0) next_turn();
  if (live && !empty) sleep_.came();
  shared_->packets.fetch_add(packets, std::memory_order_relaxed);
}

Polled Intake::poll_job() {
  uint64_t sequence = 0;
  const ChunkRing& ring = rings_->view.rings[0];
  if (!ring.may_fill<HostAtomics>(sequence)) return Polled::kFull;
  Job& job = rings_->at(0, sequence);
  size_t idle = 0;
  took_ = false;
  // What the job before left there.
  job.batch.clear_annotations(job.share.annotated);
  while (choose_source()) {
    const auto from = static_cast<unsigned>(next_source_);
    if (sources_[from].ahead != nullptr) {
      const Got got = take_ahead(sources_[from], job);
      if (got == Got::kBusy) return Polled::kAhead;
      if (got == Got::kNothing) return Polled::kIdle;
      if (got == Got::kError) return read_failed(std::move(sources_[from].ahead->result));
      counted(from, got == Got::kPackets ? job.batch.size() : 0);
      if (got == Got::kEnd) continue;
      job.source = sources_[from].entry;
      job.lender = nullptr;
      hand_out(job);
      return Polled::kFrames;
    }
    if (!sources_[from].port->ready()) {
      if (nothing(idle)) return Polled::kIdle;
      continue;
    }
    if (job.share.given_up && job.lender == nullptr) {
      // A device that was given up with frames of this batch may still write into them: the next packets lie elsewhere.
      // That is not pinned, as to pin may wait for this very device; so no device reaches it, none is given up with
      // frames there, and a job sets one arena aside at most.
      auto old = job.batch.exchange_arena();
      if (!old) return fail(std::move(old).error());
      set_aside_.push_back(std::move(*old));
    }
    job.share.given_up = false;
    job.source = sources_[from].entry;
    job.share.lent = sources_[from].lends ? sources_[from].port->lent().frames : std::span<const std::byte>();
    job.lender = sources_[from].port->lends();
    const uint64_t now = now_ns();
    const Egress::BatchLimit limit = egress_->batch_limit();
    job.round = limit.round;
    // Another lane may have passed the limit meanwhile.
    const uint64_t left =
        options_.max_packets - std::min(options_.max_packets, shared_->packets.load(std::memory_order_relaxed));
    if (left == 0) continue;
    auto more = read(from, job.batch, std::min<uint64_t>(left, limit.packets), &job);
    if (!more) return read_failed(std::move(more).error());
    if (!*more) {
      if (sources_[from].port->live() && nothing(idle)) return Polled::kIdle;
      continue;
    }
    job.reads.assign(1, {now, job.batch.size()});
    hand_out(job);
    return Polled::kFrames;
  }
  return end();
}

// What was read leaves for the workers, without classes.
void Intake::hand_out(Job& job) {
  job.share.clear();
  if (job.ordered != nullptr) {
    job.ordered->begin(shared_->tickets.fetch_add(1, std::memory_order_relaxed));
    if (job.ordered->delays()) job.batch.clear_departures();
  }
  if (options_.ended) follow(job);
  publish(job, 0);
}

// The job is ready for the workers.
void Intake::publish(Job& job, uint32_t qos_class) {
  job.share.packets.fill(job.batch.size());
  job.snapshot = pinned_ ? publisher_->acquire() : publisher_->current();
  job.generation = job.snapshot->generation;
  if (options_.taps != nullptr && options_.taps->armed()) follow_some(job);
  rings_->view.rings[qos_class].fill<HostAtomics>();
}

// Makes room for what becomes of the packets of a batch that was read.
void Intake::note_fates(Job& job) {
  job.fates.assign(job.batch.size(), {});
  job.share.fates = job.fates.data();
}

// The same, and keeps them as they came.
void Intake::follow(Job& job) {
  note_fates(job);
  if (!options_.keeps_frames) return;
  const uint32_t n = job.batch.size();
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

// The packets that a tap asks for; what becomes of them is noted for the whole batch.
void Intake::follow_some(Job& job) {
  job.copy();
  job.batch.fill();
  options_.taps->receive(job.batch, *job.snapshot, router_.elements[plan_.sources[job.source].element]->name,
                         job.share.followed);
  if (!job.share.followed.empty() && job.share.fates == nullptr) note_fates(job);
}

void Intake::wait(uint64_t at_most_ns) {
  if (options_.priorities && options_.priorities->offered_pps != 0) {
    cpu_pause();
    return;
  }
  uint64_t limit = std::min(at_most_ns, kLookNs);
  const uint64_t now = now_ns();
  for (unsigned c = 0; c < classes_.size(); ++c) {
    if (open_.count(c) != 0) limit = std::min(limit, open_.left_ns(c, now));
  }
  if (limit == 0) return;
  if (!live_) {
    Source& source = sources_[next_source_];
    if (source.ahead == nullptr) return source.port->wait(limit);
    if (source.ahead->reading.test_and_set(std::memory_order_acquire)) return;
    if (source.ahead->empty()) source.port->wait(limit);
    return source.ahead->reading.clear(std::memory_order_release);
  }
  if (sleep_.polls()) return;
  sleep_.begin(limit);
  for (const Source& source : sources_) {
    if (!source.done && !sleep_.add(*source.port)) return;
  }
  sleep_.sleep();
}

}  // namespace sluice

// host only
#include "exec/intake.h"

#include <fmt/format.h>

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/copy_bytes.h"
#include "base/prefetch.h"
#include "base/thread.h"
#include "exec/egress.h"
#include "exec/generation.h"
#include "exec/job.h"
#include "exec/publisher.h"
#include "qos/frame_class.h"

namespace sluice {
namespace {

// How long an idle source is waited for at a time: the flag that ends a run is looked at in between.
constexpr uint64_t kLookNs = 50'000'000;
// The same for live ports, whose links and ends are looked at too.
constexpr uint64_t kLiveLookNs = 10'000'000;
// Where nothing tells that packets have come.
constexpr uint64_t kBlindNs = 50'000;
// How long an adaptive worker polls after the last packets before it sleeps.
constexpr uint64_t kSpinNs = 20'000;

}  // namespace

Intake::Intake(const Router& router, const Plan& plan, const RunOptions& options, const Share& share, Error& errors,
               const Intake* before)
    : router_(router), plan_(plan), options_(options) {
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
      live_ |= before->live_;
    } else {
      Result<std::unique_ptr<BatchSource>> port = open();
      if (!port) {
        add_port_error(router, e, port.error(), errors);
        return;
      }
      source.port = std::move(*port);
      source.link = source.port->link();
      live_ |= source.port->live();
    }
    sources_.push_back(std::move(source));
  };
  for (unsigned entry = 0; entry < plan.sources.size(); ++entry) {
    const PortSpec spec = router.elements[plan.sources[entry].element]->port();
    if (spec.type == PortSpec::Type::kDevice && share.live_ports != nullptr) {
      for (unsigned q = share.lane; q < share.live_ports->rx_queues(spec); q += share.lanes)
        add(entry, q, [&] { return share.live_ports->open_source(spec, q); });
    } else if (share.lane == 0) {
      add(entry, 0,
          [&] { return open_source(spec, options.frames != nullptr ? *options.frames : own, options.inputs); });
    }
  }
  if (!sources_.empty()) turn_left_ = turn_of(0);
}

std::vector<LinkType> Intake::links() const {
  std::vector<LinkType> links;
  for (const Source& source : sources_) links.push_back(source.link);
  return links;
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
    source.done = from.done;
    if (source.goes_on != before.next_source_) continue;
    next_source_ = s;
    turn_left_ = before.turn_left_;
  }
  set_aside_ = std::move(before.set_aside_);
  for (size_t c = 0; c < classes_.size(); ++c) {
    add(classes_[c]->packets, before.classes_[c]->packets.load(std::memory_order_relaxed));
    add(classes_[c]->bytes, before.classes_[c]->bytes.load(std::memory_order_relaxed));
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

void Intake::connect(JobRings& rings, const Egress& egress, const Publisher& publisher, bool pinned, Shared& shared) {
  shared_ = &shared;
  rings_ = &rings;
  egress_ = &egress;
  publisher_ = &publisher;
  pinned_ = pinned;
  if (!options_.priorities) return;
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
  Read read{classes_[c]->packets.load(std::memory_order_relaxed), classes_[c]->bytes.load(std::memory_order_relaxed),
            classes_[c]->refused_before};
  for (size_t s = 0; s < sources_.size(); ++s)
    read.refused += refused_[c * sources_.size() + s]->packets.load(std::memory_order_relaxed);
  return read;
}

void Intake::report(RunReport& report) const {
  report.late_ns = std::max(report.late_ns, late_ns_);
  for (size_t i = 0; i < refused_.size(); ++i) {
    const uint64_t packets = refused_[i]->packets.load(std::memory_order_relaxed);
    const uint64_t bytes = refused_[i]->bytes.load(std::memory_order_relaxed);
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
}

// The source whose turn it is has nothing now. True: neither has any other that may be asked before it.
bool Intake::nothing(size_t& idle) {
  // Captures take turns, whoever is slow.
  if (!live_) return true;
  next_turn();
  return ++idle >= sources_.size();
}

// Fills a batch from the source whose turn it is. False: the source is at its end.
Result<bool> Intake::read(unsigned source, Batch& batch, uint64_t most) {
  const bool turns = sources_.size() > 1;
  batch.set_limit(static_cast<uint32_t>(std::min<uint64_t>(most, turns ? turn_left_ : batch.capacity())));
  BatchSource& port = *sources_[source].port;
  // Packets of classes are copied to their chunks.
  if (auto ok = options_.priorities ? port.lend(batch) : port.read(batch); !ok) {
    // A signal ends the waits of inputs: what they say is what it did to them.
    if (options_.stopped()) {
      interrupted_ = true;
    } else {
      damaged_ = true;
    }
    return std::move(ok).error();
  }
  const bool empty = batch.size() == 0, live = sources_[source].port->live();
  if (empty && !live) sources_[source].done = true;
  if (turns) turn_left_ -= batch.size();
  // Live ports have what came meanwhile: each gives one batch.
  if (live ? turns && !empty : empty || turn_left_ == 0) next_turn();
  if (live && !empty) busy_ns_ = now_ns();
  shared_->packets.fetch_add(batch.size(), std::memory_order_relaxed);
  return !empty;
}

Polled Intake::poll_job() {
  uint64_t sequence = 0;
  const ChunkRing& ring = rings_->view.rings[0];
  if (!ring.may_fill<HostAtomics>(sequence)) return Polled::kFull;
  Job& job = rings_->at(0, sequence);
  size_t idle = 0;
  while (choose_source()) {
    if (!sources_[next_source_].port->ready()) {
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
    const auto from = static_cast<unsigned>(next_source_);
    job.source = sources_[from].entry;
    job.lender = sources_[from].port->lends();
    const uint64_t now = now_ns();
    const Egress::BatchLimit limit = egress_->batch_limit();
    job.round = limit.round;
    job.batch.clear_annotations(job.share.annotated);
    const uint64_t left = options_.max_packets - shared_->packets.load(std::memory_order_relaxed);
    auto more = read(from, job.batch, std::min<uint64_t>(left, limit.packets));
    if (!more) {
      if (interrupted_) return end();
      return fail(std::move(more).error());
    }
    if (!*more) {
      if (sources_[from].port->live() && nothing(idle)) return Polled::kIdle;
      continue;
    }
    job.share.clear();
    if (job.ordered != nullptr) {
      job.ordered->begin(shared_->tickets.fetch_add(1, std::memory_order_relaxed));
      job.batch.clear_departures();
    }
    if (options_.ended) follow(job);
    job.reads.assign(1, {now, job.batch.size()});
    publish(job, 0);
    return Polled::kFrames;
  }
  return end();
}

// The job is ready for the workers.
void Intake::publish(Job& job, uint32_t qos_class) {
  job.share.packets.fill(job.batch.size());
  job.snapshot = pinned_ ? publisher_->acquire() : publisher_->current();
  job.generation = job.snapshot->generation;
  rings_->view.rings[qos_class].fill<HostAtomics>();
}

// Makes room for what becomes of the packets of a batch that was read, and keeps them as they came.
void Intake::follow(Job& job) {
  const uint32_t n = job.batch.size();
  job.fates.assign(n, {});
  job.share.fates = job.fates.data();
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

// --- classes ---

// The class's open chunk is ready for the workers.
void Intake::hand_on(unsigned qos_class) {
  Job& job = *classes_[qos_class]->open;
  classes_[qos_class]->open = nullptr;
  job.full = open_.taken(qos_class) == options_.priorities->chunk;
  publish(job, qos_class);
}

// Opens the next chunk of the class. kFull: there is no place.
Polled Intake::open_chunk(unsigned qos_class) {
  uint64_t sequence = 0;
  if (!rings_->view.rings[qos_class].may_fill<HostAtomics>(sequence)) return Polled::kFull;
  Job& job = rings_->at(qos_class, sequence);
  if (job.share.given_up && job.lender == nullptr) {
    auto old = job.batch.exchange_arena();  // as poll_job
    if (!old) return fail(std::move(old).error());
    set_aside_.push_back(std::move(*old));
  }
  job.batch.clear_annotations(job.share.annotated);
  job.share.clear();
  job.batch.clear();
  job.reads.clear();
  job.source = sources_[read_source_].entry;
  job.lender = sources_[read_source_].port->lends();
  classes_[qos_class]->open = &job;
  return Polled::kFrames;
}

// The rows of what was read, by class.
void Intake::sort_read() {
  constexpr uint32_t kAhead = 8;  // packets: the frames were written a batch ago
  const ClassMap& map = options_.priorities->classes;
  const uint32_t n = read_left_ = read_.size();
  uint16_t* to[kMaxQosClasses] = {};
  for (unsigned c = 0; c < classes_.size(); ++c) {
    classes_[c]->next = 0;
    classes_[c]->rows.resize(n);
    to[c] = classes_[c]->rows.data();
  }
  for (uint32_t i = 0; i < n; ++i) {
    if (i + kAhead < n) prefetch_read(read_.frame(i + kAhead));
    const unsigned c = map.class_of(dscp_of_frame(read_.frame(i), read_.extent(i).end));
    *to[c]++ = static_cast<uint16_t>(i);
  }
  for (unsigned c = 0; c < classes_.size(); ++c)
    classes_[c]->rows.resize(static_cast<size_t>(to[c] - classes_[c]->rows.data()));
}

// The packet is dropped: its class has no place.
void Intake::refuse(unsigned qos_class, uint32_t row) {
  const uint32_t bytes = read_.extent(row).end;
  add(classes_[qos_class]->packets, 1);
  add(classes_[qos_class]->bytes, bytes);
  Refused& refused = *refused_[qos_class * sources_.size() + read_source_];
  add(refused.packets, 1);
  add(refused.bytes, bytes);
  if (FramePool* const lender = sources_[read_source_].port->lends(); lender != nullptr) {
    uint8_t* const back[] = {read_.frame(row)};
    lender->give(back);
  }
}

// Puts packets of the class into its open chunk, as many as that takes; one at least.
Polled Intake::place(unsigned qos_class) {
  Class& k = *classes_[qos_class];
  Job& job = *k.open;
  const uint32_t at = job.batch.size();
  const auto most = std::min(static_cast<uint32_t>(k.rows.size()) - k.next, job.batch.capacity() - at);
  const uint16_t* from = k.rows.data() + k.next;
  const Batch::Rows rows = job.batch.rows();
  Batch::Room room = job.batch.room();
  uint64_t bytes = 0;
  uint32_t n = 0;
  for (; n < most; ++n) {
    const uint32_t i = from[n];
    const Extent& extent = read_.extent(i);
    uint8_t* frame = read_.frame(i);
    if (job.lender == nullptr) {
      uint8_t* to = room.take(extent.end);
      if (to == nullptr) break;
      // The chunk's memory was last used several chunks ago.
      __builtin_prefetch(to + 8 * Batch::arena_need(extent.end), 1);
      copy_bytes(to, frame, extent.end);
      frame = to;
    }
    rows.frame[at + n] = frame;
    rows.extent[at + n] = extent;
    rows.timestamp_ns[at + n] = read_.timestamp_ns(i);
    bytes += extent.end;
  }
  if (job.lender == nullptr) job.batch.keep(room);
  if (n == 0) {
    // It is empty, and grows for a frame larger than all of it.
    const Extent& extent = read_.extent(from[0]);
    uint8_t* to = job.batch.reserve(extent.end);
    if (to == nullptr) return fail(system_error(fmt::format("a frame of {} bytes", extent.end), ENOMEM));
    std::memcpy(to, read_.frame(from[0]), extent.end);
    rows.frame[0] = to;
    rows.extent[0] = extent;
    rows.timestamp_ns[0] = read_.timestamp_ns(from[0]);
    bytes = extent.end;
    n = 1;
  }
  job.batch.append(at + n);
  k.next += n;
  read_left_ -= n;
  add(k.packets, n);
  add(k.bytes, bytes);
  if (job.reads.empty() || job.reads.back().at_ns != read_ns_) job.reads.push_back({read_ns_, 0});
  job.reads.back().packets += n;
  if (open_.add(qos_class, read_ns_, n)) hand_on(qos_class);
  return Polled::kFrames;
}

// Gives the packets that were read to the chunks of their classes. kFull: a class has no place yet.
Polled Intake::distribute() {
  FramePool* const lender = sources_[read_source_].port->lends();
  bool full = false;
  for (unsigned c = 0; c < classes_.size(); ++c) {
    Class& k = *classes_[c];
    while (k.next < k.rows.size()) {
      const uint32_t row = k.rows[k.next];
      const auto fits = [&](const Job& open) {
        if (open.source != sources_[read_source_].entry || open.lender != lender) return false;
        return lender != nullptr || open.batch.has_room(read_.extent(row).end);
      };
      if (k.open != nullptr && !fits(*k.open)) hand_on(c);
      if (k.open == nullptr) {
        const Polled opened = open_chunk(c);
        if (opened == Polled::kEnd) return opened;
        if (opened == Polled::kFull) {
          full = !options_.priorities->drop_when_full;
          if (full) break;
          refuse(c, row);
          ++k.next;
          --read_left_;
          continue;
        }
      }
      if (const Polled placed = place(c); placed != Polled::kFrames) return placed;
    }
    if (full) break;
  }
  if (!full) return Polled::kFrames;
  // What the other classes have gets no more for a while.
  for (unsigned other = 0; other < classes_.size(); ++other) {
    if (open_.count(other) != 0) hand_on(other);
  }
  return Polled::kFull;
}

Polled Intake::poll_classes() {
  const PriorityOptions& options = *options_.priorities;
  const uint64_t now = now_ns();
  for (unsigned c = 0; c < classes_.size(); ++c) {
    if (open_.due(c, now)) hand_on(c);
  }
  if (read_left_ != 0) return distribute();
  if (read_.capacity() == 0) {
    const uint32_t batch = options_.batch;
    auto made = Batch::create(batch, std::max<size_t>(size_t{1} << 21, size_t{batch} * 2048));
    if (!made) return fail(std::move(made).error());
    read_ = std::move(*made);
    if (begin_ns_ == 0) begin_ns_ = now;
  }
  size_t idle = 0;
  while (choose_source()) {
    const uint64_t came = shared_->packets.load(std::memory_order_relaxed);
    uint64_t most = std::min<uint64_t>(options_.batch, options_.max_packets - came);
    read_ns_ = now;
    if (options.offered_pps != 0) {
      const auto due =
          static_cast<uint64_t>(static_cast<unsigned __int128>(now - begin_ns_) * options.offered_pps / 1'000'000'000);
      if (due <= came) return Polled::kIdle;
      most = std::min(most, due - came);
      // Of the first of them.
      read_ns_ =
          begin_ns_ + static_cast<uint64_t>(static_cast<unsigned __int128>(came) * 1'000'000'000 / options.offered_pps);
      late_ns_ = std::max(late_ns_, now - read_ns_);
    }
    if (!sources_[next_source_].port->ready()) {
      if (nothing(idle)) return Polled::kIdle;
      continue;
    }
    read_source_ = static_cast<unsigned>(next_source_);
    auto more = read(read_source_, read_, most);
    if (!more) {
      read_.clear();
      if (interrupted_) return end();
      return fail(std::move(more).error());
    }
    if (!*more) {
      if (sources_[read_source_].port->live() && nothing(idle)) return Polled::kIdle;
      continue;
    }
    sort_read();
    return distribute();
  }
  return end();
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
  if (!live_) return sources_[next_source_].port->wait(limit);
  if (options_.poll == PollMode::kSpin || (options_.poll == PollMode::kAdaptive && now - busy_ns_ < kSpinNs)) {
    cpu_pause();
    return;
  }
  polled_.clear();
  for (Source& source : sources_) {
    if (source.done) continue;
    BatchSource& port = *source.port;
    if (!port.live()) {
      if (port.ready()) return;
      limit = std::min(limit, kBlindNs);
      continue;
    }
    if (!port.arm()) return;
    const int fd = port.wait_fd();
    if (fd >= 0) {
      polled_.push_back({fd, POLLIN, 0});
    } else {
      limit = std::min(limit, kBlindNs);
    }
  }
  const timespec time{0, static_cast<long>(std::min(limit, kLiveLookNs))};
  (void)::ppoll(polled_.data(), polled_.size(), &time, nullptr);
}

}  // namespace sluice

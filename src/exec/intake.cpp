// host only
#include "exec/intake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/thread.h"
#include "exec/generation.h"
#include "qos/frame_class.h"

namespace sluice {
namespace {

// How long an idle source is waited for at a time: the flag that ends a run is looked at in between.
constexpr uint64_t kLookNs = 50'000'000;

}  // namespace

Intake::Intake(const Router& router, const Plan& plan, const RunOptions& options, Error& errors, const Intake* before)
    : router_(router), plan_(plan), options_(options) {
  FrameCache own;
  std::vector<unsigned> same;
  if (before != nullptr) same = same_elements(before->router_, router);
  for (const PlanSource& s : plan.sources) {
    size_t goes_on = ~size_t{0};
    for (size_t b = 0; before != nullptr && b < before->plan_.sources.size(); ++b) {
      if (same[s.element] == before->plan_.sources[b].element) goes_on = b;
    }
    if (goes_on != ~size_t{0}) {
      sources_.push_back(nullptr);
      links_.push_back(before->links_[goes_on]);
      goes_on_.push_back(goes_on);
      continue;
    }
    auto source = open_source(router.elements[s.element]->port(), options.frames != nullptr ? *options.frames : own,
                              options.inputs);
    if (!source) {
      add_port_error(router, s.element, source.error(), errors);
      continue;
    }
    links_.push_back((*source)->link());
    goes_on_.push_back(goes_on);
    sources_.push_back(std::move(*source));
  }
  source_done_.resize(sources_.size());
  if (!plan.sources.empty()) turn_left_ = source_turn(router.elements[plan.sources[0].element]->port());
}

void Intake::follow(Intake& before) {
  for (size_t s = 0; s < sources_.size(); ++s) {
    const size_t from = goes_on_[s];
    if (from == ~size_t{0}) continue;
    sources_[s] = std::move(before.sources_[from]);
    source_done_[s] = before.source_done_[from];
    if (from != before.next_source_) continue;
    next_source_ = s;
    turn_left_ = before.turn_left_;
  }
  packets_ = before.packets_;
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
  if (read_at_ < read_.size()) {
    if (const Polled handed = distribute(); handed != Polled::kFrames) return handed;
  }
  for (unsigned c = 0; c < classes_.size(); ++c) {
    if (open_.count(c) != 0) hand_on(c);
  }
  return Polled::kIdle;
}

void Intake::connect(JobRings& rings, const Egress& egress, const Publisher& publisher, bool pinned) {
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
  for (size_t s = 0; s < source_done_.size(); ++s)
    read.refused += refused_[c * source_done_.size() + s]->packets.load(std::memory_order_relaxed);
  return read;
}

void Intake::report(RunReport& report) const {
  report.late_ns = late_ns_;
  for (size_t i = 0; i < refused_.size(); ++i) {
    const uint64_t packets = refused_[i]->packets.load(std::memory_order_relaxed);
    const uint64_t bytes = refused_[i]->bytes.load(std::memory_order_relaxed);
    if (packets == 0) continue;
    ElementCounters& counters = report.totals.elements[plan_.sources[i % source_done_.size()].element];
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
  if (packets_ >= options_.max_packets || egress_->failed()) return false;
  if (options_.stopped()) {
    interrupted_ = true;
    return false;
  }
  for (size_t tried = 0; tried < sources_.size(); ++tried) {
    if (!source_done_[next_source_]) return true;
    next_turn();
  }
  return false;
}

void Intake::next_turn() {
  next_source_ = (next_source_ + 1) % sources_.size();
  turn_left_ = source_turn(router_.elements[plan_.sources[next_source_].element]->port());
}

// Fills a batch from the source whose turn it is. False: the source is at its end.
Result<bool> Intake::read(unsigned source, Batch& batch, uint64_t most) {
  const bool turns = sources_.size() > 1;
  batch.set_limit(static_cast<uint32_t>(std::min<uint64_t>(most, turns ? turn_left_ : batch.capacity())));
  if (auto ok = sources_[source]->read(batch); !ok) {
    // A signal ends the waits of inputs: what they say is what it did to them.
    if (options_.stopped()) {
      interrupted_ = true;
    } else {
      damaged_ = true;
    }
    return std::move(ok).error();
  }
  const bool done = batch.size() == 0;
  if (done) source_done_[source] = true;
  if (turns) turn_left_ -= batch.size();
  if (done || turn_left_ == 0) next_turn();
  packets_ += batch.size();
  return !done;
}

Polled Intake::poll_job() {
  uint64_t sequence = 0;
  const ChunkRing& ring = rings_->view.rings[0];
  if (!ring.may_fill<HostAtomics>(sequence)) return Polled::kFull;
  Job& job = rings_->at(0, sequence);
  while (choose_source()) {
    if (!sources_[next_source_]->ready()) return Polled::kIdle;
    if (job.share.given_up) {
      // A device that was given up with frames of this batch may still write into them: the next packets lie elsewhere.
      // That is not pinned, as to pin may wait for this very device; so no device reaches it, none is given up with
      // frames there, and a job sets one arena aside at most.
      auto old = job.batch.exchange_arena();
      if (!old) return fail(std::move(old).error());
      set_aside_.push_back(std::move(*old));
      job.share.given_up = false;
    }
    job.source = static_cast<unsigned>(next_source_);
    const uint64_t now = now_ns();
    const Egress::BatchLimit limit = egress_->batch_limit();
    job.round = limit.round;
    job.batch.clear_annotations(job.share.annotated);
    auto more = read(job.source, job.batch, std::min<uint64_t>(options_.max_packets - packets_, limit.packets));
    if (!more) {
      if (interrupted_) return end();
      return fail(std::move(more).error());
    }
    if (!*more) continue;
    job.share.clear();
    if (job.ordered != nullptr) {
      job.ordered->begin(sequence);
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
  if (job.share.given_up) {
    auto old = job.batch.exchange_arena();  // as poll_job
    if (!old) return fail(std::move(old).error());
    set_aside_.push_back(std::move(*old));
  }
  job.share.clear();
  job.batch.clear();
  job.reads.clear();
  job.source = read_source_;
  classes_[qos_class]->open = &job;
  return Polled::kFrames;
}

// Gives the packets that were read to the chunks of their classes. kFull: one has no place yet.
Polled Intake::distribute() {
  const PriorityOptions& options = *options_.priorities;
  for (; read_at_ < read_.size(); ++read_at_) {
    const uint32_t i = read_at_;
    const Extent& extent = read_.extent(i);
    const uint8_t* frame = read_.frame(i);
    const unsigned c = options.classes.class_of(dscp_of_frame(frame, extent.end));
    Class& k = *classes_[c];
    if (k.open != nullptr && (k.open->source != read_source_ || !k.open->batch.has_room(extent.end))) hand_on(c);
    if (k.open == nullptr) {
      const Polled opened = open_chunk(c);
      if (opened == Polled::kEnd) return opened;
      if (opened == Polled::kFull) {
        if (!options.drop_when_full) {
          // What the other classes have gets no more for a while.
          for (unsigned other = 0; other < classes_.size(); ++other) {
            if (open_.count(other) != 0) hand_on(other);
          }
          return Polled::kFull;
        }
        add(k.packets, 1);
        add(k.bytes, extent.end);
        Refused& refused = *refused_[c * sources_.size() + read_source_];
        add(refused.packets, 1);
        add(refused.bytes, extent.end);
        continue;
      }
    }
    add(k.packets, 1);
    add(k.bytes, extent.end);
    Job& job = *k.open;
    uint8_t* to = job.batch.reserve(extent.end);
    if (to == nullptr) return fail(Error(fmt::format("no memory for a frame of {} bytes", extent.end)));
    std::memcpy(to, frame, extent.end);
    job.batch.push(to, extent.end, extent.wire_end, read_.timestamp_ns(i), job.batch.size());
    if (job.reads.empty() || job.reads.back().at_ns != read_ns_) job.reads.push_back({read_ns_, 0});
    ++job.reads.back().packets;
    if (open_.add(c, read_ns_)) hand_on(c);
  }
  return Polled::kFrames;
}

Polled Intake::poll_classes() {
  const PriorityOptions& options = *options_.priorities;
  const uint64_t now = now_ns();
  for (unsigned c = 0; c < classes_.size(); ++c) {
    if (open_.due(c, now)) hand_on(c);
  }
  if (read_at_ < read_.size()) return distribute();
  if (read_.capacity() == 0) {
    const uint32_t batch = options_.batch;
    auto made = Batch::create(batch, std::max<size_t>(size_t{1} << 21, size_t{batch} * 2048));
    if (!made) return fail(std::move(made).error());
    read_ = std::move(*made);
    if (begin_ns_ == 0) begin_ns_ = now;
  }
  while (choose_source()) {
    uint64_t most = std::min<uint64_t>(options_.batch, options_.max_packets - packets_);
    read_ns_ = now;
    if (options.offered_pps != 0) {
      const auto due =
          static_cast<uint64_t>(static_cast<unsigned __int128>(now - begin_ns_) * options.offered_pps / 1'000'000'000);
      if (due <= packets_) return Polled::kIdle;
      most = std::min(most, due - packets_);
      // Of the first of them.
      read_ns_ = begin_ns_ +
                 static_cast<uint64_t>(static_cast<unsigned __int128>(packets_) * 1'000'000'000 / options.offered_pps);
      late_ns_ = std::max(late_ns_, now - read_ns_);
    }
    if (!sources_[next_source_]->ready()) return Polled::kIdle;
    read_source_ = static_cast<unsigned>(next_source_);
    read_at_ = 0;
    auto more = read(read_source_, read_, most);
    if (!more) {
      read_.clear();
      if (interrupted_) return end();
      return fail(std::move(more).error());
    }
    if (!*more) continue;
    return distribute();
  }
  return end();
}

void Intake::wait() {
  if (options_.priorities && options_.priorities->offered_pps != 0) {
    cpu_pause();
    return;
  }
  uint64_t limit = kLookNs;
  const uint64_t now = now_ns();
  for (unsigned c = 0; c < classes_.size(); ++c) {
    if (open_.count(c) != 0) limit = std::min(limit, open_.left_ns(c, now));
  }
  if (limit != 0) sources_[next_source_]->wait(limit);
}

}  // namespace sluice

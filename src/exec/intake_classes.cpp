// host only
// What an intake reads, sorted by class into chunks.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "base/clock.h"
#include "base/copy_bytes.h"
#include "base/prefetch.h"
#include "exec/egress.h"
#include "exec/intake.h"
#include "exec/job.h"
#include "qos/frame_class.h"

namespace sluice {

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
  constexpr uint32_t kAhead = 32;  // packets: about a memory latency
  const ClassMap map = options_.priorities->classes;
  const uint32_t n = read_left_ = read_.size();
  for (const auto& k : classes_) {
    k->next = k->count = 0;
    k->rows.resize(read_.capacity());
  }
  const Batch::Rows rows = read_.rows();
  uint8_t of[Batch::kMaxPackets];
  for (uint32_t i = 0; i < n; ++i) {
    prefetch_read(rows.frame[i + kAhead < n ? i + kAhead : i]);
    of[i] = static_cast<uint8_t>(map.class_of(dscp_of_frame(rows.frame[i], rows.extent[i].end)));
  }
  const auto alike = static_cast<uint32_t>(std::find_if(of, of + n, [&](uint8_t c) { return c != of[0]; }) - of);
  if (alike == n) {
    std::iota(classes_[of[0]]->rows.data(), classes_[of[0]]->rows.data() + n, uint16_t{0});
    classes_[of[0]]->count = n;
    return;
  }
  uint16_t* to[kMaxQosClasses] = {};
  for (unsigned c = 0; c < classes_.size(); ++c) to[c] = classes_[c]->rows.data();
  for (uint32_t i = 0; i < n; ++i) *to[of[i]]++ = static_cast<uint16_t>(i);
  for (unsigned c = 0; c < classes_.size(); ++c)
    classes_[c]->count = static_cast<uint32_t>(to[c] - classes_[c]->rows.data());
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
  const auto most = std::min(k.count - k.next, job.batch.capacity() - at);
  const uint16_t* from = k.rows.data() + k.next;
  const Batch::Rows rows = job.batch.rows();
  Batch::Room room = job.batch.room();
  const Batch::Rows read = read_.rows();
  uint64_t bytes = 0;
  uint32_t n = 0;
  if (job.lender != nullptr) {
    for (; n < most; ++n) rows.frame[at + n] = read.frame[from[n]];
  } else {
    for (; n < most; ++n) {
      const uint32_t length = read.extent[from[n]].end;
      uint8_t* to = room.take(length);
      if (to == nullptr) break;
      prefetch_write(to + 8 * Batch::arena_need(length));
      copy_bytes(to, read.frame[from[n]], length);
      rows.frame[at + n] = to;
    }
    job.batch.keep(room);
  }
  if (n != 0 && from[n - 1] - from[0] == static_cast<int>(n - 1)) {
    // Rows ascend, so these follow one another: most of the time all that was read is of one class.
    std::copy_n(read.extent + from[0], n, rows.extent + at);
    std::copy_n(read.timestamp_ns + from[0], n, rows.timestamp_ns + at);
  } else {
    for (uint32_t i = 0; i < n; ++i) {
      rows.extent[at + i] = read.extent[from[i]];
      rows.timestamp_ns[at + i] = read.timestamp_ns[from[i]];
    }
  }
  for (uint32_t i = 0; i < n; ++i) bytes += rows.extent[at + i].end;
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
    while (k.next < k.count) {
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
    uint64_t most = std::min<uint64_t>(options_.batch, options_.max_packets - std::min(options_.max_packets, came));
    if (most == 0) continue;
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
      return read_failed(std::move(more).error());
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

}  // namespace sluice

// host only
// What an intake reads, sorted by class into chunks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/copy_bytes.h"
#include "base/prefetch.h"
#include "exec/engine/egress.h"
#include "exec/engine/intake.h"
#include "exec/engine/job.h"
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
  job.numbers.clear();
  job.source = sources_[read_source_].entry;
  job.lender = sources_[read_source_].port->lends();
  job.lends_rows = sources_[read_source_].lends && read_.unfilled() != nullptr;
  if (job.lends_rows) {
    job.share.lent = sources_[read_source_].port->lent().frames;
    job.records.resize(job.batch.capacity());
    job.timestamps.resize(job.batch.capacity());
    job.bytes_before.resize(job.batch.capacity() + 1);  // the first stays 0
  }
  classes_[qos_class]->open = &job;
  return Polled::kFrames;
}

namespace {

constexpr uint32_t kPacketsAhead = 32;  // packets: about a memory latency
// How many may wait at egress for packets that came before them while more are read: a class that is far behind the
// others holds up the input, and not its memory.
constexpr uint64_t kMostInOrder = 16'384;

// All rows, for a class that has all of them.
constexpr auto kAll = [] {
  std::array<uint16_t, Batch::kMaxPackets> rows{};
  for (uint32_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(i);
  return rows;
}();

// Packets that were read: from filled columns, or as a source lends them, whose columns nobody fills.
struct FilledRows {
  Batch::Rows rows;
  uint32_t count;
  static const LentRows* lent() { return nullptr; }
  uint8_t* frame(uint32_t i) const { return rows.frame[i]; }
  uint32_t bytes(uint32_t i) const { return rows.extent[i].end; }
  Extent extent(uint32_t i) const { return rows.extent[i]; }
  uint64_t timestamp_ns(uint32_t i) const { return rows.timestamp_ns[i]; }
  void ask(uint32_t i) const { prefetch_read(frame(i + kPacketsAhead < count ? i + kPacketsAhead : i)); }
  static void copy(uint8_t* to, const uint8_t* frame, uint32_t length) { copy_bytes(to, frame, length); }
};
struct UnfilledRows {
  LentRows rows;
  const LentRows* lent() const { return &rows; }
  uint8_t* frame(uint32_t i) const { return rows.memory + rows.records[i].at; }
  uint32_t bytes(uint32_t i) const { return rows.records[i].bytes; }
  Extent extent(uint32_t i) const {
    const FrameRecord record = rows.records[i];
    return {0, record.bytes, uint32_t{record.bytes} + record.longer, 0, 0xffff};
  }
  uint64_t timestamp_ns(uint32_t i) const { return rows.timestamps[i] + rows.later_ns; }
  // Those of the next batch among them; records and time stamps come before the frames.
  void ask(uint32_t i) const {
    const uint64_t left = rows.total - rows.row;
    if (i + kPacketsAhead < left) prefetch_read(frame(i + kPacketsAhead));
    if (i % 8 == 0 && i + 4 * kPacketsAhead < left) {
      prefetch_read(rows.records + i + 4 * kPacketsAhead);
      prefetch_read(rows.timestamps + i + 4 * kPacketsAhead);
    }
  }
  // Both have room for whole lines.
  static void copy(uint8_t* to, const uint8_t* frame, uint32_t length) {
    std::memcpy(to, frame, kLentAhead);
    for (uint32_t at = kLentAhead; at < length; at += kLentAhead) std::memcpy(to + at, frame + at, kLentAhead);
  }
};

template <typename With>
auto with_rows(Batch& batch, const With& with) {
  const LentRows* const unfilled = batch.unfilled();
  return unfilled != nullptr ? with(UnfilledRows{*unfilled}) : with(FilledRows{batch.rows(), batch.size()});
}

}  // namespace

// The rows of what was read, by class.
template <typename Came>
void Intake::sort_read(const Came& came) {
  const ClassMap map = options_.priorities->classes;
  const uint32_t n = read_left_ = read_.size();
  read_number_ = std::exchange(next_number_, next_number_ + n);
  for (const auto& k : classes_) {
    k->next = k->count = 0;
    k->sorted.resize(read_.capacity());
    k->rows = k->sorted.data();
  }
  uint8_t of[Batch::kMaxPackets];
  unsigned seen = 0;  // classes
  for (uint32_t i = 0; i < n; ++i) {
    came.ask(i);
    const unsigned c = map.class_of(dscp_of_frame(came.frame(i), came.bytes(i)));
    of[i] = static_cast<uint8_t>(c);
    seen |= 1u << c;
  }
  if (n != 0 && seen == 1u << of[0]) {
    classes_[of[0]]->rows = kAll.data();
    classes_[of[0]]->count = n;
    return;
  }
  uint16_t* to[kMaxQosClasses] = {};
  for (unsigned c = 0; c < classes_.size(); ++c) to[c] = classes_[c]->sorted.data();
  for (uint32_t i = 0; i < n; ++i) *to[of[i]]++ = static_cast<uint16_t>(i);
  for (unsigned c = 0; c < classes_.size(); ++c) classes_[c]->count = static_cast<uint32_t>(to[c] - classes_[c]->rows);
}

// The packet is dropped: its class has no place.
void Intake::refuse(unsigned qos_class, uint32_t row, uint8_t* frame, uint32_t bytes) {
  if (numbered_) skipped_.push_back(read_number_ + row);
  classes_[qos_class]->packets.add(1);
  classes_[qos_class]->bytes.add(bytes);
  Refused& refused = *refused_[qos_class * sources_.size() + read_source_];
  refused.packets.add(1);
  refused.bytes.add(bytes);
  if (FramePool* const lender = sources_[read_source_].port->lends(); lender != nullptr) {
    uint8_t* const back[] = {frame};
    lender->give(back);
  }
}

// Puts packets of the class into its open chunk, as many as that takes; one at least.
template <typename Came>
Polled Intake::place(unsigned qos_class, const Came& came) {
  Class& k = *classes_[qos_class];
  Job& job = *k.open;
  const uint32_t at = job.batch.size();
  const auto most = std::min(k.count - k.next, job.batch.capacity() - at);
  const uint16_t* from = k.rows + k.next;
  const Batch::Rows rows = job.batch.rows();
  uint64_t bytes = 0;
  uint32_t n = 0;
  const auto copy_in = [&](auto row) {
    const bool close = close_;
    Batch::Room room = job.batch.room();
    for (; n < most; ++n) {
      const uint32_t length = came.bytes(row(n));
      uint8_t* to = close ? room.take_close(length) : room.take(length);
      if (to == nullptr) break;
      prefetch_write(to + 8 * (close ? Batch::close_need(length) : Batch::arena_need(length)));
      came.copy(to, came.frame(row(n)), length);
      rows.frame[at + n] = to;
    }
    job.batch.keep(room);
  };
  const auto note = [&](auto row) {
    for (uint32_t i = 0; i < n; ++i) {
      const Extent extent = came.extent(row(i));
      bytes += extent.end;
      rows.extent[at + i] = extent;
    }
    for (uint32_t i = 0; i < n; ++i) rows.timestamp_ns[at + i] = came.timestamp_ns(row(i));
  };
  const LentRows* const lent = job.lends_rows ? came.lent() : nullptr;
  const auto note_lent = [&](auto row) {
    uint64_t before = job.bytes_before[at];
    for (; n < most; ++n) {
      const FrameRecord record = lent->records[row(n)];
      job.records[at + n] = record;
      job.timestamps[at + n] = came.timestamp_ns(row(n));
      job.bytes_before[at + n + 1] = before += record.bytes;
    }
    bytes = before - job.bytes_before[at];
  };
  const auto each = [&](auto row) {
    if (lent != nullptr) {
      note_lent(row);
      return;
    }
    if (job.lender != nullptr) {
      for (; n < most; ++n) rows.frame[at + n] = came.frame(row(n));
    } else {
      copy_in(row);
    }
    note(row);
  };
  const auto scattered = [from](uint32_t i) -> uint32_t { return from[i]; };
  // Rows ascend, so these may follow one another: often all that was read is of one class.
  if (from[most - 1] - from[0] == static_cast<int>(most - 1))
    each([first = uint32_t{from[0]}](uint32_t i) { return first + i; });
  else
    each(scattered);
  if (n == 0) {
    // It is empty, and grows for a frame larger than all of it; or one more than lies close has room.
    const uint32_t length = came.bytes(from[0]);
    uint8_t* to = job.batch.reserve(length);
    if (to == nullptr) return fail(system_error(fmt::format("a frame of {} bytes", length), ENOMEM));
    std::memcpy(to, came.frame(from[0]), length);
    rows.frame[at] = to;
    n = 1;
    note(scattered);
  }
  if (lent != nullptr) {
    job.lend(*lent, at + n);
  } else {
    job.batch.append(at + n);
  }
  if (numbered_) {
    for (uint32_t i = 0; i < n; ++i) job.numbers.push_back(read_number_ + from[i]);
  }
  k.next += n;
  read_left_ -= n;
  k.packets.add(n);
  k.bytes.add(bytes);
  if (job.reads.empty() || job.reads.back().at_ns != read_ns_) job.reads.push_back({read_ns_, 0});
  job.reads.back().packets += n;
  if (open_.add(qos_class, read_ns_, n)) hand_on(qos_class);
  return Polled::kFrames;
}

// Gives the packets that were read to the chunks of their classes. kFull: a class has no place yet.
template <typename Came>
Polled Intake::distribute(const Came& came) {
  FramePool* const lender = sources_[read_source_].port->lends();
  bool full = false;
  for (unsigned c = 0; c < classes_.size(); ++c) {
    Class& k = *classes_[c];
    while (k.next < k.count) {
      const uint32_t row = k.rows[k.next];
      const auto fits = [&](const Job& open) {
        if (open.source != sources_[read_source_].entry || open.lender != lender) return false;
        // Of one source's memory, all or none.
        if (open.lends_rows != (sources_[read_source_].lends && came.lent() != nullptr)) return false;
        if (open.lends_rows)
          return open.batch.unfilled() == nullptr || open.batch.unfilled()->memory == came.lent()->memory;
        return lender != nullptr || open.batch.has_room(came.bytes(row));
      };
      if (k.open != nullptr && !fits(*k.open)) hand_on(c);
      if (k.open == nullptr) {
        const Polled opened = open_chunk(c);
        if (opened == Polled::kEnd) return opened;
        if (opened == Polled::kFull) {
          full = !options_.priorities->drop_when_full;
          if (full) break;
          refuse(c, row, came.frame(row), came.bytes(row));
          ++k.next;
          --read_left_;
          continue;
        }
      }
      if (const Polled placed = place(c, came); placed != Polled::kFrames) return placed;
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

Polled Intake::distribute() {
  const Polled given = with_rows(read_, [&](const auto& came) { return distribute(came); });
  if (!skipped_.empty()) egress_->skip(skipped_);
  skipped_.clear();
  return given;
}

Polled Intake::poll_classes() {
  const PriorityOptions& options = *options_.priorities;
  const uint64_t now = now_ns();
  for (unsigned c = 0; c < classes_.size(); ++c) {
    if (open_.due(c, now)) hand_on(c);
  }
  if (read_left_ != 0) return distribute();
  // What they wait for may be in an open chunk.
  if (egress_->waiting_in_order() > kMostInOrder) {
    for (unsigned c = 0; c < classes_.size(); ++c) {
      if (open_.count(c) != 0) hand_on(c);
    }
    return Polled::kFull;
  }
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
    with_rows(read_, [&](const auto& rows) { sort_read(rows); });
    return distribute();
  }
  return end();
}

}  // namespace sluice

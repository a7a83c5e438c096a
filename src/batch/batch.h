// Batch: up to 8192 packets as columns in one memory space.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/hd.h"
#include "base/result.h"
#include "batch/lent_rows.h"
#include "batch/packet.h"
#include "batch/selection.h"
#include "batch/translation.h"
#include "memory/buffer.h"

namespace sluice {

struct Extent {
  int32_t data;
  uint32_t end;
  uint32_t wire_end;
  uint16_t l3;
  uint16_t l4;
};

struct Annotation {
  uint32_t rule;
  uint32_t mark;
  uint32_t next_hop;
  uint16_t ether_type;
  uint16_t vlan_tci;
  uint16_t icmp_detail;
  uint16_t ip_flags;
  uint8_t vlan_count;
  uint8_t ttl;
  uint8_t paint;
  DropReason reason;
  uint8_t limiter;   // 1-based egress rate limiter that this packet is subject to, 0: none
  uint8_t appended;  // see Packet
  uint16_t port;     // in a batch always 0: there it has a column of its own (BatchView)
};
static_assert(sizeof(Extent) == 16 && sizeof(Annotation) == 28);

// The columns by pointer: trivially copyable, passed by value to kernels. Column i of packet i; `count` rows are valid.
// Ports have a column of their own, since most packets that leave have one and no other annotation.
struct BatchView {
  uint8_t** frame;
  Extent* extent;
  Annotation* annotation;
  uint16_t* port;
  FlowKey* key;
  uint32_t count;
  uint32_t* egress_note;  // on the host, where the batch has them (Batch::keep_egress_notes); else nullptr

  // Fills the registers of packet i; `live` says which spilled columns hold something.
  SLUICE_HD void load(uint32_t i, FieldMask live, Packet& p) const {
    p.frame = frame[i];
    memcpy(&p.data, &extent[i], sizeof(Extent));
    memcpy(&p.rule, &annotation[i], offsetof(Annotation, port));
    p.port = port[i];
    if ((live & (kFieldKey | kFieldDestination)) != 0) p.key = key[i];
  }
  // Writes the registers back; `live` says which columns somebody reads later. See Batch::append.
  SLUICE_HD void store(uint32_t i, FieldMask live, const Packet& p) const {
    memcpy(&extent[i], &p.data, sizeof(Extent));
    memcpy(&annotation[i], &p.rule, offsetof(Annotation, port));
    port[i] = p.port;
    if ((live & (kFieldKey | kFieldDestination)) != 0) key[i] = p.key;
  }
};
static_assert(std::is_trivially_copyable_v<BatchView>);
// Both are whole runs of registers, so that a load and a store are a few vector moves.
static_assert(offsetof(Packet, l4) - offsetof(Packet, data) == offsetof(Extent, l4) &&
              offsetof(Packet, end) - offsetof(Packet, data) == offsetof(Extent, end) &&
              offsetof(Packet, l3) - offsetof(Packet, data) == offsetof(Extent, l3));
static_assert(offsetof(Packet, port) - offsetof(Packet, rule) == offsetof(Annotation, port) &&
              offsetof(Annotation, port) + 2 == sizeof(Annotation) &&
              offsetof(Packet, ip_flags) - offsetof(Packet, rule) == offsetof(Annotation, ip_flags) &&
              offsetof(Packet, reason) - offsetof(Packet, rule) == offsetof(Annotation, reason) &&
              offsetof(Packet, appended) - offsetof(Packet, rule) == offsetof(Annotation, appended));

// Owns the columns and an arena for frames. Reused for ever: no allocation after `create`, except that `reserve_bytes`
// may grow the arena for a frame larger than any before.
class Batch {
 public:
  static constexpr uint32_t kMaxPackets = 8192;

  // `capacity` packets (1..kMaxPackets) and `arena_bytes` of frame memory (0: this batch only refers to frames
  // elsewhere).
  static Result<Batch> create(uint32_t capacity, size_t arena_bytes);

  uint32_t capacity() const { return capacity_; }
  // Rows that every column has: whole words of a Selection, so that 64 rows can be read at once, packets or not.
  static constexpr size_t rows_for(uint32_t packets) { return (size_t{packets} + 63) / 64 * 64; }
  uint32_t size() const { return count_; }
  // Packets that the batch takes for now, 1..capacity(); capacity() after `create`.
  uint32_t limit() const { return limit_; }
  void set_limit(uint32_t limit) { limit_ = limit < 1 ? 1 : limit > capacity_ ? capacity_ : limit; }
  bool full() const { return count_ >= limit_; }
  // Fills columns that were left unfilled.
  BatchView view() {
    fill();
    return BatchView{frame_.data(),
                     extent_.data(),
                     annotation_.data(),
                     port_.data(),
                     key_.data(),
                     count_,
                     egress_note_.empty() ? nullptr : egress_note_.data()};
  }

  // Adds a column for packets that have left as whole untagged IPv4 frames without padding: their codepoint above the
  // bytes of the IP packet. Whoever sends them notes it, and who counts them need not read frame or extent again.
  void keep_egress_notes() { egress_note_.assign(rows_for(capacity_), kNotNoted); }
  static constexpr uint32_t kNotNoted = ~uint32_t{0};
  static constexpr unsigned kNoteBytesBits = 16;

  // The memory behind `reserve`: it moves only when a frame larger than all of it comes.
  std::span<std::byte> arena() { return {reinterpret_cast<std::byte*>(arena_.data()), arena_bytes_}; }

  // Forgets the packets, takes a new arena of the same size and gives the old one away: somebody may still write there.
  // Errors: out of memory; nothing has changed then.
  Result<Buffer> exchange_arena();

  // Forgets the packets and the arena's contents.
  void clear() {
    count_ = 0;
    used_ = 0;
    unfilled_ = false;
    forget_translations();
  }

  // Room for a frame of `bytes` with kHeadroom before it and kTailroom after it, 64-byte aligned; nullptr when the
  // arena is full. The batch must not be full. A batch that is empty grows its arena for a frame that does not fit at
  // all.
  uint8_t* reserve(size_t bytes) {
    const size_t need = arena_need(bytes);
    if (need > arena_bytes_ - used_) return reserve_slow(need);
    uint8_t* frame = arena_base_ + used_ + kHeadroom;
    used_ += need;
    return frame;
  }
  // Whether a packet of `bytes` can be added: neither the limit is reached nor the arena full.
  bool has_room(size_t bytes) const { return !full() && (count_ == 0 || arena_need(bytes) <= arena_bytes_ - used_); }

  // Adds a packet whose frame lies at `frame` (from `reserve`, or anywhere that outlives the batch's use). Returns its
  // index.
  uint32_t push(uint8_t* frame, uint32_t captured, uint32_t wire, uint64_t timestamp_ns, uint32_t order) {
    const uint32_t i = count_++;
    frame_[i] = frame;
    extent_[i] = Extent{0, captured, wire, 0, 0xffff};
    annotation_[i] = Annotation{};
    port_[i] = 0;
    if (!egress_note_.empty()) egress_note_[i] = kNotNoted;
    timestamp_ns_[i] = timestamp_ns;
    order_[i] = order;
    numbered_ &= order == i;
    return i;
  }

  // What a frame of `bytes` takes of the arena. An odd number of cache lines: the headers of small frames, which are
  // all that most programs touch, then lie in all sets of a cache and not in every fourth.
  static constexpr size_t arena_need(size_t bytes) { return ((kHeadroom + bytes + kTailroom + 63) / 64 | 1) * 64; }

  // The same where frames lie close: multiples of 16, as lent ones.
  static constexpr size_t close_need(size_t bytes) { return lent_bytes(bytes) + lent_bytes(kCloseHeadroom); }

  // The same for a frame whose head room nobody has filled: zeros, so that no other packet's bytes can show there.
  uint8_t* reserve_clean(size_t bytes) {
    uint8_t* frame = reserve(bytes);
    if (frame != nullptr) std::memset(frame - kHeadroom, 0, kHeadroom);
    return frame;
  }

  // `reserve` for many frames, with its cursor in the caller's registers: room(), take() for each, then keep().
  class Room {
   public:
    // nullptr: full.
    uint8_t* take(size_t bytes) {
      const size_t need = arena_need(bytes);
      if (need > left_) return nullptr;
      uint8_t* frame = at_ + kHeadroom;
      at_ += need;
      left_ -= need;
      return frame;
    }
    // As close as frames may lie that nobody writes more than kCloseHeadroom in front of, or anything behind.
    uint8_t* take_close(size_t bytes) {
      const size_t need = close_need(bytes);
      if (need + kHeadroom + kTailroom > left_) return nullptr;
      uint8_t* frame = at_ + kHeadroom;
      at_ += need;
      left_ -= need;
      return frame;
    }
    // Room for up to n frames of `bytes` each, arena_need(bytes) apart; `taken` says how many. Returns the first.
    uint8_t* take_many(size_t bytes, uint32_t n, uint32_t& taken) {
      const size_t need = arena_need(bytes);
      taken = n <= left_ / need ? n : static_cast<uint32_t>(left_ / need);
      uint8_t* first = at_ + kHeadroom;
      at_ += taken * need;
      left_ -= taken * need;
      return first;
    }

   private:
    friend class Batch;
    Room(uint8_t* at, size_t left) : at_(at), left_(left) {}
    uint8_t* at_;
    size_t left_;
  };
  Room room() { return {arena_base_ + used_, arena_bytes_ - used_}; }
  void keep(const Room& room) { used_ = arena_bytes_ - room.left_; }

  // All of the arena, for frames that come many at a time and as close as they lie in a capture: kHeadroom before the
  // first of them and kTailroom after the last one stay. Of an empty batch, where nobody writes more than
  // kCloseHeadroom in front of a frame, or anything behind it.
  std::span<std::byte> take_whole_room() {
    used_ = arena_bytes_;
    if (arena_bytes_ <= size_t{kHeadroom} + kTailroom) return {};
    return arena().subspan(kHeadroom - kCloseHeadroom, arena_bytes_ - kHeadroom + kCloseHeadroom - kTailroom);
  }

  // The same for many at a time: the caller fills rows [0, n) of an empty batch, n at most limit(), then calls
  // append(n), which numbers them. Their annotations are cleared where `annotation` gave them out, and else by
  // `clear_annotations` before: most packets never have any.
  struct Rows {
    uint8_t** frame;
    Extent* extent;
    uint64_t* timestamp_ns;
  };
  Rows rows() { return {frame_.data(), extent_.data(), timestamp_ns_.data()}; }
  void append(uint32_t n) {
    static_assert(static_cast<uint8_t>(DropReason::kNone) == 0);
    std::memset(port_.data(), 0, n * sizeof port_[0]);
    if (!egress_note_.empty()) std::memset(egress_note_.data(), 0xff, n * sizeof egress_note_[0]);
    if (annotated_ != 0) std::memset(static_cast<void*>(annotation_.data()), 0, annotated_ * sizeof(Annotation));
    annotated_ = 0;
    forget_translations();
    if (!numbered_) number();
    count_ = n;
  }

  // The first n rows of an empty batch, n at most limit(), are these. Frames, extents and time stamps are left
  // unfilled: whoever reads them by row calls `fill` before, or takes what it needs from `unfilled`.
  void lend(const LentRows& rows, uint32_t n) {
    append(n);
    lent_ = rows;
    unfilled_ = true;
  }
  // nullptr: the columns are filled.
  const LentRows* unfilled() const { return unfilled_ ? &lent_ : nullptr; }
  // kLentTail bytes were appended to each unfilled frame. `tails`: which, row by row; nullptr: they are elsewhere.
  void append_unfilled(const uint8_t* tails) {
    lent_.tail = kLentTail;
    lent_.tails = tails;
  }
  // The frames were edited where the host does not reach them: the packets may be counted, and nothing else.
  void edit_elsewhere() { lent_.elsewhere = true; }
  // The first `head` bytes of each unfilled frame were edited, and lie at `heads`, row by row. When the columns are
  // filled the frames come to `memory` (as LentRows::memory), in the same order and as far apart.
  void edit_unfilled(const uint8_t* heads, uint32_t head, uint8_t* memory) {
    lent_.rest = lent_.memory;
    lent_.memory = memory;
    lent_.heads = heads;
    lent_.head = head;
  }
  // Unfilled frames have lost bytes: what, the caller fills in row by row, for rows_for(size()) rows, and the sum of it
  // for every 64 rows.
  struct Trims {
    FrameTrim* rows;
    uint32_t* sums;
  };
  Trims trim_unfilled() {
    lent_.trims = trim_.data();
    lent_.trimmed = trimmed_.data();
    return {trim_.data(), trimmed_.data()};
  }
  void fill() {
    if (unfilled_) fill_slow();
  }

  // Adds a packet that packet `i` of `from` caused: it has its time stamp, its order and its translation, and is its
  // child where the batch keeps descent. `frame` is from `reserve_clean`. Returns its index.
  uint32_t push_made(const Batch& from, uint32_t i, uint8_t* frame, uint32_t captured, uint32_t wire) {
    const uint32_t k = push(frame, captured, wire, from.timestamp_ns_[i], from.order_[i]);
    if (!birth_.empty()) birth_[k] = {from.name(i), maker_};
    if (from.translated_ && from.translation_[i].any()) translation(k) = from.translation_[i];
    return k;
  }
  // Copies packet `i` of `from` (frame bytes, headroom contents, registers) into this batch, as `push_made`. Returns
  // false when there is no room.
  bool clone(const Batch& from, uint32_t i);

  // Descent (exec/walk/descent.h): how each packet of this batch was made, for a batch that elements make.
  struct Birth {
    uint32_t parent;  // its name
    uint64_t maker;   // what `set_maker` said
  };
  void keep_descent() { birth_.resize(rows_for(capacity_)); }
  // What makes the packets that are added from here on.
  void set_maker(uint64_t maker) { maker_ = maker; }
  const Birth& birth(uint32_t i) const { return birth_[i]; }
  // Packet i of the batch that came in is named i; those of a batch that elements made have names of their own.
  void set_first_name(uint32_t name) { first_name_ = name; }
  uint32_t name(uint32_t i) const { return first_name_ + i; }

  uint8_t* frame(uint32_t i) const { return frame_[i]; }
  Extent& extent(uint32_t i) { return extent_[i]; }
  const Extent& extent(uint32_t i) const { return extent_[i]; }
  // Safe on several threads, for rows of their own.
  Annotation& annotation(uint32_t i) {
    const std::atomic_ref<uint32_t> rows(annotated_);
    if (rows.load(std::memory_order_relaxed) < count_) rows.store(count_, std::memory_order_relaxed);
    return annotation_[i];
  }
  const Annotation& annotation(uint32_t i) const { return annotation_[i]; }
  // Those of `rows`, which were written by a view.
  void clear_annotations(const Selection& rows) {
    rows.for_each([&](uint32_t i) { annotation_[i] = Annotation{}; });
  }
  // What is still to be written into packet i (batch/translation.h). The column comes with the first one that is asked
  // for.
  Translation& translation(uint32_t i) {
    if (translation_.empty()) translation_.resize(rows_for(capacity_));
    translated_ = true;
    return translation_[i];
  }
  // Whether a packet may have one; else there is no column.
  bool translated() const { return translated_; }
  uint16_t& port(uint32_t i) { return port_[i]; }
  uint16_t* ports() { return port_.data(); }
  uint16_t port(uint32_t i) const { return port_[i]; }
  FlowKey& key(uint32_t i) { return key_[i]; }
  const FlowKey& key(uint32_t i) const { return key_[i]; }
  uint64_t timestamp_ns(uint32_t i) const { return timestamp_ns_[i]; }
  void set_timestamp_ns(uint32_t i, uint64_t value) { timestamp_ns_[i] = value; }
  // When the packet may leave; 0: at once. Only where the graph has an element that delays: whoever fills the batch
  // clears it then.
  uint64_t departure_ns(uint32_t i) const { return departure_ns_[i]; }
  void set_departure_ns(uint32_t i, uint64_t value) { departure_ns_[i] = value; }
  void clear_departures() { std::memset(departure_ns_.data(), 0, count_ * sizeof departure_ns_[0]); }
  // The index of the packet in the batch that came in, from which this one descends: what egress orders by.
  uint32_t order(uint32_t i) const { return order_[i]; }
  // The worker that owns the packet's flow.
  uint16_t& worker(uint32_t i) { return worker_[i]; }

  // The bytes of packet i of a batch that comes from a source, before anything edits it; of an unfilled one too.
  std::span<const uint8_t> arrived(uint32_t i) const {
    if (unfilled_) return {lent_.memory + lent_.records[i].at, lent_.records[i].bytes};
    return {frame_[i] + extent_[i].data, data_length(i)};
  }

  uint32_t data_length(uint32_t i) const { return extent_[i].end - static_cast<uint32_t>(extent_[i].data); }
  // The sum of the lengths of `packets`, or of those of its word `w` alone; of unfilled ones too.
  uint64_t bytes(const Selection& packets) const;
  uint64_t bytes(const Selection& packets, uint32_t w) const;
  // The same of one packet.
  uint32_t bytes(uint32_t i) const { return unfilled_ ? lent_.length(i) : data_length(i); }

 private:
  uint8_t* reserve_slow(size_t need);
  void fill_slow();
  void use_arena(Buffer arena);
  void number();
  uint32_t capacity_ = 0;
  uint32_t limit_ = 0;
  uint32_t count_ = 0;
  bool unfilled_ = false;  // frame_, extent_ and timestamp_ns_ are, and lent_ says what they are
  LentRows lent_;
  size_t used_ = 0;
  std::vector<uint8_t*> frame_;
  std::vector<Extent> extent_;
  std::vector<Annotation> annotation_;
  uint32_t annotated_ = 0;  // rows from it on are zeros, but for those that were written by a view
  std::vector<uint16_t> port_;
  void forget_translations() {
    if (translated_) std::fill(translation_.begin(), translation_.end(), Translation{});
    translated_ = false;
  }
  std::vector<Translation> translation_;  // empty: there were none yet; all zeros unless translated_
  bool translated_ = false;
  std::vector<uint32_t> egress_note_;  // empty: not kept
  std::vector<FrameTrim> trim_;        // LentRows::trims, where there are any
  std::vector<uint32_t> trimmed_;
  std::vector<FlowKey> key_;
  std::vector<uint64_t> timestamp_ns_;
  std::vector<uint64_t> departure_ns_;
  std::vector<uint32_t> order_;
  bool numbered_ = false;  // order_[i] is i in every row, used or not
  std::vector<uint16_t> worker_;
  std::vector<Birth> birth_;  // empty: not kept
  uint64_t maker_ = 0;
  uint32_t first_name_ = 0;
  Buffer arena_;
  uint8_t* arena_base_ = nullptr;  // of arena_, here so that `reserve` stays in registers
  size_t arena_bytes_ = 0;
};

}  // namespace sluice

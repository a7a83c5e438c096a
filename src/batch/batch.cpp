// host only
#include "batch/batch.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

#include "base/assert.h"

namespace sluice {

Result<Batch> Batch::create(uint32_t capacity, size_t arena_bytes) {
  if (capacity == 0 || capacity > kMaxPackets) {
    return Error(fmt::format("a batch of {} packets is out of range", capacity),
                 fmt::format("use 1 to {}", kMaxPackets));
  }
  auto arena = Buffer::allocate(arena_bytes);
  if (!arena) return std::move(arena).error();
  Batch batch;
  batch.capacity_ = batch.limit_ = capacity;
  const size_t rows = rows_for(capacity);
  batch.frame_.resize(rows);
  batch.extent_.resize(rows);
  batch.annotation_.resize(rows);
  batch.port_.resize(rows);
  batch.trim_.resize(rows);
  batch.trimmed_.resize(rows / 64);
  batch.key_.resize(rows);
  batch.timestamp_ns_.resize(rows);
  batch.departure_ns_.resize(rows);
  batch.order_.resize(rows);
  batch.number();
  batch.worker_.resize(rows);
  batch.use_arena(std::move(*arena));
  return batch;
}

void Batch::use_arena(Buffer arena) {
  arena_ = std::move(arena);
  arena_base_ = reinterpret_cast<uint8_t*>(arena_.data());
  arena_bytes_ = arena_.size();
}

Result<Buffer> Batch::exchange_arena() {
  auto fresh = Buffer::allocate(arena_bytes_);
  if (!fresh) return fresh;
  clear();
  Buffer old = std::move(arena_);
  use_arena(std::move(*fresh));
  return old;
}

// The arena is full. An empty batch grows it, for a frame that is larger than any before.
uint8_t* Batch::reserve_slow(size_t need) {
  if (count_ != 0) return nullptr;
  if (need > arena_bytes_) {
    auto larger = Buffer::allocate(need);
    if (!larger) return nullptr;
    use_arena(std::move(*larger));
  }
  used_ = need;
  return arena_base_ + kHeadroom;
}

void Batch::number() {
  std::iota(order_.begin(), order_.end(), 0u);
  numbered_ = true;
}

void join_head(uint8_t* frame, const uint8_t* edited, uint32_t head, const uint8_t* as_it_was, uint32_t bytes) {
  std::memcpy(frame, edited, std::min(head, bytes));
  if (bytes > head) std::memcpy(frame + head, as_it_was + head, bytes - head);
}

void Batch::fill_slow() {
  SLUICE_CHECK(!lent_.elsewhere);
  // In locals: what is stored through the columns could be any of them.
  const FrameRecord* const records = lent_.records;
  uint8_t* const memory = lent_.memory;
  uint8_t** const frames = rows().frame;
  Extent* const extents = rows().extent;
  uint64_t* const stamps = rows().timestamp_ns;
  const uint32_t n = count_, tail = lent_.tail;
  for (uint32_t i = 0; i < n; ++i) {
    const FrameRecord record = records[i];
    frames[i] = memory + record.at + (tail != 0 ? size_t{i} * kLentTailRoom : 0);
    extents[i] = Extent{0, record.bytes + tail, uint32_t{record.bytes} + record.longer + tail, 0, 0xffff};
  }
  for (uint32_t i = 0; lent_.trims != nullptr && i < n; ++i) {
    const FrameTrim trim = lent_.trims[i];
    Extent& extent = extents[i];
    extent.data = static_cast<int32_t>(trim.front());
    extent.end -= trim.end();
    if (trim.end() != 0) extent.wire_end = extent.end;
  }
  const uint64_t* const taken = lent_.timestamps;
  const uint64_t later = lent_.later_ns;
  for (uint32_t i = 0; i < n; ++i) stamps[i] = taken[i] + later;
  if (lent_.heads != nullptr) {
    for (uint32_t i = 0; i < n; ++i)
      join_head(frames[i], lent_.heads + size_t{i} * lent_.head, lent_.head, lent_.rest + records[i].at,
                records[i].bytes);
  }
  for (uint32_t i = 0; lent_.tails != nullptr && i < n; ++i)
    std::memcpy(frames[i] + extents[i].end - kLentTail, lent_.tails + size_t{i} * kLentTail, kLentTail);
  unfilled_ = false;
}

uint64_t Batch::bytes(const Selection& packets) const {
  if (unfilled_ && lent_.trims == nullptr && packets.count() == count_)
    return lent_.bytes_before[count_] - lent_.bytes_before[0] + uint64_t{count_} * lent_.tail;
  uint64_t total = 0;
  for (uint32_t w = 0; w * 64 < count_; ++w) total += bytes(packets, w);
  return total;
}

namespace {

// The lengths of 64 packets. Whole extents are added at a time, as many as a vector holds; 64 of them cannot overflow
// the difference of their sums.
template <typename Vector>
inline uint32_t sum_of_64(const Extent* extents) {
  static_assert(sizeof(Extent) == 16 && offsetof(Extent, data) == 0 && offsetof(Extent, end) == 4);
  constexpr uint32_t kEach = sizeof(Vector) / sizeof(Extent);
  Vector sum{};
#pragma GCC unroll 16
  for (uint32_t i = 0; i < 64; i += kEach) {
    Vector some;
    std::memcpy(&some, extents + i, sizeof some);
    sum += some;
  }
  uint32_t total = 0;
  for (uint32_t i = 0; i < 4 * kEach; i += 4) total += sum[i + 1] - sum[i];
  return total;
}
uint32_t sum_narrow(const Extent* extents) {
  using Four = uint32_t __attribute__((vector_size(16)));
  return sum_of_64<Four>(extents);
}
#if defined(__x86_64__)
__attribute__((flatten, target("avx512f"))) uint32_t sum_wide(const Extent* extents) {
  using Sixteen = uint32_t __attribute__((vector_size(64)));
  return sum_of_64<Sixteen>(extents);
}
const auto kSum = __builtin_cpu_supports("avx512f") ? &sum_wide : &sum_narrow;
#else
const auto kSum = &sum_narrow;
#endif

}  // namespace

uint64_t Batch::bytes(const Selection& packets, uint32_t w) const {
  const uint64_t bits = packets.word(w);
  const auto of = [&](uint64_t some, auto&& length) {
    uint64_t total = 0;
    for (; some != 0; some &= some - 1) total += length(w * 64 + static_cast<uint32_t>(std::countr_zero(some)));
    return total;
  };
  // Where most of 64 are meant, all of them without the others.
  const bool most = w * 64 + 64 <= count_ && std::popcount(bits) > 32;
  if (unfilled_) {
    const auto length = [&](uint32_t i) { return uint64_t{lent_.length(i)}; };
    if (!most) return of(bits, length);
    const uint64_t total = lent_.bytes_before[w * 64 + 64] - lent_.bytes_before[w * 64] + uint64_t{64} * lent_.tail;
    return total - (lent_.trims != nullptr ? lent_.trimmed[w] : 0) - of(~bits, length);
  }
  const auto length = [&](uint32_t i) { return uint64_t{data_length(i)}; };
  return most ? kSum(&extent_[w * 64]) - of(~bits, length) : of(bits, length);
}

bool Batch::clone(const Batch& from, uint32_t i) {
  if (full()) return false;
  const Extent& e = from.extent_[i];
  uint8_t* frame = reserve(e.end);
  if (frame == nullptr) return false;
  // Header offsets may point before `data` (Strip) and into the headroom (EtherEncap): copy from the headroom on.
  std::memcpy(frame - kHeadroom, from.frame_[i] - kHeadroom, kHeadroom + e.end);
  const uint32_t k = push_made(from, i, frame, e.end, e.wire_end);
  extent_[k] = e;
  annotation(k) = from.annotation_[i];
  port_[k] = from.port_[i];
  key_[k] = from.key_[i];
  worker_[k] = from.worker_[i];
  return true;
}

}  // namespace sluice

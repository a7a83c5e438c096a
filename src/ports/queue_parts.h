// host only
// What queues of several methods are made of: counters with one writer, and chunks at hand.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "memory/frame_pool.h"
#include "ports/port.h"

namespace sluice {

// A counter that one thread writes and any reads.
class Count {
 public:
  void add(uint64_t n) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct RxCounts {
  Count packets, bytes, missed, invalid;
  RxCounters get() const { return {packets.get(), bytes.get(), missed.get(), invalid.get()}; }
};
struct TxCounts {
  Count packets, bytes, full, failed;
  TxCounters get() const { return {packets.get(), bytes.get(), full.get(), failed.get()}; }
};

// Chunks of a pool for frames that are received one by one: the pool is asked for many at a time, and what is not used
// goes back with the owner.
class ChunksAtHand {
 public:
  explicit ChunksAtHand(std::shared_ptr<FramePool> pool) : pool_(std::move(pool)) {}
  ~ChunksAtHand() { pool_->give({chunks_.data(), count_}); }
  ChunksAtHand(const ChunksAtHand&) = delete;
  ChunksAtHand& operator=(const ChunksAtHand&) = delete;

  FramePool& pool() const { return *pool_; }
  // Where the next frame begins; nullptr: the pool is empty. The same again until `use`.
  uint8_t* frame() {
    if (count_ == 0) count_ = pool_->take(chunks_);
    return count_ == 0 ? nullptr : chunks_[count_ - 1] + pool_->shape().headroom;
  }
  // The frame is somebody else's now.
  void use() { --count_; }

 private:
  std::shared_ptr<FramePool> pool_;
  std::array<uint8_t*, 64> chunks_;
  uint32_t count_ = 0;
};

// Row i of `rows` is a frame of `bytes` at `frame`.
inline void set_row(const Batch::Rows& rows, uint32_t i, uint8_t* frame, uint32_t bytes, uint64_t now_ns) {
  rows.frame[i] = frame;
  rows.extent[i] = Extent{0, bytes, bytes, 0, 0xffff};
  rows.timestamp_ns[i] = now_ns;
}

}  // namespace sluice

// host only
// What queues of several methods are made of: counters with one writer, chunks at hand, queues that copy.
#pragma once

#include <poll.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/count.h"
#include "memory/frame_pool.h"
#include "ports/interface.h"
#include "ports/port.h"

namespace sluice {

struct RxCounts {
  Count packets, bytes, missed, too_long, invalid;
  // Frames that a poll returns.
  void received(uint64_t n, uint64_t their_bytes) {
    if (n == 0) return;
    packets.add(n);
    bytes.add(their_bytes);
  }
  RxCounters get() const { return {packets.get(), bytes.get(), missed.get(), too_long.get(), invalid.get()}; }
};
struct TxCounts {
  Count packets, bytes, full, failed;
  void sent(uint64_t n, uint64_t their_bytes) {
    packets.add(n);
    bytes.add(their_bytes);
  }
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

// Receives by copying each frame into a chunk of the pool.
class CopyingRx : public RxQueue {
 public:
  RxState state() final { return interface_.link(); }
  FramePool& pool() final { return chunks_.pool(); }

 protected:
  CopyingRx(const Interface& interface, std::shared_ptr<FramePool> pool)
      : interface_(interface), room_(pool->shape().room()), chunks_(std::move(pool)) {}
  // Whether a read of `fd` would give nothing now.
  static bool silent(int fd) {
    pollfd ready{fd, POLLIN, 0};
    return ::poll(&ready, 1, 0) <= 0 || (ready.revents & POLLIN) == 0;
  }

  const Interface& interface_;
  const uint32_t room_;  // of a chunk, for a frame
  ChunksAtHand chunks_;
  RxCounts counts_;
};

// Sends from where frames lie and has none in flight: the kernel copies them.
class CopyingTx : public TxQueue {
 public:
  void flush() final {}
  FramePool* pool() final { return nullptr; }
  uint64_t in_flight() final { return 0; }
  TxCounters counters() const final { return counts_.get(); }

 protected:
  // Whether a call failed because the kernel, or the NIC, has no room now.
  static bool no_room(int error) { return error == EAGAIN || error == ENOBUFS || error == ENOMEM; }

  // What became of a frame.
  enum class Sent : uint8_t {
    kYes,
    kAgain,   // nothing: it is tried again
    kFull,    // there is no room for it, nor for those behind it
    kFailed,  // nobody takes it
    kDown,    // nor those behind it
  };
  // send() by a function for one frame.
  template <typename SendOne>
  uint32_t send_each(std::span<const TxFrame> frames, SendOne send_one) {
    uint64_t sent = 0, bytes = 0;
    uint32_t taken = 0;
    const auto all = static_cast<uint32_t>(frames.size());
    while (taken < all) {
      const Sent became = send_one(frames[taken]);
      if (became == Sent::kAgain) continue;
      if (became == Sent::kFull) {
        counts_.full.add(all - taken);
        break;
      }
      if (became == Sent::kDown) {
        counts_.failed.add(all - taken);
        taken = all;
        break;
      }
      if (became == Sent::kYes) {
        ++sent;
        bytes += frames[taken].bytes;
      } else {
        counts_.failed.add(1);
      }
      ++taken;
    }
    counts_.sent(sent, bytes);
    return taken;
  }

  TxCounts counts_;
};

}  // namespace sluice

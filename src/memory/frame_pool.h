// host only
// FramePool: chunks of one size for frames that ports of a run share, so that a frame that came by one leaves by
// another without a copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "memory/buffer.h"

namespace sluice {

// Bytes; `stride` is from one chunk to the next. The default is an odd number of cache lines: headers of frames then
// lie in all sets of a cache (1 to 2 ns a packet where a power of two takes 7), and Ethernet's 1,518 bytes with head
// and tail room fit.
struct FrameShape {
  uint32_t stride = 2112;
  uint32_t headroom = 256;  // before a received frame: what XDP leaves there
  uint32_t tailroom = 128;  // behind the largest frame
  uint32_t chunks = 16'384;
  // The largest frame that fits a chunk.
  uint32_t room() const { return stride - headroom - tailroom; }
};

// The address of any byte of a frame is its handle. Thread-safe; every chunk is in the pool or in the hands of one
// owner.
class FramePool {
 public:
  virtual ~FramePool() = default;
  FramePool() = default;
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  // All chunks, for whoever registers them once: a UMEM, a device.
  virtual std::span<std::byte> memory() = 0;
  virtual const FrameShape& shape() const = 0;
  // Takes up to chunks.size() chunks and returns how many: fewer where the pool has no more. Their first bytes.
  virtual uint32_t take(std::span<uint8_t*> chunks) = 0;
  // Gives chunks back, each by the address of any of its bytes.
  virtual void give(std::span<uint8_t* const> frames) = 0;
  // Chunks in somebody's hands.
  virtual uint64_t out() const = 0;
};

// Chunks in mapped memory, handed out last in, first out, so that those in use stay in the cache.
class MappedFramePool final : public FramePool {
 public:
  // Errors: a shape without room for a frame; out of memory.
  static Result<std::shared_ptr<MappedFramePool>> create(const FrameShape& shape);

  std::span<std::byte> memory() override { return {memory_.data(), memory_.size()}; }
  const FrameShape& shape() const override { return shape_; }
  uint32_t take(std::span<uint8_t*> chunks) override;
  void give(std::span<uint8_t* const> frames) override;
  uint64_t out() const override { return out_.load(std::memory_order_relaxed); }

  // The first byte of the chunk that `inside` is a byte of.
  uint8_t* chunk_of(const uint8_t* inside) {
    const auto offset = static_cast<uint64_t>(inside - base());
    return base() + offset / shape_.stride * shape_.stride;
  }

 private:
  MappedFramePool(const FrameShape& shape, Buffer memory);
  uint8_t* base() { return reinterpret_cast<uint8_t*>(memory_.data()); }

  const FrameShape shape_;
  Buffer memory_;
  std::mutex mutex_;
  std::vector<uint8_t*> free_;
  std::atomic<uint64_t> out_{0};
};

}  // namespace sluice

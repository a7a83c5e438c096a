// host only
// MbufPool: a FramePool whose chunks are the buffers of DPDK's mbufs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "memory/buffer.h"
#include "memory/frame_pool.h"

struct rte_mbuf;
struct rte_memzone;
struct rte_mempool;

namespace sluice::dpdk {

//   | 64: the mempool's | 128: rte_mbuf | 128: head room | room: the frame | 64: tail room and what is left |
//                                       ^ a chunk begins
// One after the other in one piece of memory, so that any byte of a frame leads to its mbuf. The stride is an odd
// number of cache lines.
class MbufPool final : public FramePool {
 public:
  // Chunks for frames as large as those of `like`, and as many. Errors: more than an mbuf or a pool holds; no memory.
  static Result<std::shared_ptr<MbufPool>> create(const FrameShape& like, bool huge_pages);
  ~MbufPool() override;

  std::span<std::byte> memory() override;
  // Its tail room has the next chunk's mbuf: the first kTailroom bytes of it may be written.
  const FrameShape& shape() const override { return shape_; }
  uint32_t take(std::span<uint8_t*> chunks) override;
  void give(std::span<uint8_t* const> frames) override;
  uint64_t out() const override;

  rte_mempool* mempool() const { return mempool_; }
  // The mbuf that has `inside`, and the first byte of its chunk.
  uint8_t* chunk_of(const uint8_t* inside) const {
    const uint64_t line = static_cast<uint64_t>(inside - first_) / 64;
    return first_ + (line * inverse_ >> kInverseBits) * shape_.stride;
  }
  static rte_mbuf* mbuf_of(uint8_t* chunk) { return reinterpret_cast<rte_mbuf*>(chunk - kMbufBytes); }
  static uint8_t* chunk_of(rte_mbuf* mbuf) { return reinterpret_cast<uint8_t*>(mbuf) + kMbufBytes; }

 private:
  static constexpr uint32_t kMbufBytes = 128;
  // line / lines for fewer than 2^26 lines in all (4 GiB): with m = 2^40 / lines + 1, m * lines exceeds 2^40 by at most
  // `lines` < 2^11, so line * m / 2^40 exceeds line / lines by less than 2^26 * 2^11 / 2^40 / lines < 1 / lines.
  static constexpr unsigned kInverseBits = 40;

  MbufPool() = default;

  FrameShape shape_;
  uint8_t* first_ = nullptr;  // chunk
  uint64_t inverse_ = 0;
  rte_mempool* mempool_ = nullptr;
  // One of them has the memory.
  Buffer mapped_;
  const rte_memzone* zone_ = nullptr;
};

}  // namespace sluice::dpdk

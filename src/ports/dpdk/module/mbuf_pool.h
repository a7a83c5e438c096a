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
// One after the other, so that any byte of a frame leads to its mbuf. The stride is an odd number of cache lines. Where
// devices see physical addresses, each block of 2 MiB (a huge page, or part of one) has as many as fit, and a gap.
class MbufPool final : public FramePool {
 public:
  // As many chunks as `like` has, for frames as large, and at least 2,048 bytes. Errors: more than an mbuf or a pool
  // holds; no memory.
  static Result<std::shared_ptr<MbufPool>> create(const FrameShape& like, bool huge_pages);
  ~MbufPool() override;

  std::span<std::byte> memory() override;
  // Its tail room has the next chunk's mbuf: the first kTailroom bytes of it may be written.
  const FrameShape& shape() const override { return shape_; }
  uint32_t take(std::span<uint8_t*> chunks) override;
  void give(std::span<uint8_t* const> frames) override;
  uint64_t out() const override;

  rte_mempool* mempool() const { return mempool_; }
  static constexpr unsigned kOneBlock = 63;
  // Where the chunks lie, to be kept in registers.
  struct Chunks {
    uint8_t* first;
    uint64_t inverse;
    uint32_t stride;
    unsigned block_bits;
    // The chunk that `inside` is a byte of.
    uint8_t* of(const uint8_t* inside) const {
      const auto offset = static_cast<uint64_t>(inside - first);
      const uint64_t block = block_bits == kOneBlock ? 0 : offset >> block_bits << block_bits;
      return first + block + ((offset - block) / 64 * inverse >> kInverseBits) * stride;
    }
  };
  const Chunks& chunks() const { return chunks_; }
  static rte_mbuf* mbuf_of(uint8_t* chunk) { return reinterpret_cast<rte_mbuf*>(chunk - kMbufBytes); }
  static uint8_t* chunk_of(rte_mbuf* mbuf) { return reinterpret_cast<uint8_t*>(mbuf) + kMbufBytes; }

 private:
  static constexpr uint32_t kMbufBytes = 128;
  // A line's number over the stride's lines, for fewer than 2^26 lines (4 GiB): with m = 2^40 / lines + 1, m * lines
  // exceeds 2^40 by at most `lines` < 2^11, so line * m / 2^40 exceeds line / lines by less than 2^26 * 2^11 / 2^40 /
  // lines, which is less than 1 / lines.
  static constexpr unsigned kInverseBits = 40;

  MbufPool() = default;

  FrameShape shape_;
  Chunks chunks_{};
  uint64_t bytes_ = 0;
  rte_mempool* mempool_ = nullptr;
  // One of the two has the memory.
  Buffer mapped_;
  const rte_memzone* zone_ = nullptr;
};

}  // namespace sluice::dpdk

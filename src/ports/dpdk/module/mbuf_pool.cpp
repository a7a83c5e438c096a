// host only
#include "ports/dpdk/module/mbuf_pool.h"

#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_memzone.h>

#include <algorithm>
#include <atomic>

#include "base/assert.h"
#include "batch/packet.h"
#include "ports/dpdk/module/eal.h"

namespace sluice::dpdk {

namespace {
constexpr uint32_t kObjectHeader = 64;
constexpr uint32_t kBurst = 64;
constexpr unsigned kBlockBits = 21;
constexpr uint32_t kBlockBytes = 1U << kBlockBits;
static_assert(sizeof(rte_mbuf) == 128 && sizeof(rte_mempool_objhdr) <= kObjectHeader);
static_assert(RTE_PKTMBUF_HEADROOM >= kHeadroom);
}  // namespace

Result<std::shared_ptr<MbufPool>> MbufPool::create(const FrameShape& like, bool huge_pages) {
  // What drivers expect: some give their NIC sizes in KiB only, and refuse or split frames where it is less.
  const uint32_t room = std::max<uint32_t>(like.room(), RTE_MBUF_DEFAULT_DATAROOM);
  // Whole pairs of lines, so that the mempool's header makes an odd number of them.
  const uint32_t element = (sizeof(rte_mbuf) + RTE_PKTMBUF_HEADROOM + room + kTailroom + 127) / 128 * 128;
  const uint32_t stride = kObjectHeader + element;
  // All of it, or blocks that have one physical address each.
  const bool physical = huge_pages && rte_eal_iova_mode() == RTE_IOVA_PA;
  const uint32_t in_block = physical ? kBlockBytes / stride : like.chunks;
  const uint32_t blocks = in_block == 0 ? 0 : (like.chunks + in_block - 1) / in_block;
  const uint64_t bytes = physical ? uint64_t{blocks} * kBlockBytes : uint64_t{like.chunks} * stride;
  if (RTE_PKTMBUF_HEADROOM + room > UINT16_MAX || bytes > UINT32_MAX || bytes == 0) {
    return Error(fmt::format("DPDK takes no pool of {} frames of {} bytes", like.chunks, room),
                 "at most 65,407 bytes a frame, and 4 GiB in all");
  }
  static std::atomic<unsigned> number{0};
  const std::string name = fmt::format("sluice{}", number.fetch_add(1));
  // The constructor is private.
  std::shared_ptr<MbufPool> pool(new MbufPool);

  uint8_t* memory = nullptr;
  if (huge_pages) {
    pool->zone_ = rte_memzone_reserve_aligned(name.c_str(), bytes, SOCKET_ID_ANY, 0, kBlockBytes);
    if (pool->zone_ == nullptr) {
      return Error(fmt::format("DPDK has no {} MiB of huge pages: {}", (bytes >> 20) + 1, rte_strerror(rte_errno)),
                   "reserve more: sysctl vm.nr_hugepages=1024");
    }
    memory = static_cast<uint8_t*>(pool->zone_->addr);
  } else {
    // Not EAL's memory, which without huge pages is a file in memory: this has transparent ones.
    auto mapped = Buffer::allocate(bytes);
    if (!mapped) return std::move(mapped).error();
    pool->mapped_ = std::move(*mapped);
    memory = reinterpret_cast<uint8_t*>(pool->mapped_.data());
  }

  const uint32_t cache = std::min<uint32_t>(RTE_MEMPOOL_CACHE_MAX_SIZE, like.chunks / 16);
  // NO_IOVA_CONTIG: a block is contiguous, so no chunk of it has to keep clear of the end of a smaller page.
  pool->mempool_ = rte_mempool_create_empty(name.c_str(), like.chunks, element, cache, sizeof(rte_pktmbuf_pool_private),
                                            SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_SPREAD | RTE_MEMPOOL_F_NO_IOVA_CONTIG);
  if (pool->mempool_ == nullptr) return Error(fmt::format("DPDK makes no pool of mbufs: {}", rte_strerror(rte_errno)));
  rte_mempool* mempool = pool->mempool_;
  SLUICE_CHECK(mempool->header_size + mempool->elt_size + mempool->trailer_size == stride);
  rte_pktmbuf_pool_private facts{};
  facts.mbuf_data_room_size = static_cast<uint16_t>(RTE_PKTMBUF_HEADROOM + room);
  rte_pktmbuf_pool_init(mempool, &facts);
  uint32_t left = like.chunks;
  for (uint8_t* begin = memory; left > 0; begin += kBlockBytes) {
    const uint32_t n = std::min(left, in_block);
    const rte_iova_t address = physical ? rte_mem_virt2iova(begin) : reinterpret_cast<uintptr_t>(begin);
    const int got = rte_mempool_populate_iova(mempool, reinterpret_cast<char*>(begin), address, uint64_t{n} * stride,
                                              nullptr, nullptr);
    if (got < 0) return Error(fmt::format("DPDK makes no pool of {} mbufs: {}", like.chunks, rte_strerror(-got)));
    SLUICE_CHECK(static_cast<uint32_t>(got) == n);
    left -= n;
  }
  rte_mempool_obj_iter(mempool, rte_pktmbuf_init, nullptr);

  pool->shape_ = FrameShape{stride, RTE_PKTMBUF_HEADROOM, stride - RTE_PKTMBUF_HEADROOM - room, like.chunks};
  pool->chunks_ = {memory + kObjectHeader + kMbufBytes, (uint64_t{1} << kInverseBits) / (stride / 64) + 1, stride,
                   physical ? kBlockBits : kOneBlock};
  pool->bytes_ = bytes;
  at_thread_end(pool.get(), [mempool](unsigned lcore) {
    if (rte_mempool_cache* mine = rte_mempool_default_cache(mempool, lcore); mine != nullptr) {
      rte_mempool_cache_flush(mine, mempool);
    }
  });
  return pool;
}

MbufPool::~MbufPool() {
  forget_thread_end(this);
  rte_mempool_free(mempool_);
  if (zone_ != nullptr) rte_memzone_free(zone_);
}

std::span<std::byte> MbufPool::memory() {
  uint8_t* memory = chunks_.first - kMbufBytes - kObjectHeader;
  return {reinterpret_cast<std::byte*>(memory), bytes_};
}

uint32_t MbufPool::take(std::span<uint8_t*> chunks) {
  enter_thread();
  uint32_t taken = 0;
  auto most = static_cast<uint32_t>(std::min<size_t>(kBurst, chunks.size()));
  void* mbufs[kBurst];
  while (most > 0) {
    // All of them or none: the last few come in smaller pieces.
    if (rte_mempool_get_bulk(mempool_, mbufs, most) != 0) {
      most /= 2;
      continue;
    }
    for (uint32_t i = 0; i < most; ++i) chunks[taken++] = chunk_of(static_cast<rte_mbuf*>(mbufs[i]));
    most = std::min(most, static_cast<uint32_t>(chunks.size() - taken));
  }
  return taken;
}

void MbufPool::give(std::span<uint8_t* const> frames) {
  if (frames.empty()) return;
  enter_thread();
  const Chunks all = chunks_;
  const uint8_t* end = all.first + bytes_;
  void* mbufs[kBurst];
  uint32_t n = 0;
  for (uint8_t* frame : frames) {
    SLUICE_CHECK(frame >= all.first && frame < end);
    uint8_t* chunk = all.of(frame);
    mbufs[n++] = mbuf_of(chunk);
    if (n == kBurst) {
      rte_mempool_put_bulk(mempool_, mbufs, n);
      n = 0;
    }
  }
  if (n > 0) rte_mempool_put_bulk(mempool_, mbufs, n);
}

uint64_t MbufPool::out() const {
  return rte_mempool_in_use_count(mempool_);
}

}  // namespace sluice::dpdk

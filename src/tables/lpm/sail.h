// SAIL (Yang et al.: Guarantee IP Lookup Performance with FIB Explosion, SIGCOMM 2014), IPv4, for host and device:
// direct arrays at 16, 24 and 32 bits.
//
//   section: SailHeader (64 bytes) | root: 2^16 u32 | chunks: chunk_count * 256 entries of 2 or 4 bytes | blocks:
//   block_count * 256 u16 | 64 zero bytes
//
//   address = [ 16: root ][ 8: place in chunk ][ 8: place in block ]
//   root[address >> 16]      where the chunk begins among the chunks' entries (a multiple of 256)
//   entry e <= next_hops     the next hop itself (0: none)
//   entry e >  next_hops     the address goes on in block e - next_hops - 1, by its last 8 bits
//
// Deviations: a /16 without longer prefixes has a chunk too, one that all /16s with its next hop share, so that every
// lookup takes the same two loads and none of them hangs on a branch (SAIL tests a bitmap first). Entries share one
// number range between next hops and blocks, as dir24's do; blocks hold 2-byte next hops. A full IPv4 table takes 9 MB
// where DIR-24-8 takes 32, and what does not fit into a cache shrinks with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/hd.h"
#include "base/prefetch.h"
#include "base/result.h"
#include "tables/lpm/plan.h"
#include "tables/lpm/rib.h"

namespace sluice {

struct SailHeader {
  uint32_t entry_bytes;  // 2 or 4
  uint32_t next_hops;    // entries up to here are next hops
  uint32_t chunk_count;
  uint32_t block_count;
  uint8_t reserved[48];
};
static_assert(sizeof(SailHeader) == 64);

// Non-owning, trivially copyable. Two dependent loads for a prefix up to /24, three past it.
class SailView {
 public:
  static constexpr size_t kRoots = size_t{1} << 16;

  // Checks every root entry, entry and next hop. Errors: sizes that do not fit, an index or a next hop out of range.
  // `trusted`: only the sizes are checked, because the builder is this process or a check has found nothing before.
  static Result<SailView> open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted = false);

  // The next-hop id for `address` (host order), or 0.
  SLUICE_HD uint32_t lookup(uint32_t address) const {
    const uint32_t at = root_[address >> 16] + (address >> 8 & 255);
    const uint32_t entry = wide_ ? wide_entries()[at] : narrow_entries()[at];
    if (entry <= next_hops_) return entry;
    return blocks_[size_t{entry - next_hops_ - 1} * 256 + (address & 255)];
  }
  // Asks for the line that lookup(address) reads first. Nothing on a device.
  SLUICE_HD void prefetch([[maybe_unused]] uint32_t address) const {
#if !defined(__CUDA_ARCH__)
    const uint32_t at = root_[address >> 16] + (address >> 8 & 255);
    prefetch_read(entries_ + size_t{at} * (wide_ ? 4 : 2));
#endif
  }

  // next_hops[i] = lookup(addresses[i]). The two arrays must not overlap.
  void lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const;
  void lookup_bulk(LpmIsa isa, const uint32_t* addresses, uint32_t* next_hops, size_t n) const;
  void lookup_burst(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
    lookup_bulk(addresses, next_hops, n);
  }
  // A burst in two steps, for whoever knows it before its turn comes: ask() notes where the entries are and asks for
  // their lines, answer() with the same addresses says what they hold. `places` may be `next_hops`.
  void ask(const uint32_t* addresses, uint32_t* places, size_t n) const;
  void answer(const uint32_t* addresses, const uint32_t* places, uint32_t* next_hops, size_t n) const;
  bool wide() const {
    return wide_;
  }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(root_);
    f(entries_);
    f(blocks_);
  }

 private:
  SLUICE_HD const uint16_t* narrow_entries() const {
    return reinterpret_cast<const uint16_t*>(entries_);
  }
  SLUICE_HD const uint32_t* wide_entries() const {
    return reinterpret_cast<const uint32_t*>(entries_);
  }

  const uint32_t* root_ = nullptr;
  const std::byte* entries_ = nullptr;
  const uint16_t* blocks_ = nullptr;
  uint32_t next_hops_ = 0;
  bool wide_ = false;
};
static_assert(std::is_trivially_copyable_v<SailView>);

// Errors: more than 2^22 blocks (2 GiB): a table for another algorithm. `force_wide` is for tests.
Result<FibPlan> plan_sail(const Rib& rib, bool force_wide = false);

}  // namespace sluice

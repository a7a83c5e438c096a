// DIR-24-8 (Gupta, Lin, McKeown: Routing Lookups in Hardware at Memory Access Speeds, INFOCOM 1998), IPv4.
//
//   section: Dir24Header (64 bytes) | tbl24: 2^24 entries, 2 or 4 bytes each | tbl8: block_count * 256 u16 | 64 zero
//   bytes entry e:  e <= next_hops   the next hop itself (0: none)
//             e >  next_hops   the address goes on in tbl8 block e - next_hops - 1, by its last 8 bits
//
// Deviations: no flag bit. The entries share one number range between next hops and blocks, so 2-byte entries (32 MB:
// half the cache and TLB footprint) reach as long as next hops + blocks <= 65535; past that, tbl24 has 4-byte entries.
// Blocks hold next hops only, always 2 bytes. The zero bytes at the end let 4-byte gathers read past the last 2-byte
// entry.
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

struct Dir24Header {
  uint32_t entry_bytes;  // 2 or 4
  uint32_t next_hops;    // entries up to here are next hops
  uint32_t block_count;
  uint8_t reserved[52];
};
static_assert(sizeof(Dir24Header) == 64);

// Non-owning, trivially copyable. One memory access for a prefix up to /24, two past it.
class Dir24View {
 public:
  // Checks every entry of both tables (32 or 64 MB read once). Errors: sizes that do not fit, an entry past the last
  // block, a next hop past next_hop_count.
  // `trusted`: only the sizes are checked, because the builder is this process or a check has found nothing before.
  static Result<Dir24View> open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted = false);

  // The next-hop id for `address` (host order), or 0.
  SLUICE_HD uint32_t lookup(uint32_t address) const {
    const uint32_t entry = wide_ != nullptr ? wide_[address >> 8] : narrow_[address >> 8];
    if (entry <= next_hops_) return entry;
    return blocks_[size_t{entry - next_hops_ - 1} * 256 + (address & 255)];
  }
  // Asks for the line that lookup(address) reads first. Nothing on a device.
  SLUICE_HD void prefetch([[maybe_unused]] uint32_t address) const {
#if !defined(__CUDA_ARCH__)
    const size_t index = address >> 8;
    prefetch_read(wide_ != nullptr ? static_cast<const void*>(wide_ + index) : narrow_ + index);
#endif
  }

  // next_hops[i] = lookup(addresses[i]), n of any size, by the fastest way for n that this processor has. Fastest a
  // lookup in multiples of 32.
  void lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const;
  // The same by one instruction set, which must be available (else scalar runs).
  void lookup_bulk(LpmIsa isa, const uint32_t* addresses, uint32_t* next_hops, size_t n) const;
  // For bursts up to 32, whose lines were not prefetched.
  void lookup_burst(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
    lookup_bulk(addresses, next_hops, n);
  }
  bool wide() const {
    return wide_ != nullptr;
  }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(narrow_);
    f(wide_);
    f(blocks_);
  }

 private:
  const uint16_t* narrow_ = nullptr;
  const uint32_t* wide_ = nullptr;
  const uint16_t* blocks_ = nullptr;
  uint32_t next_hops_ = 0;
};
static_assert(std::is_trivially_copyable_v<Dir24View>);

// Errors: more than 2^22 blocks (2 GiB): a table for another algorithm. `force_wide` is for tests and benchmarks.
Result<FibPlan> plan_dir24(const Rib& rib, bool force_wide = false);

}  // namespace sluice

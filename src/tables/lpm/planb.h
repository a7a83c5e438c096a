// PlanB (NSDI 2026, arXiv 2604.14650): a flat 9-ary search tree over elementary intervals, IPv6, for host and device.
//
//   section: PlanBHeader (64 bytes) | nodes: 8 keys of 64 bits each, one cache line | leaves: 2 or 4 bytes each | block
//   starts: block_count + 1 u32 | low keys u64 | low next hops u16
//
//   The line of the addresses' upper 64 bits is cut into spans; leaf i is what span i answers. Node 0 is the root, the
//   children of node i are nodes 9 i + 1 ... 9 i + 9, and the leaves come after the last level: no pointers. Child c of
//   a node is the count of its keys below the address: key c is the last address of child c.
//   leaf <= next_hops: the next hop itself; above: block leaf - next_hops - 1, a sorted list of lower halves, for the
//   few /64s that are divided further
//
// Every lookup takes the same steps: a step is one 64-byte compare and a popcount, the child's place is computed. Keys
// are stored with their highest bit turned over, so that signed compares (all that AVX2 has) order them.
//
// Levels but the last are laid out as if full and the last one is cut off after its last leaf; places that no lookup
// reaches cost address space and no cache. Deviations from the paper: lower halves have a list of their own instead of
// a second tree, and leaves share a number range with the lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/hd.h"
#include "base/result.h"
#include "tables/lpm/plan.h"
#include "tables/lpm/rib.h"

namespace sluice {

struct PlanBHeader {
  uint32_t leaf_bytes;  // 2 or 4
  uint32_t next_hops;   // leaves up to here are next hops
  uint32_t levels;      // 1..kMaxLevels
  uint32_t leaf_count;
  uint32_t block_count;
  uint32_t low_count;
  uint8_t reserved[40];
};
static_assert(sizeof(PlanBHeader) == 64);

class PlanBView {
 public:
  static constexpr uint32_t kMaxLevels = 9;
  static constexpr uint64_t kTurn = uint64_t{1} << 63;

  // Checks that no key leads past the last leaf, and every leaf, list and next hop.
  static Result<PlanBView> open(std::span<const std::byte> section, uint32_t next_hop_count);

  // The next-hop id, or 0. Both halves in host order.
  SLUICE_HD uint32_t lookup(uint64_t hi, uint64_t lo) const {
    const auto key = static_cast<int64_t>(hi ^ kTurn);
    uint32_t at = 0;
    for (uint32_t level = 0; level < levels_; ++level) {
      const int64_t* keys = keys_ + size_t{at} * 8;
      uint32_t below = 0;
      for (int k = 0; k < 8; ++k) below += keys[k] < key ? 1 : 0;
      at = at * 9 + 1 + below;
    }
    return answer(at - first_leaf_, lo);
  }
  // The root is hot and what follows depends on it.
  SLUICE_HD void prefetch(uint64_t, uint64_t) const {}

  void lookup_bulk(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const;
  void lookup_bulk(LpmIsa isa, const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const;
  void lookup_burst(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
    lookup_bulk(hi, lo, next_hops, n);
  }
  uint32_t levels() const { return levels_; }
  bool wide() const { return wide_; }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(keys_);
    f(leaves_);
    f(starts_);
    f(low_keys_);
    f(low_hops_);
  }

 private:
  SLUICE_HD uint32_t answer(uint32_t leaf, uint64_t lo) const {
    const uint32_t entry = wide_ ? wide_leaves()[leaf] : narrow_leaves()[leaf];
    return entry <= next_hops_ ? entry : search_low(entry - next_hops_ - 1, lo);
  }
  // The last key of the block that is not above `lo`; the first is 0.
  SLUICE_HD uint32_t search_low(uint32_t block, uint64_t lo) const {
    uint32_t first = starts_[block], count = starts_[block + 1] - first;
    while (count > 1) {
      const uint32_t half = count / 2;
      if (low_keys_[first + half] <= lo) first += half;
      count -= half;
    }
    return low_hops_[first];
  }
  SLUICE_HD const uint16_t* narrow_leaves() const { return reinterpret_cast<const uint16_t*>(leaves_); }
  SLUICE_HD const uint32_t* wide_leaves() const { return reinterpret_cast<const uint32_t*>(leaves_); }
  friend struct PlanBBulk;

  const int64_t* keys_ = nullptr;
  const std::byte* leaves_ = nullptr;
  const uint32_t* starts_ = nullptr;
  const uint64_t* low_keys_ = nullptr;
  const uint16_t* low_hops_ = nullptr;
  uint16_t levels_ = 0;
  bool wide_ = false;
  uint32_t first_leaf_ = 0;
  uint32_t next_hops_ = 0;
};
static_assert(std::is_trivially_copyable_v<PlanBView>);

// Errors: more than 2^28 intervals. `force_wide` is for tests.
Result<FibPlan> plan_planb(const Rib& rib, bool force_wide = false);

}  // namespace sluice

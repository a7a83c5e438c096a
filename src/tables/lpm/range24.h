// Direct to 24 bits, then flat 16-ary trees over ranges, IPv6, for host and device. After PlanB (NSDI 2026, planb.h),
// with SAIL's direct arrays (sail.h) in place of its upper levels.
//
//   section: Range24Header (64 bytes) | root: 2^16 u32 | chunks: chunk_count * 256 u32 | three levels of nodes: 1, 16
//   and 256 a tree, 16 keys of 32 bits each: a cache line | leaves: 4096 a tree, 2 or 4 bytes | list starts:
//   block_count + 1 u32 | list keys: {hi, lo} u64 each | list next hops u16
//
//   address = [ 16: root ][ 8: place in chunk ][ 24: tree ][ 80: list ]
//   chunk entry with bit 31: the answer; without: a tree, by the number of its first key. Neighbouring /24s share a
//   tree, none has more than 4,096 ranges. A tree's keys are address bits 16..47: key k of a node is the last value of
//   its child k, child = count of keys below the address's; child c of node i is node 16 i + c of the next level, and
//   after three levels leaf 16 i + c. answer or leaf <= next_hops: the next hop; above: list answer - next_hops - 1,
//   for what is divided past /48, and for /24s with more than 4,096 ranges: a binary search over whole addresses
//
// Why not PlanB alone: an IPv6 table has its prefixes in some sixty /16s, so two loads of a few KB that are always
// cached stand for half of the tree's levels, and inside a /16 32 bits say what 64 did: sixteen keys a line, half the
// memory.
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

struct Range24Header {
  uint32_t leaf_bytes;  // 2 or 4
  uint32_t next_hops;   // answers up to here are next hops
  uint32_t chunk_count;
  uint32_t tree_count;
  uint32_t block_count;
  uint32_t low_count;
  uint8_t reserved[40];
};
static_assert(sizeof(Range24Header) == 64);

class Range24View {
 public:
  static constexpr size_t kRoots = size_t{1} << 16;
  static constexpr uint32_t kAnswer = 0x80000000u;
  struct LowKey {
    uint64_t hi, lo;
  };

  // Checks every index, node, leaf, list and next hop.
  // `trusted`: only the sizes are checked, because the builder is this process or a check has found nothing before.
  static Result<Range24View> open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted = false);

  // The next-hop id, or 0. Both halves in host order.
  SLUICE_HD uint32_t lookup(uint64_t hi, uint64_t lo) const {
    uint32_t at = chunks()[root_[hi >> 48] + (hi >> 40 & 255)];
    if ((at & kAnswer) != 0) {
      at &= ~kAnswer;
    } else {
      at = wide_ != 0 ? leaf(wide_leaves(), at, hi) : leaf(narrow_leaves(), at, hi);
    }
    return at <= next_hops_ ? at : search_low(at - next_hops_ - 1, hi, lo);
  }
  SLUICE_HD void prefetch(uint64_t, uint64_t) const {}

  void lookup_bulk(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const;
  void lookup_bulk(LpmIsa isa, const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const;
  void lookup_burst(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
    lookup_bulk(hi, lo, next_hops, n);
  }
  // A burst in two steps, for whoever knows it before its turn comes: ask() goes down to the last nodes, notes where
  // they are and asks for their lines; answer() with the same addresses says what they hold.
  void ask(const uint64_t* hi, uint32_t* places, size_t n) const;
  void answer(const uint64_t* hi, const uint64_t* lo, const uint32_t* places, uint32_t* next_hops, size_t n) const;
  bool wide() const { return wide_ != 0; }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(root_);
    f(keys_);
    f(leaves_);
    f(lists_);
  }

 private:
  friend struct Range24Bulk;

  SLUICE_HD static uint32_t below(const uint32_t* keys, uint32_t key) {
    uint32_t count = 0;
#if defined(__CUDA_ARCH__)
    const auto* at = reinterpret_cast<const uint4*>(keys);  // a node is a cache line
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint4 v = __ldg(at + k);
      count += (v.x < key ? 1u : 0u) + (v.y < key ? 1u : 0u) + (v.z < key ? 1u : 0u) + (v.w < key ? 1u : 0u);
    }
#else
    for (int k = 0; k < 16; ++k) count += keys[k] < key ? 1 : 0;
#endif
    return count;
  }
  // The last node of the tree whose keys begin with number `at`, among the last nodes of all.
  SLUICE_HD uint32_t last_node(uint32_t at, uint32_t key) const {
    at += below(keys_ + at, key);
    return at * 16 + below(keys_ + size_t{second_ + at} * 16, key);
  }
  // What such a node says: a next hop, or a list.
  template <typename Leaf>
  SLUICE_HD uint32_t leaf_of(const Leaf* leaves, uint32_t node, uint32_t key) const {
    return leaves[node * 16 + below(keys_ + size_t{third_ + node} * 16, key)];
  }
  template <typename Leaf>
  SLUICE_HD uint32_t leaf(const Leaf* leaves, uint32_t at, uint64_t hi) const {
    const auto key = static_cast<uint32_t>(hi >> 16);
    return leaf_of(leaves, last_node(at, key), key);
  }
  SLUICE_HD const uint32_t* chunks() const {
    return root_ + kRoots;
  }  // they follow it in the section
  SLUICE_HD const uint16_t* narrow_leaves() const {
    return reinterpret_cast<const uint16_t*>(leaves_);
  }
  SLUICE_HD const uint32_t* wide_leaves() const {
    return reinterpret_cast<const uint32_t*>(leaves_);
  }
  SLUICE_HD const uint32_t* starts() const {
    return reinterpret_cast<const uint32_t*>(lists_);
  }
  SLUICE_HD const LowKey* low_keys() const {
    return reinterpret_cast<const LowKey*>(lists_ + size_t{low_keys_at_} * 64);
  }
  SLUICE_HD const uint16_t* low_hops() const {
    return reinterpret_cast<const uint16_t*>(lists_ + size_t{low_hops_at_} * 64);
  }
  // The last key of the list that is not above the address; the first never is.
  SLUICE_HD uint32_t search_low(uint32_t block, uint64_t hi, uint64_t lo) const {
    uint32_t first = starts()[block], count = starts()[block + 1] - first;
    while (count > 1) {
      const uint32_t half = count / 2;
      const LowKey key = low_keys()[first + half];
      if (key.hi < hi || (key.hi == hi && key.lo <= lo)) first += half;
      count -= half;
    }
    return low_hops()[first];
  }

  const uint32_t* root_ = nullptr;
  const uint32_t* keys_ = nullptr;
  const std::byte* leaves_ = nullptr;
  const std::byte* lists_ = nullptr;
  uint32_t second_ = 0, third_ = 0;             // the first nodes of those levels
  uint32_t low_keys_at_ = 0, low_hops_at_ = 0;  // in 64 bytes from lists_
  uint32_t next_hops_ : 31 = 0;
  uint32_t wide_ : 1 = 0;
};
static_assert(std::is_trivially_copyable_v<Range24View> && sizeof(Range24View) <= 64);

// Errors: more than 2^28 intervals. `force_wide` is for tests.
Result<FibPlan> plan_range24(const Rib& rib, bool force_wide = false);

}  // namespace sluice

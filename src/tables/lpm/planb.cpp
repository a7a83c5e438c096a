#include "tables/lpm/planb.h"

#include <fmt/format.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "tables/image.h"
#include "tables/lpm/entries.h"
#include "tables/lpm/intervals.h"
#include "tables/lpm/lists.h"

namespace sluice {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();  // no address is above it
constexpr uint64_t kMaxLeaves = uint64_t{1} << 28;

int64_t turned(uint64_t hi) {
  return static_cast<int64_t>(hi ^ PlanBView::kTurn);
}

// The node at which a level begins: 1 + 9 + 81 + ... nodes stand before it.
constexpr uint64_t level_begin(uint32_t level) {
  uint64_t begin = 0;
  for (uint32_t i = 0; i < level; ++i) begin = begin * 9 + 1;
  return begin;
}

struct PlanBTree {
  std::vector<uint64_t> begins;    // of each leaf's span; the first is 0
  std::vector<uint32_t> values;    // a next hop, or kBlock | block
  std::vector<uint32_t> starts{};  // of each block among the low keys, and the end
  std::vector<uint64_t> low_keys;
  std::vector<uint16_t> low_hops;
  uint32_t levels = 1;
  static constexpr uint32_t kBlock = 1u << 31;

  explicit PlanBTree(const std::vector<Interval6>& intervals) {
    begins.reserve(intervals.size() + 16);
    values.reserve(intervals.size() + 16);
    bool open = false;  // a block for `block_hi` is being filled
    uint64_t block_hi = 0;
    uint16_t last = 0;
    for (const Interval6& interval : intervals) {
      const auto hi = static_cast<uint64_t>(interval.begin >> 64), lo = static_cast<uint64_t>(interval.begin);
      if (open && hi != block_hi) {
        open = false;
        if (hi != block_hi + 1 || lo != 0) put(block_hi + 1, last);
      }
      if (lo == 0) {
        put(hi, interval.next_hop);
      } else {
        if (!open) {
          open = true;
          block_hi = hi;
          if (begins.back() != hi) put(hi, 0);
          values.back() = kBlock | static_cast<uint32_t>(starts.size());
          starts.push_back(static_cast<uint32_t>(low_keys.size()));
          low_keys.push_back(0);
          low_hops.push_back(last);
        }
        low_keys.push_back(lo);
        low_hops.push_back(interval.next_hop);
      }
      last = interval.next_hop;
    }
    if (open && block_hi != ~uint64_t{0}) put(block_hi + 1, last);
    starts.push_back(static_cast<uint32_t>(low_keys.size()));
    for (uint64_t span = 9; span < begins.size(); span *= 9) ++levels;
  }
  void put(uint64_t begin, uint32_t value) {
    begins.push_back(begin);
    values.push_back(value);
  }
  uint64_t nodes() const { return level_begin(levels - 1) + (begins.size() + 8) / 9; }
};

struct Offsets {
  uint64_t leaves, starts, low_keys, low_hops, end;
  explicit Offsets(const PlanBHeader& h, uint64_t nodes) {
    auto round = [](uint64_t v) { return (v + 63) / 64 * 64; };
    leaves = sizeof(PlanBHeader) + nodes * 64;
    starts = round(leaves + uint64_t{h.leaf_count} * h.leaf_bytes);
    low_keys = round(starts + (uint64_t{h.block_count} + 1) * 4);
    low_hops = round(low_keys + uint64_t{h.low_count} * 8);
    end = round(low_hops + uint64_t{h.low_count} * 2);
  }
};
uint64_t node_count(const PlanBHeader& h) {
  return level_begin(h.levels - 1) + (uint64_t{h.leaf_count} + 8) / 9;
}

}  // namespace

Result<FibPlan> plan_planb(const Rib& rib, bool force_wide) {
  auto tree = std::make_shared<PlanBTree>(intervals_of<Uint128>(rib.routes6()));
  if (tree->begins.size() > kMaxLeaves || tree->low_keys.size() > kMaxLeaves) {
    return Error("planb: the table has more than 2^28 intervals");
  }
  PlanBHeader header{};
  header.next_hops = rib.next_hop_count();
  header.levels = tree->levels;
  header.leaf_count = static_cast<uint32_t>(tree->begins.size());
  header.block_count = static_cast<uint32_t>(tree->starts.size() - 1);
  header.low_count = static_cast<uint32_t>(tree->low_keys.size());
  header.leaf_bytes = force_wide || header.next_hops + header.block_count > 65535 ? 4 : 2;
  const Offsets at(header, node_count(header));
  FibPlan plan;
  plan.bytes = at.end;
  plan.write = [tree, header, at](std::span<std::byte> out) {
    std::memcpy(out.data(), &header, sizeof header);
    auto* keys = reinterpret_cast<int64_t*>(out.data() + sizeof header);
    const size_t leaves = tree->begins.size();
    uint64_t span = 1;  // leaves under a child
    for (uint32_t level = header.levels; level-- > 0; span *= 9) {
      const uint64_t begin = level_begin(level);
      // Of the levels above the last, places past their last leaf stay unreachable; they are filled all the same.
      const uint64_t nodes = level + 1 < header.levels ? level_begin(level + 1) - begin : node_count(header) - begin;
      for (uint64_t node = 0; node < nodes; ++node) {
        for (uint64_t k = 0; k < 8; ++k) {
          const uint64_t next = (node * 9 + k + 1) * span;
          keys[(begin + node) * 8 + k] = next < leaves ? turned(tree->begins[next] - 1) : kNever;
        }
      }
    }
    auto put = [&](auto* leaf) {
      using Leaf = std::remove_pointer_t<decltype(leaf)>;
      for (uint32_t value : tree->values) {
        *leaf++ = static_cast<Leaf>(
            (value & PlanBTree::kBlock) == 0 ? value : header.next_hops + 1 + (value & ~PlanBTree::kBlock));
      }
    };
    if (header.leaf_bytes == 2) {
      put(reinterpret_cast<uint16_t*>(out.data() + at.leaves));
    } else {
      put(reinterpret_cast<uint32_t*>(out.data() + at.leaves));
    }
    auto copy = [&](uint64_t offset, const auto& array) {
      if (!array.empty()) std::memcpy(out.data() + offset, array.data(), array.size() * sizeof(array[0]));
    };
    copy(at.starts, tree->starts);
    copy(at.low_keys, tree->low_keys);
    copy(at.low_hops, tree->low_hops);
  };
  return plan;
}

Result<PlanBView> PlanBView::open(std::span<const std::byte> section, uint32_t next_hop_count) {
  const auto* header = section_array<PlanBHeader>(section, 0, 1);
  if (header == nullptr) return Error(fmt::format("planb: {} bytes are too few", section.size()));
  const PlanBHeader& h = *header;
  if ((h.leaf_bytes != 2 && h.leaf_bytes != 4) || h.levels == 0 || h.levels > kMaxLevels || h.leaf_count == 0 ||
      h.leaf_count > kMaxLeaves || h.low_count > kMaxLeaves || h.block_count > h.low_count ||
      h.next_hops > next_hop_count) {
    return Error(fmt::format("planb: {} levels, {} leaves of {} bytes, {} lists, {} next hops", h.levels, h.leaf_count,
                             h.leaf_bytes, h.block_count, h.next_hops));
  }
  // As many levels as the leaves need and no more, so that sizes stay in proportion.
  uint32_t levels = 1;
  for (uint64_t span = 9; span < h.leaf_count; span *= 9) ++levels;
  if (levels != h.levels) return Error(fmt::format("planb: {} levels for {} leaves", h.levels, h.leaf_count));
  const uint64_t nodes = node_count(h);
  const Offsets at(h, nodes);
  PlanBView view;
  view.keys_ = section_array<int64_t>(section, sizeof(PlanBHeader), nodes * 8);
  view.starts_ = section_array<uint32_t>(section, at.starts, uint64_t{h.block_count} + 1);
  view.low_keys_ = section_array<uint64_t>(section, at.low_keys, h.low_count);
  view.low_hops_ = section_array<uint16_t>(section, at.low_hops, h.low_count);
  view.levels_ = static_cast<uint16_t>(h.levels);
  view.first_leaf_ = static_cast<uint32_t>(level_begin(h.levels));
  view.next_hops_ = h.next_hops;
  if (view.keys_ == nullptr || view.starts_ == nullptr || at.end > section.size()) {
    return Error(fmt::format("planb: {} leaves do not fit in {} bytes", h.leaf_count, section.size()));
  }
  // A node's child exists when the child's first leaf does; no key may let an address past the last of them.
  uint64_t span = 1;
  for (uint32_t level = h.levels; level-- > 0; span *= 9) {
    const uint64_t begin = level_begin(level);
    const uint64_t reached = (h.leaf_count + span * 9 - 1) / (span * 9);
    const uint64_t last = reached - 1;
    const uint64_t children = (h.leaf_count + span - 1) / span - last * 9;
    for (uint64_t k = children - 1; k < 8; ++k) {
      if (view.keys_[(begin + last) * 8 + k] != kNever) {
        return Error(fmt::format("planb: node {} leads past the last leaf", begin + last));
      }
    }
  }
  auto check_leaves = [&](const auto* leaves) {
    return highest_entry(leaves, h.leaf_count) <= uint64_t{h.next_hops} + h.block_count;
  };
  view.wide_ = h.leaf_bytes == 4;
  view.leaves_ = section.data() + at.leaves;
  const bool ok = view.wide_ ? check_leaves(view.wide_leaves()) : check_leaves(view.narrow_leaves());
  if (!ok) return Error("planb: a leaf is past the next hops and lists");
  if (auto listed = check_lists("planb", view.starts_, h.block_count, view.low_hops_, h.low_count, next_hop_count);
      !listed) {
    return std::move(listed).error();
  }
  return view;
}

// Sixteen lookups in step: a level's nodes are sixteen independent loads, and the branch at the end of a level is the
// same for all. `at` counts keys, eight a node: 8 * (9 node + 1 + below) = at + 8 * (at + below + 1). A step is five
// instructions in AVX-512 and each of them shows, so nothing of it goes through memory that has not to.
constexpr size_t kGroup = 16;

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 and its own _mm512_undefined_epi32 (bug 105593)
#endif

struct PlanBBulk {
  template <typename Leaf>
  struct Table {
    const PlanBView& view;
    const int64_t* keys;
    const Leaf* leaves;  // such that the leaf of `at` is leaves[at / 8]
    uint32_t levels, limit;
  };

  static uint32_t below_scalar(const int64_t* keys, int64_t key) {
    uint32_t below = 0;
    for (int k = 0; k < 8; ++k) below += keys[k] < key ? 1 : 0;
    return below;
  }

  // Of a group's lookups, those that end in a block.
  template <typename Leaf>
  __attribute__((noinline)) static void search_blocks(const Table<Leaf>& t, const uint64_t* lo, uint32_t* next_hops) {
    for (size_t k = 0; k < kGroup; ++k) {
      if (next_hops[k] > t.limit) next_hops[k] = t.view.search_low(next_hops[k] - t.limit - 1, lo[k]);
    }
  }

  // Each of these answers whole groups, n a multiple of kGroup: with the loop inside, the constants stay in registers.
  template <typename Leaf>
  static void run_scalar(const Table<Leaf>& t, const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) {
    for (; n > 0; n -= kGroup, hi += kGroup, lo += kGroup, next_hops += kGroup) {
      uint64_t at[kGroup] = {};
      for (uint32_t level = 0; level < t.levels; ++level) {
        for (size_t k = 0; k < kGroup; ++k) at[k] += 8 * (at[k] + below_scalar(t.keys + at[k], turned(hi[k])) + 1);
      }
      uint32_t more = 0;
      for (size_t k = 0; k < kGroup; ++k) {
        next_hops[k] = t.leaves[at[k] / 8];
        more |= next_hops[k] > t.limit ? 1 : 0;
      }
      if (more != 0) [[unlikely]]
        search_blocks(t, lo, next_hops);
    }
  }
#if defined(__x86_64__)
  template <typename Leaf>
  __attribute__((target("avx2,popcnt"))) static void run_avx2(const Table<Leaf>& t, const uint64_t* hi,
                                                              const uint64_t* lo, uint32_t* next_hops, size_t n) {
    const __m256i turn = _mm256_set1_epi64x(static_cast<int64_t>(PlanBView::kTurn));
    for (; n > 0; n -= kGroup, hi += kGroup, lo += kGroup, next_hops += kGroup) {
      uint64_t at[kGroup] = {};
      for (uint32_t level = 0; level < t.levels; ++level) {
#pragma GCC unroll 16
        for (size_t k = 0; k < kGroup; ++k) {
          const __m256i key = _mm256_xor_si256(_mm256_set1_epi64x(static_cast<int64_t>(hi[k])), turn);
          const auto* node = reinterpret_cast<const __m256i*>(t.keys + at[k]);
          const __m256i first = _mm256_cmpgt_epi64(key, _mm256_load_si256(node));
          const __m256i second = _mm256_cmpgt_epi64(key, _mm256_load_si256(node + 1));
          // Two packs leave four bits a key, in any order.
          const auto bits = static_cast<unsigned>(_mm256_movemask_epi8(_mm256_packs_epi32(first, second)));
          at[k] += 8 * (at[k] + 1) + 2 * static_cast<unsigned>(__builtin_popcount(bits));
        }
      }
      uint32_t more = 0;
      for (size_t k = 0; k < kGroup; ++k) {
        next_hops[k] = t.leaves[at[k] / 8];
        more |= next_hops[k] > t.limit ? 1 : 0;
      }
      if (more != 0) [[unlikely]]
        search_blocks(t, lo, next_hops);
    }
  }

  template <typename Leaf>
  __attribute__((target("avx512f,avx512dq,bmi,popcnt"))) static void run_avx512(const Table<Leaf>& t,
                                                                                const uint64_t* hi, const uint64_t* lo,
                                                                                uint32_t* next_hops, size_t n) {
    const __m512i turn = _mm512_set1_epi64(static_cast<int64_t>(PlanBView::kTurn));
    const int64_t* const keys = t.keys;
    for (; n > 0; n -= kGroup, hi += kGroup, lo += kGroup, next_hops += kGroup) {
      __m512i key[kGroup];
      uint64_t at[kGroup];
#pragma GCC unroll 16
      for (size_t k = 0; k < kGroup; ++k) {
        key[k] = _mm512_xor_si512(_mm512_set1_epi64(static_cast<int64_t>(hi[k])), turn);
        at[k] = 0;
      }
      for (uint32_t level = t.levels; level > 0; --level) {
#pragma GCC unroll 16
        for (size_t k = 0; k < kGroup; ++k) {
          const __mmask8 below = _mm512_cmpgt_epi64_mask(key[k], _mm512_load_si512(keys + at[k]));
          const uint64_t sum = at[k] + static_cast<unsigned>(__builtin_popcount(_cvtmask8_u32(below)));
          at[k] += 8 * sum + 8;
        }
      }
      const Leaf* const leaves = t.leaves;
      const uint32_t limit = t.limit;
      uint32_t more = 0;
#pragma GCC unroll 16
      for (size_t k = 0; k < kGroup; ++k) {
        const uint32_t entry = leaves[at[k] / 8];
        next_hops[k] = entry;
        more |= entry > limit ? 1 : 0;
      }
      if (more != 0) [[unlikely]]
        search_blocks(t, lo, next_hops);
    }
  }
#endif

  template <typename Leaf>
  static void run([[maybe_unused]] LpmIsa isa, const PlanBView& v, const Leaf* leaves, const uint64_t* hi,
                  const uint64_t* lo, uint32_t* next_hops, size_t n) {
    auto whole = run_scalar<Leaf>;
#if defined(__x86_64__)
    if (isa == LpmIsa::kAvx512 && kHasAvx512) {
      whole = run_avx512<Leaf>;
    } else if (isa != LpmIsa::kScalar && kHasAvx2) {
      whole = run_avx2<Leaf>;
    }
#endif
    const Table<Leaf> t{v, v.keys_, leaves - v.first_leaf_, v.levels_, v.next_hops_};
    in_groups<kGroup>(hi, lo, next_hops, n, [&](const uint64_t* h, const uint64_t* l, uint32_t* out, size_t some) {
      whole(t, h, l, out, some);
    });
  }

 private:
#if defined(__x86_64__)
  // Asked once before main; until then lookups are scalar.
  static const bool kHasAvx2, kHasAvx512;
#endif
};
#if defined(__x86_64__)
const bool PlanBBulk::kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
const bool PlanBBulk::kHasAvx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0;
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

void PlanBView::lookup_bulk(LpmIsa isa, const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
  if (!wide_) return PlanBBulk::run(isa, *this, narrow_leaves(), hi, lo, next_hops, n);
  PlanBBulk::run(isa, *this, wide_leaves(), hi, lo, next_hops, n);
}

void PlanBView::lookup_bulk(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
  lookup_bulk(available_lpm_isas().back(), hi, lo, next_hops, n);
}

}  // namespace sluice

#include "tables/lpm/range24.h"

#include <fmt/format.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/prefetch.h"
#include "tables/image.h"
#include "tables/lpm/intervals.h"
#include "tables/lpm/lists.h"

namespace sluice {
namespace {

constexpr size_t kRoots = Range24View::kRoots;
constexpr uint32_t kAnswer = Range24View::kAnswer;
constexpr uint32_t kNever = UINT32_MAX;  // no key is above it
constexpr uint32_t kTreeLeaves = 4096;
constexpr uint32_t kMaxTrees = 2048;  // 50 MiB; what does not fit goes into lists
constexpr uint32_t kMaxBlocks = 1u << 28;
constexpr uint32_t kBlock = 1u << 30;  // in a value that is not written yet: a list's number

struct RangeLeaf {
  uint32_t begin;  // address bits 16..47
  uint32_t value;  // a next hop, or kBlock | list
};

struct RangeTables {
  std::vector<uint32_t> root = std::vector<uint32_t>(kRoots);
  std::vector<uint32_t> chunks;
  std::vector<std::vector<RangeLeaf>> trees;
  std::vector<uint32_t> starts;
  std::vector<Range24View::LowKey> low_keys;
  std::vector<uint16_t> low_hops;

  explicit RangeTables(const std::vector<Interval6>& intervals) : intervals_(intervals) {
    std::vector<uint32_t> shared(size_t{Rib::kMaxNextHops} + 1, UINT32_MAX);
    size_t at = 0;
    for (uint32_t r = 0; r < kRoots; ++r) {
      const Uint128 begin = Uint128{r} << 112, last = begin | (~Uint128{0} >> 16);
      while (at + 1 < intervals.size() && intervals[at + 1].begin <= begin) ++at;
      if (at + 1 < intervals.size() && intervals[at + 1].begin <= last) {
        root[r] = static_cast<uint32_t>(chunks.size());
        fill_chunk(r, at);
        continue;
      }
      uint32_t& chunk = shared[intervals[at].next_hop];
      if (chunk == UINT32_MAX) {
        chunk = static_cast<uint32_t>(chunks.size());
        chunks.insert(chunks.end(), 256, kAnswer | intervals[at].next_hop);
      }
      root[r] = chunk;
    }
    starts.push_back(static_cast<uint32_t>(low_keys.size()));
  }

 private:
  // Every /24 of a /16 that is divided goes through a tree, also where it is all one answer: such answers are few among
  // packets, and a group of lookups that has one would be alone with it. A tree has them as ranges like others.
  void fill_chunk(uint32_t r, size_t at) {
    bool open = false;  // the last tree is this /16's and has room
    for (uint32_t c = 0; c < 256; ++c) {
      const Uint128 begin = Uint128{r << 8 | c} << 104, last = begin | (~Uint128{0} >> 24);
      while (at + 1 < intervals_.size() && intervals_[at + 1].begin <= begin) ++at;
      const size_t low = low_keys.size(), lists = starts.size();
      std::vector<RangeLeaf> leaves = ranges(begin, last, at);
      const bool more = open && trees.back().back().value == leaves[0].value;  // of what stands last in the tree
      const bool fits = open && trees.back().size() + leaves.size() - (more ? 1 : 0) <= kTreeLeaves;
      if (leaves.size() > kTreeLeaves || (!fits && trees.size() == kMaxTrees)) {
        if (leaves.size() == 1) {
          chunks.push_back(kAnswer | leaves[0].value);
          continue;
        }
        low_keys.resize(low);
        low_hops.resize(low);
        starts.resize(lists);
        chunks.push_back(kAnswer | whole_list(begin, last, at));
        continue;
      }
      if (!fits) trees.emplace_back();
      open = true;
      trees.back().insert(trees.back().end(), leaves.begin() + (fits && more ? 1 : 0), leaves.end());
      chunks.push_back(static_cast<uint32_t>(trees.size() - 1) * 16);
    }
  }

  uint32_t new_list(Uint128 begin, uint16_t next_hop) {
    starts.push_back(static_cast<uint32_t>(low_keys.size()));
    add_low(begin, next_hop);
    return kBlock | static_cast<uint32_t>(starts.size() - 1);
  }
  void add_low(Uint128 begin, uint16_t next_hop) {
    low_keys.push_back({static_cast<uint64_t>(begin >> 64), static_cast<uint64_t>(begin)});
    low_hops.push_back(next_hop);
  }
  // All boundaries of [begin, last], of which interval `at` holds the begin.
  uint32_t whole_list(Uint128 begin, Uint128 last, size_t at) {
    const uint32_t list = new_list(begin, intervals_[at].next_hop);
    for (size_t i = at + 1; i < intervals_.size() && intervals_[i].begin <= last; ++i) {
      add_low(intervals_[i].begin, intervals_[i].next_hop);
    }
    return list;
  }
  // [begin, last] in ranges of whole /48s; those with boundaries inside become lists.
  std::vector<RangeLeaf> ranges(Uint128 begin, Uint128 last, size_t at) {
    auto slot_of = [](Uint128 a) { return static_cast<uint32_t>(a >> 80); };
    std::vector<RangeLeaf> out = {{slot_of(begin), intervals_[at].next_hop}};
    uint16_t before = intervals_[at].next_hop;
    bool open = false;
    for (size_t i = at + 1; i < intervals_.size() && intervals_[i].begin <= last; ++i) {
      const Interval6& interval = intervals_[i];
      const uint32_t slot = slot_of(interval.begin);
      const bool aligned = interval.begin << 48 == 0;
      if (open && slot != out.back().begin) {
        open = false;
        if (!aligned || slot != out.back().begin + 1) out.push_back({out.back().begin + 1, before});
      }
      if (aligned) {
        out.push_back({slot, interval.next_hop});
      } else {
        if (!open) {
          open = true;
          if (out.back().begin != slot) out.push_back({slot, 0});
          out.back().value = new_list(interval.begin >> 80 << 80, before);
        }
        add_low(interval.begin, interval.next_hop);
      }
      before = interval.next_hop;
    }
    if (open && out.back().begin != slot_of(last)) out.push_back({out.back().begin + 1, before});
    return out;
  }

  const std::vector<Interval6>& intervals_;
};

// Where the parts of a section begin, from its header's counts.
struct Offsets {
  uint64_t root, chunks, keys, leaves, starts, low_keys, low_hops, end;
  explicit Offsets(const Range24Header& h) {
    auto round = [](uint64_t v) { return (v + 63) / 64 * 64; };
    root = sizeof(Range24Header);
    chunks = root + kRoots * 4;
    keys = chunks + uint64_t{h.chunk_count} * 1024;
    leaves = keys + uint64_t{h.tree_count} * (1 + 16 + 256) * 64;
    starts = round(leaves + uint64_t{h.tree_count} * kTreeLeaves * h.leaf_bytes);
    low_keys = round(starts + (uint64_t{h.block_count} + 1) * 4);
    low_hops = round(low_keys + uint64_t{h.low_count} * 16);
    end = round(low_hops + uint64_t{h.low_count} * 2);
  }
};

}  // namespace

Result<FibPlan> plan_range24(const Rib& rib, bool force_wide) {
  const auto intervals = intervals_of<Uint128>(rib.routes6());
  if (intervals.size() > kMaxBlocks) return Error("range24: the table has more than 2^28 intervals");
  auto t = std::make_shared<RangeTables>(intervals);
  Range24Header header{};
  header.next_hops = rib.next_hop_count();
  header.chunk_count = static_cast<uint32_t>(t->chunks.size() / 256);
  header.tree_count = static_cast<uint32_t>(t->trees.size());
  header.block_count = static_cast<uint32_t>(t->starts.size() - 1);
  header.low_count = static_cast<uint32_t>(t->low_keys.size());
  header.leaf_bytes = force_wide || header.next_hops + header.block_count > 65535 ? 4 : 2;
  const Offsets at(header);
  FibPlan plan;
  plan.bytes = at.end;
  plan.write = [t, header, at](std::span<std::byte> out) {
    auto copy = [&](uint64_t offset, const auto& array) {
      if (!array.empty()) std::memcpy(out.data() + offset, array.data(), array.size() * sizeof(array[0]));
    };
    auto value_of = [&](uint32_t value) {
      return (value & kBlock) == 0 ? value : header.next_hops + 1 + (value & ~kBlock);
    };
    std::memcpy(out.data(), &header, sizeof header);
    copy(at.root, t->root);
    auto* chunks = reinterpret_cast<uint32_t*>(out.data() + at.chunks);
    for (size_t i = 0; i < t->chunks.size(); ++i) {
      const uint32_t entry = t->chunks[i];
      chunks[i] = (entry & kAnswer) == 0 ? entry : kAnswer | value_of(entry & ~kAnswer);
    }
    const size_t trees = t->trees.size();
    auto* keys = reinterpret_cast<uint32_t*>(out.data() + at.keys);
    std::fill_n(keys, trees * (1 + 16 + 256) * 16, kNever);
    for (size_t tree = 0; tree < trees; ++tree) {
      const std::vector<RangeLeaf>& leaves = t->trees[tree];
      size_t first_node = 0, span = 256;  // of the level; leaves under a child
      for (size_t nodes = 1; nodes <= 256; first_node += trees * nodes, nodes *= 16, span /= 16) {
        for (size_t node = 0; node < nodes; ++node) {
          uint32_t* key = keys + (first_node + tree * nodes + node) * 16;
          for (size_t k = 0; k < 15; ++k) {
            const size_t next = (node * 16 + k + 1) * span;
            if (next < leaves.size()) key[k] = leaves[next].begin - 1;
          }
        }
      }
      for (size_t i = 0; i < leaves.size(); ++i) {
        const size_t leaf = tree * kTreeLeaves + i;
        if (header.leaf_bytes == 2) {
          reinterpret_cast<uint16_t*>(out.data() + at.leaves)[leaf] = static_cast<uint16_t>(value_of(leaves[i].value));
        } else {
          reinterpret_cast<uint32_t*>(out.data() + at.leaves)[leaf] = value_of(leaves[i].value);
        }
      }
    }
    copy(at.starts, t->starts);
    copy(at.low_keys, t->low_keys);
    copy(at.low_hops, t->low_hops);
  };
  return plan;
}

Result<Range24View> Range24View::open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted) {
  const auto* header = section_array<Range24Header>(section, 0, 1);
  if (header == nullptr) return Error(fmt::format("range24: {} bytes are too few", section.size()));
  const Range24Header& h = *header;
  if ((h.leaf_bytes != 2 && h.leaf_bytes != 4) || h.next_hops > next_hop_count || h.chunk_count == 0 ||
      h.chunk_count > 2 * kRoots || h.tree_count > kMaxTrees || h.block_count > h.low_count ||
      h.low_count > kMaxBlocks) {
    return Error(fmt::format("range24: {} chunks, {} trees with leaves of {} bytes, {} lists, {} next hops",
                             h.chunk_count, h.tree_count, h.leaf_bytes, h.block_count, h.next_hops));
  }
  const Offsets at(h);
  if (at.end > section.size()) {
    return Error(fmt::format("range24: {} trees and {} lists do not fit in {} bytes", h.tree_count, h.block_count,
                             section.size()));
  }
  auto array = [&]<typename T>(uint64_t offset, const T*) {
    return reinterpret_cast<const T*>(section.data() + offset);
  };
  Range24View view;
  view.root_ = array(at.root, view.root_);
  view.keys_ = array(at.keys, view.keys_);
  view.leaves_ = section.data() + at.leaves;
  view.lists_ = section.data() + at.starts;
  view.second_ = h.tree_count;
  view.third_ = h.tree_count * 17;
  view.low_keys_at_ = static_cast<uint32_t>((at.low_keys - at.starts) / 64);
  view.low_hops_at_ = static_cast<uint32_t>((at.low_hops - at.starts) / 64);
  view.next_hops_ = h.next_hops;
  view.wide_ = h.leaf_bytes == 4 ? 1 : 0;
  if (trusted) return view;
  for (size_t i = 0; i < kRoots; ++i) {
    if (view.root_[i] % 256 != 0 || view.root_[i] / 256 >= h.chunk_count) {
      return Error(fmt::format("range24: root entry {} has chunk {}", i, view.root_[i] / 256));
    }
  }
  const uint64_t answers = uint64_t{h.next_hops} + h.block_count;
  for (size_t i = 0; i < size_t{h.chunk_count} * 256; ++i) {
    const uint32_t entry = view.chunks()[i];
    const bool ok =
        (entry & kAnswer) != 0 ? (entry & ~kAnswer) <= answers : entry % 16 == 0 && entry / 16 < h.tree_count;
    if (!ok) return Error(fmt::format("range24: chunk entry {} is {:#x}", i, entry));
  }
  // The last of a node's sixteen keys keeps every lookup inside the node's sixteen children.
  for (size_t node = 0; node < size_t{h.tree_count} * (1 + 16 + 256); ++node) {
    if (view.keys_[node * 16 + 15] != kNever) return Error(fmt::format("range24: node {} has too many children", node));
  }
  for (size_t i = 0; i < size_t{h.tree_count} * kTreeLeaves; ++i) {
    const uint32_t value = view.wide_ != 0 ? view.wide_leaves()[i] : view.narrow_leaves()[i];
    if (value > answers) return Error(fmt::format("range24: leaf {} is {}", i, value));
  }
  if (auto listed = check_lists("range24", view.starts(), h.block_count, view.low_hops(), h.low_count, next_hop_count);
      !listed) {
    return std::move(listed).error();
  }
  return view;
}

// Eight lookups in step: as many as have registers for where they are and what they look for.
constexpr size_t kGroup = 8;
constexpr size_t kPiece = 1024;
// Addresses that are asked for ahead, in case more follow: the processor's own prefetching ends with a page.
constexpr size_t kAhead = 128;

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 and its own _mm512_undefined_epi32 (bug 105593)
#endif

struct Range24Bulk {
  // Answers that are lists are replaced by what a search says.
  __attribute__((noinline)) static void search_lists(const Range24View& v, const uint64_t* hi, const uint64_t* lo,
                                                     uint32_t* next_hops, size_t n) {
    for (size_t k = 0; k < n; ++k) {
      if (next_hops[k] > v.next_hops_) next_hops[k] = v.search_low(next_hops[k] - v.next_hops_ - 1, hi[k], lo[k]);
    }
  }

#if defined(__x86_64__)
#define SLUICE_RANGE24 target("avx512f,avx512bw,bmi,popcnt")
  // The arrays as the loop wants them: copied into registers, so that it is never passed on by address.
  template <typename Leaf>
  struct Arrays {
    const uint32_t *root, *chunks, *first, *second, *third;
    const Leaf* leaves;
    Arrays(const Range24View& v, const Leaf* leaf)
        : root(v.root_),
          chunks(v.chunks()),
          first(v.keys_),
          second(v.keys_ + size_t{v.second_} * 16),
          third(v.keys_ + size_t{v.third_} * 16),
          leaves(leaf) {
      asm("" : "+r"(second), "+r"(third));  // or they are kept as distances from the first, an addition each time
    }
  };

  // A level down: from a node's first key to that of its child, both by number. Five instructions, as long as the
  // compiler does not see where `at` comes from: it would keep both the number and the bytes.
  __attribute__((SLUICE_RANGE24, always_inline)) static inline uint64_t step(__m512i key, const uint32_t* keys,
                                                                             uint64_t at) {
    const __mmask16 below = _mm512_cmpgt_epu32_mask(key, _mm512_load_si512(keys + at));
    uint64_t next = at + static_cast<unsigned>(__builtin_popcount(below));
    next <<= 4;
    asm("" : "+r"(next));
    return next;
  }

  // The group's chunk entries: a tree's first key, or kAnswer and an answer. The bits of all of them together. Kept in
  // registers: an earlier form noted them a group ahead, and what it gained it lost to the notes.
  template <typename Leaf>
  __attribute__((SLUICE_RANGE24, always_inline)) static inline uint64_t chunk_entries(const Arrays<Leaf>& a,
                                                                                      const uint64_t* hi,
                                                                                      uint64_t (&entries)[kGroup]) {
    // The address's parts as they lie in memory: x86 is little-endian.
    const auto* bytes = reinterpret_cast<const unsigned char*>(hi);
    uint64_t any = 0;
#pragma GCC unroll 8
    for (size_t k = 0; k < kGroup; ++k) {
      uint16_t high;
      std::memcpy(&high, bytes + 8 * k + 6, sizeof high);
      uint32_t entry = a.chunks[a.root[high] + bytes[8 * k + 5]];
      asm("" : "+r"(entry));  // or they are gathered into a vector that is taken apart again
      entries[k] = entry;
      any |= entry;
    }
    return any;
  }

  // From the trees' first keys to those of their last nodes, and what is looked for there.
  template <typename Leaf>
  __attribute__((SLUICE_RANGE24, always_inline)) static inline void to_last_nodes(const Arrays<Leaf>& a,
                                                                                  const uint64_t* hi,
                                                                                  uint64_t (&at)[kGroup],
                                                                                  __m512i (&key)[kGroup]) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(hi);
#pragma GCC unroll 8
    for (size_t k = 0; k < kGroup; ++k) {
      uint32_t middle;
      std::memcpy(&middle, bytes + 8 * k + 2, sizeof middle);
      key[k] = _mm512_set1_epi32(static_cast<int>(middle));
      at[k] = step(key[k], a.first, at[k]);
    }
#pragma GCC unroll 8
    for (size_t k = 0; k < kGroup; ++k) at[k] = step(key[k], a.second, at[k]);
  }

  // From the trees' first keys to the leaves' values.
  template <typename Leaf>
  __attribute__((SLUICE_RANGE24, always_inline)) static inline void descend(const Arrays<Leaf>& a, const uint64_t* hi,
                                                                            uint64_t (&at)[kGroup],
                                                                            uint32_t* next_hops) {
    __m512i key[kGroup];
    to_last_nodes(a, hi, at, key);
#pragma GCC unroll 8
    for (size_t k = 0; k < kGroup; ++k) {
      const __mmask16 below = _mm512_cmpgt_epu32_mask(key[k], _mm512_load_si512(a.third + at[k]));
      next_hops[k] = a.leaves[at[k] + static_cast<unsigned>(__builtin_popcount(below))];
    }
  }

  // A group that has answers in chunks: most often nothing else. Otherwise those go down the first tree for company.
  template <typename Leaf>
  __attribute__((SLUICE_RANGE24, noinline)) static void answered(const Range24View& v, const Leaf* leaves,
                                                                 const uint64_t* hi, uint32_t* next_hops) {
    const Arrays<Leaf> a(v, leaves);
    uint64_t entries[kGroup], at[kGroup];
    chunk_entries(a, hi, entries);
    uint64_t all = kAnswer;
    for (size_t k = 0; k < kGroup; ++k) {
      all &= entries[k];
      at[k] = (entries[k] & kAnswer) != 0 ? 0 : entries[k];
    }
    if (all == 0) descend(a, hi, at, next_hops);
    for (size_t k = 0; k < kGroup; ++k) {
      const auto answer = static_cast<uint32_t>(entries[k] & ~uint64_t{kAnswer});
      next_hops[k] = (entries[k] & kAnswer) != 0 ? answer : next_hops[k];
    }
  }

  // `n`: a multiple of the group, at most kPiece. Whether an answer is a list is asked of the whole piece in the end,
  // when what was stored in parts is in the cache and can be read as vectors.
  template <typename Leaf>
  __attribute__((SLUICE_RANGE24)) static void run_avx512(const Range24View& v, const Leaf* leaves, const uint64_t* hi,
                                                         const uint64_t* lo, uint32_t* next_hops, size_t n) {
    const Arrays<Leaf> a(v, leaves);
    for (size_t i = 0; i < n; i += kGroup) {
      prefetch_read(hi + i + kAhead);
      uint64_t at[kGroup];
      if ((chunk_entries(a, hi + i, at) & kAnswer) == 0) [[likely]] {
        descend(a, hi + i, at, next_hops + i);
      } else {
        answered(v, leaves, hi + i, next_hops + i);
      }
    }
    const __m512i limit = _mm512_set1_epi32(static_cast<int>(v.next_hops_));
    for (size_t i = 0; i < n; i += 16) {
      const size_t some = std::min<size_t>(16, n - i);
      const __m512i found = _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << some) - 1), next_hops + i);
      if (_mm512_cmpgt_epu32_mask(found, limit) != 0) [[unlikely]]
        search_lists(v, hi + i, lo + i, next_hops + i, some);
    }
  }

  // Of addresses whose entries are trees, `n` of them, a multiple of the group: what ask() notes.
  __attribute__((SLUICE_RANGE24)) static void ask_avx512(const Range24View& v, const uint64_t* hi, uint32_t* places,
                                                         size_t n) {
    const Arrays<uint16_t> a(v, nullptr);
    for (size_t i = 0; i < n; i += kGroup) {
      uint64_t at[kGroup];
      if ((chunk_entries(a, hi + i, at) & kAnswer) != 0) [[unlikely]] {
        ask_scalar(v, hi + i, places + i, kGroup);
        continue;
      }
      __m512i key[kGroup];
      to_last_nodes(a, hi + i, at, key);
#pragma GCC unroll 8
      for (size_t k = 0; k < kGroup; ++k) {
        prefetch_read(a.third + at[k]);
        places[i + k] = static_cast<uint32_t>(at[k] >> 4);
      }
    }
  }
  // Answers that were noted go down to the first node for company.
  template <typename Leaf>
  __attribute__((SLUICE_RANGE24)) static void answer_avx512(const Range24View& v, const Leaf* leaves,
                                                            const uint64_t* hi, const uint32_t* places,
                                                            uint32_t* next_hops, size_t n) {
    const Arrays<Leaf> a(v, leaves);
#pragma GCC unroll 8
    for (size_t k = 0; k < n; ++k) {
      const uint32_t place = places[k], answered = 0u - (place >> 31);
      const uint64_t first = uint64_t{place & ~answered} << 4;
      const __m512i key = _mm512_set1_epi32(static_cast<int>(hi[k] >> 16));
      const __mmask16 below = _mm512_cmpgt_epu32_mask(key, _mm512_load_si512(a.third + first));
      const uint32_t leaf = a.leaves[first + static_cast<unsigned>(__builtin_popcount(below))];
      next_hops[k] = (leaf & ~answered) | (place & ~kAnswer & answered);
    }
  }
#undef SLUICE_RANGE24

  // The same with half vectors. Of unsigned keys AVX2 can say which are not below the address's.
  __attribute__((target("avx2,bmi,popcnt"), always_inline)) static inline uint64_t child_avx2(__m256i key,
                                                                                              const uint32_t* keys,
                                                                                              uint64_t at) {
    const auto* node = reinterpret_cast<const __m256i*>(keys + at);
    const __m256i low = _mm256_load_si256(node), high = _mm256_load_si256(node + 1);
    const auto not_below = [](__m256i k, __m256i node_keys) __attribute__((target("avx2"), always_inline)) {
      const __m256i same = _mm256_cmpeq_epi32(_mm256_max_epu32(node_keys, k), node_keys);
      return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(same)));
    };
    return at + 16 - static_cast<unsigned>(__builtin_popcount(not_below(key, low) | not_below(key, high) << 8));
  }
  template <typename Leaf>
  __attribute__((target("avx2,bmi,popcnt"))) static void run_avx2(const Range24View& v, const Leaf* leaves,
                                                                  const uint64_t* hi, const uint64_t* lo,
                                                                  uint32_t* next_hops, size_t n) {
    const Arrays<Leaf> a(v, leaves);
    for (size_t i = 0; i < n; i += kGroup) {
      prefetch_read(hi + i + kAhead);
      uint64_t at[kGroup], any = 0;
      __m256i key[kGroup];
      for (size_t k = 0; k < kGroup; ++k) {
        at[k] = a.chunks[a.root[hi[i + k] >> 48] + (hi[i + k] >> 40 & 255)];
        any |= at[k];
        key[k] = _mm256_set1_epi32(static_cast<int>(hi[i + k] >> 16));
      }
      if ((any & kAnswer) != 0) [[unlikely]] {
        run_scalar(v, leaves, hi + i, lo + i, next_hops + i, kGroup);
        continue;
      }
#pragma GCC unroll 8
      for (size_t k = 0; k < kGroup; ++k) at[k] = child_avx2(key[k], a.first, at[k]) * 16;
#pragma GCC unroll 8
      for (size_t k = 0; k < kGroup; ++k) at[k] = child_avx2(key[k], a.second, at[k]) * 16;
      bool lists = false;
#pragma GCC unroll 8
      for (size_t k = 0; k < kGroup; ++k) {
        next_hops[i + k] = leaves[child_avx2(key[k], a.third, at[k])];
        lists |= next_hops[i + k] > v.next_hops_;
      }
      if (lists) [[unlikely]]
        search_lists(v, hi + i, lo + i, next_hops + i, kGroup);
    }
  }
#endif

  static void ask_scalar(const Range24View& v, const uint64_t* hi, uint32_t* places, size_t n) {
    for (size_t k = 0; k < n; ++k) {
      const uint32_t entry = v.chunks()[v.root_[hi[k] >> 48] + (hi[k] >> 40 & 255)];
      places[k] = (entry & kAnswer) != 0 ? entry : v.last_node(entry, static_cast<uint32_t>(hi[k] >> 16));
      if ((entry & kAnswer) == 0) prefetch_read(v.keys_ + size_t{v.third_ + places[k]} * 16);
    }
  }
  static void ask(const Range24View& v, const uint64_t* hi, uint32_t* places, size_t n) {
    size_t i = 0;
#if defined(__x86_64__)
    if (kHasAvx512 && v.third_ != 0) {
      i = n / kGroup * kGroup;
      ask_avx512(v, hi, places, i);
    }
#endif
    ask_scalar(v, hi + i, places + i, n - i);
  }
  template <typename Leaf>
  static void answer(const Range24View& v, const Leaf* leaves, const uint64_t* hi, const uint64_t* lo,
                     const uint32_t* places, uint32_t* next_hops, size_t n) {
#if defined(__x86_64__)
    if (kHasAvx512 && v.third_ != 0) {
      answer_avx512(v, leaves, hi, places, next_hops, n);
    } else
#endif
    {
      for (size_t k = 0; k < n; ++k) {
        next_hops[k] = (places[k] & kAnswer) != 0 ? places[k] & ~kAnswer
                                                  : v.leaf_of(leaves, places[k], static_cast<uint32_t>(hi[k] >> 16));
      }
    }
    bool lists = false;
    for (size_t k = 0; k < n; ++k) lists |= next_hops[k] > v.next_hops_;
    if (lists) [[unlikely]]
      search_lists(v, hi, lo, next_hops, n);
  }

  template <typename Leaf>
  static void run_scalar(const Range24View& v, const Leaf*, const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops,
                         size_t n) {
    for (size_t i = 0; i < n; ++i) next_hops[i] = v.lookup(hi[i], lo[i]);
  }

  template <typename Leaf>
  static void run([[maybe_unused]] LpmIsa isa, const Range24View& v, const Leaf* leaves, const uint64_t* hi,
                  const uint64_t* lo, uint32_t* next_hops, size_t n) {
#if defined(__x86_64__)
    if (isa == LpmIsa::kAvx512 && kHasAvx512 && v.third_ != 0) {
      return in_groups<kGroup>(hi, lo, next_hops, n,
                               [&](const uint64_t* h, const uint64_t* l, uint32_t* out, size_t some) {
                                 for (size_t i = 0; i < some; i += kPiece)
                                   run_avx512(v, leaves, h + i, l + i, out + i, std::min(kPiece, some - i));
                               });
    }
    if (isa >= LpmIsa::kAvx2 && kHasAvx2 && v.third_ != 0) {
      return in_groups<kGroup>(hi, lo, next_hops, n,
                               [&](const uint64_t* h, const uint64_t* l, uint32_t* out, size_t some) {
                                 run_avx2(v, leaves, h, l, out, some);
                               });
    }
#endif
    run_scalar(v, leaves, hi, lo, next_hops, n);
  }

 private:
#if defined(__x86_64__)
  static const bool kHasAvx512, kHasAvx2;  // asked once before main; until then lookups are scalar
#endif
};
#if defined(__x86_64__)
const bool Range24Bulk::kHasAvx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
const bool Range24Bulk::kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

void Range24View::lookup_bulk(LpmIsa isa, const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
  if (wide_ == 0) return Range24Bulk::run(isa, *this, narrow_leaves(), hi, lo, next_hops, n);
  Range24Bulk::run(isa, *this, wide_leaves(), hi, lo, next_hops, n);
}

void Range24View::lookup_bulk(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
  lookup_bulk(LpmIsa::kAvx512, hi, lo, next_hops, n);  // or the best that there is
}

void Range24View::ask(const uint64_t* hi, uint32_t* places, size_t n) const {
  Range24Bulk::ask(*this, hi, places, n);
}

void Range24View::answer(const uint64_t* hi, const uint64_t* lo, const uint32_t* places, uint32_t* next_hops,
                         size_t n) const {
  if (wide_ == 0) return Range24Bulk::answer(*this, narrow_leaves(), hi, lo, places, next_hops, n);
  Range24Bulk::answer(*this, wide_leaves(), hi, lo, places, next_hops, n);
}

}  // namespace sluice

#include "tables/lpm/poptrie.h"

#include "base/prefetch.h"

#include <fmt/format.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>

#include "tables/image.h"
#include "tables/lpm/intervals.h"

namespace sluice {
namespace {

constexpr uint32_t kNode = PoptrieArrays::kNode;

// Builds from elementary intervals: a slot with no boundary inside is a leaf, any other a child. Breadth first, so that
// the children of a quarter are neighbours.
template <typename Key>
class PoptrieBuilder {
 public:
  static constexpr unsigned kBits = sizeof(Key) * 8;

  explicit PoptrieBuilder(std::vector<Interval<Key>> intervals) : intervals_(std::move(intervals)) {}

  // The start of each of the `count` spans of 2^(kBits - depth) addresses from `begin` on, each with root entries for
  // its 256 parts; spans without a boundary share them where they have one next hop.
  void add_starts(Key begin, unsigned depth, size_t count) {
    std::map<uint16_t, uint32_t> shared;
    size_t at = interval_of(begin);
    for (size_t i = 0; i < count; ++i) {
      const Key start = begin + (static_cast<Key>(i) << (kBits - depth));
      while (at + 1 < intervals_.size() && intervals_[at + 1].begin <= start) ++at;
      const auto here = static_cast<uint32_t>(root_.size());
      const bool divided = has_boundary(at, start + low_mask(kBits - depth));
      if (!divided) {
        const auto [known, fresh] = shared.emplace(intervals_[at].next_hop, here);
        starts_.push_back(known->second);
        if (!fresh) continue;
      } else {
        starts_.push_back(here);
      }
      add_roots(start, depth + 8, 256);
    }
  }
  // Appends the root entries for the `count` spans of 2^(kBits - depth) addresses from `begin` on.
  void add_roots(Key begin, unsigned depth, size_t count) {
    size_t at = interval_of(begin);
    for (size_t i = 0; i < count; ++i) {
      const Key start = begin + (static_cast<Key>(i) << (kBits - depth));
      const Key last = start + low_mask(kBits - depth);
      while (at + 1 < intervals_.size() && intervals_[at + 1].begin <= start) ++at;
      root_.push_back(has_boundary(at, last) ? kNode | queue_node(start, depth, at) : intervals_[at].next_hop);
    }
  }
  // Appends the one root entry for the whole line, whose steps begin at bit 0. Slots of `covered` are left empty.
  void add_whole_root(unsigned covered_first, unsigned covered_last) {
    covered_first_ = covered_first;
    covered_last_ = covered_last;
    const bool one = intervals_.size() == 1;
    starts_.push_back(static_cast<uint32_t>(root_.size()));
    root_.push_back(one ? intervals_[0].next_hop : kNode | queue_node(0, 0, 0));
  }

  Result<void> build_nodes() {
    for (size_t n = 0; n < queue_.size(); ++n) {
      if (queue_.size() >= kNode || leaves_.size() > UINT32_MAX - 256) {
        return Error("poptrie: the table needs more than 2^31 nodes");
      }
      const Pending node = queue_[n];
      const unsigned shift = kBits - node.depth - 8;
      size_t at = node.interval;
      for (unsigned q = 0; q < 4; ++q) {
        PoptrieQuarter quarter{};
        quarter.child_base = static_cast<uint32_t>(queue_.size());
        quarter.leaf_base = static_cast<uint32_t>(leaves_.size());
        uint32_t previous = UINT32_MAX;
        for (unsigned s = 0; s < 64; ++s) {
          const unsigned slot = q * 64 + s;
          const Key start = node.begin | static_cast<Key>(slot) << shift;
          const Key last = start | low_mask(shift);
          while (at + 1 < intervals_.size() && intervals_[at + 1].begin <= start) ++at;
          uint16_t next_hop = intervals_[at].next_hop;
          if (node.depth == 0 && slot >= covered_first_ && slot <= covered_last_) {
            next_hop = 0;
          } else if (has_boundary(at, last)) {
            quarter.child |= uint64_t{1} << s;
            queue_node(start, node.depth + 8, at);
            continue;
          }
          if (next_hop == previous) continue;
          previous = next_hop;
          quarter.run |= uint64_t{1} << s;
          leaves_.push_back(next_hop);
        }
        quarters_.push_back(quarter);
      }
    }
    return {};
  }

  static FibPlan plan(std::shared_ptr<PoptrieBuilder> built) {
    auto round = [](uint64_t v) { return (v + 63) / 64 * 64; };
    PoptrieHeader header{};
    header.root_count = built->root_.size();
    header.node_count = built->quarters_.size() / 4;
    header.leaf_count = built->leaves_.size();
    header.root_offset = sizeof header + built->starts_.size() * 4;
    header.nodes_offset = round(header.root_offset + built->root_.size() * 4);
    header.leaves_offset = round(header.nodes_offset + built->quarters_.size() * sizeof(PoptrieQuarter));
    FibPlan plan;
    plan.layout_version = kPoptrieLayoutVersion;
    plan.bytes = round(header.leaves_offset + built->leaves_.size() * 2 + 2);  // + 2: a gather reads four bytes
    plan.write = [built, header](std::span<std::byte> out) {
      auto put = [&](uint64_t at, const auto& array) {
        if (!array.empty()) std::memcpy(out.data() + at, array.data(), array.size() * sizeof(array[0]));
      };
      std::memcpy(out.data(), &header, sizeof header);
      put(sizeof header, built->starts_);
      put(header.root_offset, built->root_);
      put(header.nodes_offset, built->quarters_);
      put(header.leaves_offset, built->leaves_);
    };
    return plan;
  }

 private:
  struct Pending {
    Key begin;
    size_t interval;  // the one that holds `begin`
    unsigned depth;
  };

  static Key low_mask(unsigned bits) { return bits == 0 ? Key{0} : static_cast<Key>(~Key{0}) >> (kBits - bits); }
  bool has_boundary(size_t interval, Key last) const {
    return interval + 1 < intervals_.size() && intervals_[interval + 1].begin <= last;
  }
  size_t interval_of(Key key) const {
    auto it = std::upper_bound(intervals_.begin(), intervals_.end(), key,
                               [](Key k, const Interval<Key>& interval) { return k < interval.begin; });
    return static_cast<size_t>(it - intervals_.begin()) - 1;
  }
  uint32_t queue_node(Key begin, unsigned depth, size_t interval) {
    queue_.push_back({begin, interval, depth});
    return static_cast<uint32_t>(queue_.size() - 1);
  }

  std::vector<Interval<Key>> intervals_;
  std::vector<uint32_t> starts_;  // IPv6
  std::vector<uint32_t> root_;
  std::vector<PoptrieQuarter> quarters_;
  std::vector<uint16_t> leaves_;
  std::vector<Pending> queue_;
  unsigned covered_first_ = 256;
  unsigned covered_last_ = 0;
};

// Checks the whole section but the starts of IPv6. `root_bits`: the bit at which the steps of a root entry begin; of
// the last one `last_bits`.
Result<PoptrieArrays> check(std::span<const std::byte> section, uint32_t next_hop_count, size_t starts, unsigned bits,
                            unsigned root_bits, unsigned last_bits, bool trusted) {
  const auto* header = section_array<PoptrieHeader>(section, 0, 1);
  if (header == nullptr) return Error(fmt::format("poptrie: {} bytes are too few", section.size()));
  PoptrieArrays arrays;
  const uint64_t root_count = header->root_count;
  if (header->root_offset != sizeof(PoptrieHeader) + starts * 4) {
    return Error(fmt::format("poptrie: the root begins at byte {}, not {}: an image of another version",
                             header->root_offset, sizeof(PoptrieHeader) + starts * 4));
  }
  arrays.root = section_array<uint32_t>(section, header->root_offset, root_count);
  const uint64_t nodes = header->node_count;
  const uint64_t leaves = header->leaf_count;
  if (root_count == 0 || arrays.root == nullptr || nodes >= kNode || leaves > UINT32_MAX) {
    return Error(fmt::format("poptrie: {} root entries, {} nodes, {} leaves in {} bytes", root_count, nodes, leaves,
                             section.size()));
  }
  arrays.quarters = section_array<PoptrieQuarter>(section, header->nodes_offset, nodes * 4);
  arrays.leaves = section_array<uint16_t>(section, header->leaves_offset, leaves + 1);
  if (arrays.quarters == nullptr || arrays.leaves == nullptr) {
    return Error(fmt::format("poptrie: {} nodes and {} leaves do not fit in {} bytes", nodes, leaves, section.size()));
  }
  if (trusted) return arrays;
  // The bit at which a node's step begins, as the deepest of the ways that lead to it. Children stand after their
  // parents, so one pass in order knows it before the node's turn comes, and there can be no cycle.
  std::vector<uint8_t> depth(nodes, 0);
  for (size_t i = 0; i < root_count; ++i) {
    const uint32_t entry = arrays.root[i];
    if ((entry & kNode) == 0) {
      if (entry > next_hop_count) return Error(fmt::format("poptrie: root entry {} has next hop {}", i, entry));
      continue;
    }
    const uint32_t node = entry & ~kNode;
    if (node >= nodes) return Error(fmt::format("poptrie: root entry {} has node {} of {}", i, node, nodes));
    depth[node] = std::max(depth[node], static_cast<uint8_t>(i + 1 < root_count ? root_bits : last_bits));
  }
  for (uint64_t n = 0; n < nodes; ++n) {
    for (unsigned q = 0; q < 4; ++q) {
      const PoptrieQuarter& quarter = arrays.quarters[n * 4 + q];
      const unsigned children = popcount64(quarter.child);
      const unsigned runs = popcount64(quarter.run);
      bool ok = uint64_t{quarter.leaf_base} + runs <= leaves;
      if (children > 0) {
        ok = ok && quarter.child_base > n && uint64_t{quarter.child_base} + children <= nodes && depth[n] + 16u <= bits;
      }
      if (children < 64) {
        // The first leaf slot needs a run bit at or below it, or the count would be 0 and the index -1.
        const int first_leaf = std::countr_one(quarter.child);
        ok = ok && std::countr_zero(quarter.run) <= first_leaf;
      }
      if (!ok) return Error(fmt::format("poptrie: quarter {} of node {} points outside", q, n));
      for (unsigned c = 0; c < children; ++c) {
        uint8_t& child = depth[quarter.child_base + c];
        child = std::max(child, static_cast<uint8_t>(depth[n] + 8));
      }
    }
  }
  for (uint64_t i = 0; i < leaves; ++i) {
    if (arrays.leaves[i] > next_hop_count) {
      return Error(fmt::format("poptrie: leaf {} has next hop {}", i, arrays.leaves[i]));
    }
  }
  return arrays;
}

}  // namespace

Result<FibPlan> plan_poptrie4(const Rib& rib) {
  auto builder = std::make_shared<PoptrieBuilder<uint32_t>>(intervals_of<uint32_t>(rib.routes4()));
  builder->add_roots(0, 16, Poptrie4View::kRootCount);
  if (auto ok = builder->build_nodes(); !ok) return std::move(ok).error();
  return PoptrieBuilder<uint32_t>::plan(builder);
}

Result<FibPlan> plan_poptrie6(const Rib& rib) {
  auto builder = std::make_shared<PoptrieBuilder<Uint128>>(intervals_of<Uint128>(rib.routes6()));
  builder->add_starts(Uint128{1} << 125, 16, Poptrie6View::kStarts - 1);
  builder->add_whole_root(0x20, 0x3f);
  if (auto ok = builder->build_nodes(); !ok) return std::move(ok).error();
  return PoptrieBuilder<Uint128>::plan(builder);
}

Result<Poptrie4View> Poptrie4View::open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted) {
  auto arrays = check(section, next_hop_count, 0, 32, 16, 16, trusted);
  if (!arrays) return std::move(arrays).error();
  const uint64_t root_count = section_array<PoptrieHeader>(section, 0, 1)->root_count;
  if (root_count != kRootCount) return Error(fmt::format("poptrie: {} root entries", root_count));
  Poptrie4View view;
  view.arrays_ = *arrays;
  return view;
}

Result<Poptrie6View> Poptrie6View::open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted) {
  auto arrays = check(section, next_hop_count, kStarts, 128, 24, 0, trusted);
  if (!arrays) return std::move(arrays).error();
  Poptrie6View view;
  view.starts_ = section_array<uint32_t>(section, sizeof(PoptrieHeader), kStarts);
  if (view.starts_ == nullptr) return Error(fmt::format("poptrie: no {} starts in {} bytes", kStarts, section.size()));
  view.arrays_ = *arrays;
  if (trusted) return view;
  // The last root entry, whose steps begin at bit 0, is in no /16.
  const uint64_t last = section_array<PoptrieHeader>(section, 0, 1)->root_count - 1;
  for (size_t i = 0; i + 1 < kStarts; ++i) {
    if (uint64_t{view.starts_[i]} + 256 > last) {
      return Error(fmt::format("poptrie: the root entries of /16 {} begin at {} of {}", i, view.starts_[i], last));
    }
  }
  if (view.starts_[kStarts - 1] != last) {
    return Error(fmt::format("poptrie: all other addresses have root entry {} of {}", view.starts_[kStarts - 1], last));
  }
  return view;
}

namespace {

// A family's keys as 128 bits from which each step takes the highest eight, after the root has taken its own.
struct Keys4 {
  const uint32_t* addresses;
  uint32_t root(size_t i) const { return addresses[i] >> 16; }
  uint64_t high(size_t i) const { return uint64_t{addresses[i]} << 48; }
  uint64_t low(size_t) const { return 0; }
};
struct Keys6 {
  const uint64_t* hi;
  const uint64_t* lo;
  const uint32_t* starts;
  uint32_t root(size_t i) const { return Poptrie6View::root_index(starts, hi[i]); }
  uint64_t high(size_t i) const { return Poptrie6View::root_depth(hi[i]) == 0 ? hi[i] : hi[i] << 24 | lo[i] >> 40; }
  uint64_t low(size_t i) const { return Poptrie6View::root_depth(hi[i]) == 0 ? lo[i] : lo[i] << 24; }
};

constexpr size_t kAhead = 32;

// Groups of 16 in lockstep: the steps of one level are independent, and the list of unfinished keys is compacted
// without branches, so that keys of different depths cost no mispredicted loop ends.
template <typename Keys>
void lookup_scalar(const PoptrieArrays& t, const Keys& keys, uint32_t* next_hops, size_t n) {
  constexpr size_t kGroup = 16;
  for (size_t base = 0; base < n; base += kGroup) {
    const size_t count = std::min(kGroup, n - base);
    for (size_t k = base + kAhead; k < std::min(base + kAhead + kGroup, n); ++k) {
      prefetch_read(t.root + keys.root(k));
    }
    uint32_t at[kGroup];
    uint64_t high[kGroup], low[kGroup];
    uint8_t todo[kGroup];
    size_t left = 0;
    for (size_t k = 0; k < count; ++k) {
      at[k] = t.root[keys.root(base + k)];
      high[k] = keys.high(base + k);
      low[k] = keys.low(base + k);
      todo[left] = static_cast<uint8_t>(k);
      left += at[k] >> 31;
    }
    while (left > 0) {
      for (size_t j = 0; j < left; ++j) {
        const size_t k = todo[j];
        prefetch_read(t.quarters + size_t{at[k] & ~kNode} * 4 + (high[k] >> 62));
      }
      size_t still = 0;
      for (size_t j = 0; j < left; ++j) {
        const size_t k = todo[j];
        at[k] = t.step(at[k], static_cast<uint32_t>(high[k] >> 56));
        high[k] = high[k] << 8 | low[k] >> 56;
        low[k] <<= 8;
        todo[still] = static_cast<uint8_t>(k);
        still += at[k] >> 31;
      }
      left = still;
    }
    for (size_t k = 0; k < count; ++k) next_hops[base + k] = at[k];
  }
}

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 and its own _mm512_undefined_epi32 (bug 105593)
#endif

// The same with eight keys a vector and four vectors at once: three gathers a step, one for the leaves at the end.
template <typename Keys>
__attribute__((target("avx512f,avx512vpopcntdq"))) void lookup_avx512(const PoptrieArrays& t, const Keys& keys,
                                                                      uint32_t* next_hops, size_t n) {
  constexpr size_t kVectors = 4;
  constexpr size_t kGroup = kVectors * 8;
  const __m512i one = _mm512_set1_epi64(1);
  const __m512i ones = _mm512_set1_epi64(-1);
  const __m512i low32 = _mm512_set1_epi64(0xffffffff);
  const __m512i zero = _mm512_setzero_si512();
  size_t base = 0;
  for (; base + kGroup <= n; base += kGroup) {
    for (size_t k = base + kAhead; k < std::min(base + kAhead + kGroup, n); ++k) {
      prefetch_read(t.root + keys.root(k));
    }
    alignas(64) uint64_t start[kGroup], high_words[kGroup], low_words[kGroup];
    for (size_t k = 0; k < kGroup; ++k) {
      start[k] = t.root[keys.root(base + k)];
      high_words[k] = keys.high(base + k);
      low_words[k] = keys.low(base + k);
    }
    __m512i at[kVectors], high[kVectors], low[kVectors];
    __mmask8 more[kVectors], leaf[kVectors] = {};
    unsigned any = 0;
    for (size_t v = 0; v < kVectors; ++v) {
      at[v] = _mm512_load_si512(start + 8 * v);
      high[v] = _mm512_load_si512(high_words + 8 * v);
      low[v] = _mm512_load_si512(low_words + 8 * v);
      more[v] = _mm512_test_epi64_mask(at[v], _mm512_set1_epi64(int64_t{kNode}));
      at[v] = _mm512_mask_and_epi64(at[v], more[v], at[v], _mm512_set1_epi64(0x7fffffff));
      leaf[v] = 0;
      any |= more[v];
    }
    while (any != 0) {
      any = 0;
      for (size_t v = 0; v < kVectors; ++v) {
        const __mmask8 active = more[v];
        if (active == 0) continue;
        const __m512i slot = _mm512_and_si512(_mm512_srli_epi64(high[v], 56), _mm512_set1_epi64(63));
        // A quarter is four 64-bit words, a node sixteen.
        const __m512i word =
            _mm512_add_epi64(_mm512_slli_epi64(at[v], 4), _mm512_slli_epi64(_mm512_srli_epi64(high[v], 62), 2));
        const auto* q = reinterpret_cast<const long long*>(t.quarters);
        const __m512i child = _mm512_mask_i64gather_epi64(zero, active, word, q, 8);
        const __m512i run = _mm512_mask_i64gather_epi64(zero, active, word, q + 1, 8);
        const __m512i bases = _mm512_mask_i64gather_epi64(zero, active, word, q + 2, 8);
        const __m512i up_to = _mm512_srlv_epi64(ones, _mm512_sub_epi64(_mm512_set1_epi64(63), slot));
        const __mmask8 goes_on = _mm512_mask_test_epi64_mask(active, child, _mm512_sllv_epi64(one, slot));
        const __m512i bits = _mm512_mask_blend_epi64(goes_on, run, child);
        const __m512i first =
            _mm512_mask_blend_epi64(goes_on, _mm512_srli_epi64(bases, 32), _mm512_and_si512(bases, low32));
        const __m512i index =
            _mm512_add_epi64(first, _mm512_sub_epi64(_mm512_popcnt_epi64(_mm512_and_si512(bits, up_to)), one));
        at[v] = _mm512_mask_mov_epi64(at[v], active, index);
        leaf[v] = static_cast<__mmask8>(leaf[v] | (active & ~goes_on));
        high[v] = _mm512_or_si512(_mm512_slli_epi64(high[v], 8), _mm512_srli_epi64(low[v], 56));
        low[v] = _mm512_slli_epi64(low[v], 8);
        more[v] = goes_on;
        any |= goes_on;
      }
    }
    for (size_t v = 0; v < kVectors; ++v) {
      // A 32-bit gather of a two-byte leaf reads two bytes past it, which the section has.
      const __m256i got =
          _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), leaf[v], at[v], t.leaves, sizeof(uint16_t));
      const __m512i next_hop = _mm512_and_si512(_mm512_cvtepu32_epi64(got), _mm512_set1_epi64(0xffff));
      at[v] = _mm512_mask_mov_epi64(at[v], leaf[v], next_hop);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(next_hops + base + 8 * v), _mm512_cvtepi64_epi32(at[v]));
    }
  }
  for (; base < n; ++base) {
    uint32_t at = t.root[keys.root(base)];
    uint64_t high = keys.high(base), low = keys.low(base);
    while ((at & kNode) != 0) {
      at = t.step(at, static_cast<uint32_t>(high >> 56));
      high = high << 8 | low >> 56;
      low <<= 8;
    }
    next_hops[base] = at;
  }
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif

template <typename Keys>
void lookup_with([[maybe_unused]] LpmIsa isa, const PoptrieArrays& t, const Keys& keys, uint32_t* next_hops, size_t n) {
#if defined(__x86_64__)
  // AVX2 has no vector popcount; the scalar code runs in its place.
  static const bool has_avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vpopcntdq") != 0;
  if (isa == LpmIsa::kAvx512 && has_avx512 && n >= 32) return lookup_avx512(t, keys, next_hops, n);
#endif
  lookup_scalar(t, keys, next_hops, n);
}

}  // namespace

void Poptrie4View::lookup_bulk(LpmIsa isa, const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
  lookup_with(isa, arrays_, Keys4{addresses}, next_hops, n);
}

void Poptrie4View::lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
  lookup_bulk(available_lpm_isas().back(), addresses, next_hops, n);
}

void Poptrie6View::lookup_bulk(LpmIsa isa, const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops,
                               size_t n) const {
  lookup_with(isa, arrays_, Keys6{hi, lo, starts_}, next_hops, n);
}

void Poptrie6View::lookup_bulk(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
  lookup_bulk(available_lpm_isas().back(), hi, lo, next_hops, n);
}

}  // namespace sluice

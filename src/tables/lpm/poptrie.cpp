#include "tables/lpm/poptrie.h"

#include <fmt/format.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>
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
    header.nodes_offset = round(sizeof header + built->root_.size() * 4);
    header.leaves_offset = round(header.nodes_offset + built->quarters_.size() * sizeof(PoptrieQuarter));
    FibPlan plan;
    plan.bytes = round(header.leaves_offset + built->leaves_.size() * 2 + 2);  // + 2: a gather reads four bytes
    plan.write = [built, header](std::span<std::byte> out) {
      auto put = [&](uint64_t at, const auto& array) {
        if (!array.empty()) std::memcpy(out.data() + at, array.data(), array.size() * sizeof(array[0]));
      };
      std::memcpy(out.data(), &header, sizeof header);
      put(sizeof header, built->root_);
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
  std::vector<uint32_t> root_;
  std::vector<PoptrieQuarter> quarters_;
  std::vector<uint16_t> leaves_;
  std::vector<Pending> queue_;
  unsigned covered_first_ = 256;
  unsigned covered_last_ = 0;
};

// Checks the whole section. `depths[i]` is the bit at which the steps of root entry i begin.
Result<PoptrieArrays> check(std::span<const std::byte> section, uint32_t next_hop_count, size_t root_count,
                            unsigned bits, unsigned (*root_bits)(size_t)) {
  const auto* header = section_array<PoptrieHeader>(section, 0, 1);
  if (header == nullptr) return Error(fmt::format("poptrie: {} bytes are too few", section.size()));
  PoptrieArrays arrays;
  arrays.root = section_array<uint32_t>(section, sizeof(PoptrieHeader), root_count);
  const uint64_t nodes = header->node_count;
  const uint64_t leaves = header->leaf_count;
  if (header->root_count != root_count || arrays.root == nullptr || nodes >= kNode || leaves > UINT32_MAX) {
    return Error(fmt::format("poptrie: {} root entries, {} nodes, {} leaves in {} bytes", header->root_count, nodes,
                             leaves, section.size()));
  }
  arrays.quarters = section_array<PoptrieQuarter>(section, header->nodes_offset, nodes * 4);
  arrays.leaves = section_array<uint16_t>(section, header->leaves_offset, leaves + 1);
  if (arrays.quarters == nullptr || arrays.leaves == nullptr) {
    return Error(fmt::format("poptrie: {} nodes and {} leaves do not fit in {} bytes", nodes, leaves, section.size()));
  }
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
    depth[node] = std::max(depth[node], static_cast<uint8_t>(root_bits(i)));
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

PoptrieArrays moved(const PoptrieArrays& arrays, const std::byte* from, const std::byte* to) {
  auto move = [&]<typename T>(const T* p) {
    return reinterpret_cast<const T*>(to + (reinterpret_cast<const std::byte*>(p) - from));
  };
  return {move(arrays.root), move(arrays.quarters), move(arrays.leaves)};
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
  builder->add_roots(Uint128{1} << 125, 24, Poptrie6View::kRootCount - 1);
  builder->add_whole_root(0x20, 0x3f);
  if (auto ok = builder->build_nodes(); !ok) return std::move(ok).error();
  return PoptrieBuilder<Uint128>::plan(builder);
}

Result<Poptrie4View> Poptrie4View::open(std::span<const std::byte> section, uint32_t next_hop_count) {
  auto arrays = check(section, next_hop_count, kRootCount, 32, [](size_t) { return 16u; });
  if (!arrays) return std::move(arrays).error();
  Poptrie4View view;
  view.arrays_ = *arrays;
  return view;
}

Result<Poptrie6View> Poptrie6View::open(std::span<const std::byte> section, uint32_t next_hop_count) {
  auto arrays = check(section, next_hop_count, kRootCount, 128, [](size_t i) { return i + 1 < kRootCount ? 24u : 0u; });
  if (!arrays) return std::move(arrays).error();
  Poptrie6View view;
  view.arrays_ = *arrays;
  return view;
}

Poptrie4View Poptrie4View::rebase(const std::byte* from, const std::byte* to) const {
  Poptrie4View view;
  view.arrays_ = moved(arrays_, from, to);
  return view;
}

Poptrie6View Poptrie6View::rebase(const std::byte* from, const std::byte* to) const {
  Poptrie6View view;
  view.arrays_ = moved(arrays_, from, to);
  return view;
}

void Poptrie4View::lookup_bulk(LpmIsa, const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
  for (size_t i = 0; i < n; ++i) next_hops[i] = lookup(addresses[i]);
}

void Poptrie4View::lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
  lookup_bulk(available_lpm_isas().back(), addresses, next_hops, n);
}

void Poptrie6View::lookup_bulk(LpmIsa, const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
  for (size_t i = 0; i < n; ++i) next_hops[i] = lookup(hi[i], lo[i]);
}

void Poptrie6View::lookup_bulk(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
  lookup_bulk(available_lpm_isas().back(), hi, lo, next_hops, n);
}

}  // namespace sluice

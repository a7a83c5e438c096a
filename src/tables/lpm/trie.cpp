#include "tables/lpm/trie.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "tables/image.h"
#include "tables/lpm/intervals.h"

namespace sluice {
namespace {

TrieRoute4 route_entry(const Route4& r, uint32_t cover) {
  return {r.address, cover, r.next_hop, r.length, 0};
}
TrieRoute6 route_entry(const Route6& r, uint32_t cover) {
  return {r.hi, r.lo, cover, r.next_hop, r.length, 0};
}

unsigned common_length(const Route4& a, const Route4& b) {
  return static_cast<unsigned>(std::countl_zero(a.address ^ b.address));
}
unsigned common_length(const Route6& a, const Route6& b) {
  return static_cast<unsigned>(a.hi != b.hi ? std::countl_zero(a.hi ^ b.hi) : 64 + std::countl_zero(a.lo ^ b.lo));
}

// Bit `index` (0 is the highest) of the address.
bool bit_at(const Route4& r, unsigned index) {
  return (r.address >> (31 - index) & 1) != 0;
}
bool bit_at(const Route6& r, unsigned index) {
  return ((index < 64 ? r.hi >> (63 - index) : r.lo >> (127 - index)) & 1) != 0;
}

template <typename Route>
class TrieBuilder {
 public:
  using Entry = decltype(route_entry(Route{}, 0));

  explicit TrieBuilder(std::span<const Route> routes) : given_(routes) {
    entries_.reserve(routes.size() + 1);
    entries_.push_back({});
    // The routes that lie in one another at this place; the last is the longest.
    std::vector<uint32_t> open;
    for (size_t i = 0; i < routes.size(); ++i) {
      while (!open.empty() && route_last(routes[open.back() - 1]) < route_begin(routes[i])) open.pop_back();
      entries_.push_back(route_entry(routes[i], open.empty() ? 0 : open.back()));
      // Routes that lie in one stand behind it.
      const bool holds_next = i + 1 < routes.size() && route_begin(routes[i + 1]) <= route_last(routes[i]);
      if (!holds_next) leaves_.push_back(static_cast<uint32_t>(i + 1));
      if (holds_next) open.push_back(static_cast<uint32_t>(i + 1));
    }
    nodes_.reserve(leaves_.size() * 2);
    nodes_.push_back({0, TrieNode::kLeaf, 0});
    if (!leaves_.empty()) build(0, leaves_);
  }

  size_t bytes() const {
    return sizeof(TrieHeader) + nodes_.size() * sizeof(TrieNode) + entries_.size() * sizeof(Entry);
  }
  void write(std::span<std::byte> out) const {
    const TrieHeader header{nodes_.size(), entries_.size(), {}};
    std::memcpy(out.data(), &header, sizeof header);
    std::byte* const nodes = out.data() + sizeof header;
    std::memcpy(nodes, nodes_.data(), nodes_.size() * sizeof(TrieNode));
    std::memcpy(nodes + nodes_.size() * sizeof(TrieNode), entries_.data(), entries_.size() * sizeof(Entry));
  }

 private:
  // Makes node `index` the root of a non-empty run of leaves. None lies in another, so the first and the last part at a
  // bit that both have, and no two part earlier.
  void build(uint32_t index, std::span<const uint32_t> leaves) {
    if (leaves.size() == 1) {
      nodes_[index] = {leaves[0], TrieNode::kLeaf, 0};
      return;
    }
    const unsigned bit = common_length(given_[leaves.front() - 1], given_[leaves.back() - 1]);
    const auto split = std::partition_point(leaves.begin(), leaves.end(),
                                            [&](uint32_t leaf) { return !bit_at(given_[leaf - 1], bit); });
    const auto zeros = static_cast<size_t>(split - leaves.begin());
    const auto children = static_cast<uint32_t>(nodes_.size());
    nodes_[index] = {children, static_cast<uint16_t>(bit), 0};
    nodes_.resize(nodes_.size() + 2);
    build(children, leaves.first(zeros));
    build(children + 1, leaves.subspan(zeros));
  }

  std::span<const Route> given_;
  std::vector<Entry> entries_;    // route i of those given is entry i + 1
  std::vector<uint32_t> leaves_;  // entries
  std::vector<TrieNode> nodes_;
};

template <typename Route>
Result<FibPlan> plan(std::span<const Route> routes) {
  if (routes.size() >= size_t{1} << 31) return Error("trie: 2^31 routes or more");
  auto built = std::make_shared<const TrieBuilder<Route>>(routes);
  FibPlan result;
  result.bytes = built->bytes();
  result.layout_version = kTrieLayoutVersion;
  result.write = [built](std::span<std::byte> out) { built->write(out); };
  return result;
}

template <typename Entry>
struct TrieArrays {
  const TrieNode* nodes;
  const Entry* routes;
};

template <typename Entry>
Result<TrieArrays<Entry>> check(std::span<const std::byte> section, uint32_t next_hop_count, unsigned longest,
                                bool trusted) {
  const auto* header = section_array<TrieHeader>(section, 0, 1);
  if (header == nullptr) return Error(fmt::format("trie: {} bytes are too few", section.size()));
  const uint64_t node_count = header->node_count, route_count = header->route_count;
  const auto* nodes = section_array<TrieNode>(section, sizeof(TrieHeader), node_count);
  if (nodes == nullptr || node_count == 0) return Error(fmt::format("trie: {} nodes do not fit", node_count));
  const auto* routes = section_array<Entry>(section, sizeof(TrieHeader) + node_count * sizeof(TrieNode), route_count);
  if (routes == nullptr || route_count == 0) return Error(fmt::format("trie: {} routes do not fit", route_count));
  if (trusted) return TrieArrays<Entry>{nodes, routes};
  for (uint64_t i = 0; i < node_count; ++i) {
    const TrieNode& node = nodes[i];
    if (node.bit == TrieNode::kLeaf) {
      if (node.at >= route_count) return Error(fmt::format("trie: node {} has route {}", i, node.at));
      continue;
    }
    if (node.bit >= longest) return Error(fmt::format("trie: node {} tests bit {}", i, node.bit));
    if (uint64_t{node.at} + 1 >= node_count) {
      return Error(fmt::format("trie: node {} has children at {} of {}", i, node.at, node_count));
    }
    // kLeaf is more than any bit.
    if (nodes[node.at].bit <= node.bit || nodes[node.at + 1].bit <= node.bit) {
      return Error(fmt::format("trie: a child of node {} tests no later bit", i));
    }
  }
  for (uint64_t i = 0; i < route_count; ++i) {
    const Entry& route = routes[i];
    if (route.next_hop > next_hop_count) return Error(fmt::format("trie: route {} has next hop {}", i, route.next_hop));
    // Covers get shorter up to route 0, which ends every search.
    const bool ok = i == 0 ? route.length == 0
                           : route.length <= longest && route.cover < i &&
                                 (route.cover == 0 || routes[route.cover].length < route.length);
    if (!ok) return Error(fmt::format("trie: route {} has length {} and cover {}", i, route.length, route.cover));
  }
  return TrieArrays<Entry>{nodes, routes};
}

}  // namespace

Result<Trie4View> Trie4View::open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted) {
  auto arrays = check<TrieRoute4>(section, next_hop_count, 32, trusted);
  if (!arrays) return std::move(arrays).error();
  Trie4View view;
  view.nodes_ = arrays->nodes;
  view.routes_ = arrays->routes;
  return view;
}

void Trie4View::lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
  for (size_t i = 0; i < n; ++i) next_hops[i] = lookup(addresses[i]);
}

Result<Trie6View> Trie6View::open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted) {
  auto arrays = check<TrieRoute6>(section, next_hop_count, 128, trusted);
  if (!arrays) return std::move(arrays).error();
  Trie6View view;
  view.nodes_ = arrays->nodes;
  view.routes_ = arrays->routes;
  return view;
}

void Trie6View::lookup_bulk(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
  for (size_t i = 0; i < n; ++i) next_hops[i] = lookup(hi[i], lo[i]);
}

Result<FibPlan> plan_trie4(const Rib& rib) {
  return plan(rib.routes4());
}
Result<FibPlan> plan_trie6(const Rib& rib) {
  return plan(rib.routes6());
}

}  // namespace sluice

#include "tables/lpm/trie.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "tables/image.h"

namespace sluice {
namespace {

void set_prefix(TrieNode4& node, const Route4& r, unsigned length) {
  node.prefix = r.address & high_mask32(length);
}
void set_prefix(TrieNode6& node, const Route6& r, unsigned length) {
  node.hi = r.hi;
  node.lo = r.lo;
  mask_address(node.hi, node.lo, length);
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

// The subtree of a non-empty run of sorted routes; returns its node's index. The first route is the shortest that
// starts with the common prefix (a shorter one would sort before it), so it alone can be the node itself.
template <typename Node, typename Route>
uint32_t build(std::vector<Node>& nodes, std::span<const Route> routes) {
  const Route& first = routes.front();
  const unsigned length = std::min<unsigned>(first.length, common_length(first, routes.back()));
  const auto index = static_cast<uint32_t>(nodes.size());
  nodes.emplace_back();
  set_prefix(nodes[index], first, length);
  nodes[index].length = static_cast<uint8_t>(length);
  if (first.length == length) {
    nodes[index].next_hop = first.next_hop;
    routes = routes.subspan(1);
  }
  if (routes.empty()) return index;
  auto split = std::partition_point(routes.begin(), routes.end(), [&](const Route& r) { return !bit_at(r, length); });
  const auto zeros = static_cast<size_t>(split - routes.begin());
  for (size_t side = 0; side < 2; ++side) {
    const auto half = side == 0 ? routes.first(zeros) : routes.subspan(zeros);
    if (half.empty()) continue;
    const uint32_t child = build(nodes, half);
    nodes[index].child[side] = child;
  }
  return index;
}

template <typename Node, typename Route>
FibPlan plan(std::span<const Route> routes) {
  auto nodes = std::make_shared<std::vector<Node>>();
  nodes->reserve(routes.size() * 2 + 1);
  if (routes.empty()) {
    nodes->emplace_back();
  } else {
    build<Node, Route>(*nodes, routes);
  }
  FibPlan result;
  result.bytes = sizeof(TrieHeader) + nodes->size() * sizeof(Node);
  result.write = [nodes](std::span<std::byte> out) {
    TrieHeader header{};
    header.node_count = nodes->size();
    std::memcpy(out.data(), &header, sizeof header);
    std::memcpy(out.data() + sizeof header, nodes->data(), nodes->size() * sizeof(Node));
  };
  return result;
}

template <typename Node>
Result<const Node*> check(std::span<const std::byte> section, uint32_t next_hop_count, unsigned longest) {
  const auto* header = section_array<TrieHeader>(section, 0, 1);
  if (header == nullptr) return Error(fmt::format("trie: {} bytes are too few", section.size()));
  const uint64_t count = header->node_count;
  const auto* nodes = section_array<Node>(section, sizeof(TrieHeader), count);
  if (nodes == nullptr || count == 0) return Error(fmt::format("trie: {} nodes do not fit", count));
  for (uint64_t i = 0; i < count; ++i) {
    const Node& node = nodes[i];
    if (node.length > longest) return Error(fmt::format("trie: node {} has length {}", i, node.length));
    if (node.next_hop > next_hop_count) return Error(fmt::format("trie: node {} has next hop {}", i, node.next_hop));
    for (uint32_t child : node.child) {
      if (child == 0) continue;
      if (child >= count || nodes[child].length <= node.length) {
        return Error(fmt::format("trie: node {} has child {} of {}", i, child, count));
      }
    }
  }
  return nodes;
}

}  // namespace

Result<Trie4View> Trie4View::open(std::span<const std::byte> section, uint32_t next_hop_count) {
  auto nodes = check<TrieNode4>(section, next_hop_count, 32);
  if (!nodes) return std::move(nodes).error();
  Trie4View view;
  view.nodes_ = *nodes;
  return view;
}

void Trie4View::lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
  for (size_t i = 0; i < n; ++i) next_hops[i] = lookup(addresses[i]);
}

Result<Trie6View> Trie6View::open(std::span<const std::byte> section, uint32_t next_hop_count) {
  auto nodes = check<TrieNode6>(section, next_hop_count, 128);
  if (!nodes) return std::move(nodes).error();
  Trie6View view;
  view.nodes_ = *nodes;
  return view;
}

void Trie6View::lookup_bulk(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
  for (size_t i = 0; i < n; ++i) next_hops[i] = lookup(hi[i], lo[i]);
}

Result<FibPlan> plan_trie4(const Rib& rib) {
  return plan<TrieNode4>(rib.routes4());
}
Result<FibPlan> plan_trie6(const Rib& rib) {
  return plan<TrieNode6>(rib.routes6());
}

}  // namespace sluice

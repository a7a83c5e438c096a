// Path-compressed binary trie with 64-bit nodes (Morrison's PATRICIA, CACM 1968, in the arrays of Nilsson and
// Karlsson's LC-trie, IEEE JSAC 1999, without its level compression), IPv4 and IPv6. The oracle: two obvious loops, no
// tricks.
//
//   section: TrieHeader (64 bytes) | TrieNode[node_count] | TrieRoute4[route_count] or TrieRoute6[route_count]
//
//   node:  { at u32, bit u16, unused u16 }   bit < 128: go on at node  at + (that bit of the address)
//                                            kLeaf:     route `at` is the first to compare with
//   route: { prefix, cover u32, next hop u16, length u8, unused u8 }   cover: the longest route that this one lies in
//   Node 0 is the root. Route 0 is ::/0 (0.0.0.0/0) with next hop 0, and covers all: no route.
//
// The leaves are the routes that no other lies in. A lookup tests only the bits at which their prefixes part, so it
// arrives at some leaf whatever the address is, and compares there. Why the longest match is the leaf's route or covers
// it: let route p match the address. The leaves inside p are a whole subtree, and the nodes above it test bits of p
// only. In those bits the address is as they are, so the lookup comes into the subtree and ends at a leaf inside p.
//
// Deviations from the LC-trie: one bit a step, and routes name their covers instead of lengths of prefixes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/hd.h"
#include "base/result.h"
#include "net/types.h"
#include "tables/lpm/plan.h"
#include "tables/lpm/rib.h"

namespace sluice {

struct TrieHeader {
  uint64_t node_count;
  uint64_t route_count;
  uint8_t reserved[48];
};
static_assert(sizeof(TrieHeader) == 64);

struct alignas(8) TrieNode {
  static constexpr uint16_t kLeaf = 0xffff;

  uint32_t at;   // of the child for bit 0; the other stands behind it. A leaf: of a route
  uint16_t bit;  // 0 is the highest
  uint16_t reserved;
};
static_assert(sizeof(TrieNode) == 8);

struct TrieRoute4 {
  uint32_t prefix;
  uint32_t cover;
  uint16_t next_hop;
  uint8_t length;
  uint8_t reserved;
};
static_assert(sizeof(TrieRoute4) == 12);

struct TrieRoute6 {
  uint64_t hi, lo;
  uint32_t cover;
  uint16_t next_hop;
  uint8_t length;
  uint8_t reserved;
};
static_assert(sizeof(TrieRoute6) == 24);

// Of both families' sections: 1 had nodes of 16 and 32 bytes with their prefixes.
inline constexpr uint32_t kTrieLayoutVersion = 2;

// Non-owning, trivially copyable. `open` checks every index and next hop, that nodes test later bits than their parents
// and that covers are shorter, so that a lookup ends after at most 32 steps and 33 routes on any image.
class Trie4View {
 public:
  using Address = uint32_t;
  // Errors: too small, a child or route out of range or out of order, a bit or length past 32, a next hop past
  // next_hop_count.
  // `trusted`: only the sizes are checked, because the builder is this process or a check has found nothing before.
  static Result<Trie4View> open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted = false);

  // The next-hop id of the longest prefix that covers `address` (host order), or 0.
  SLUICE_HD uint32_t lookup(uint32_t address) const {
    TrieNode node = nodes_[0];
    while (node.bit != TrieNode::kLeaf) node = nodes_[node.at + (address >> (31 - node.bit) & 1)];
    TrieRoute4 route = routes_[node.at];
    while (((address ^ route.prefix) & high_mask32(route.length)) != 0) route = routes_[route.cover];
    return route.next_hop;
  }
  SLUICE_HD void prefetch(uint32_t) const {}

  void lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const;
  void lookup_bulk(LpmIsa, const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
    lookup_bulk(addresses, next_hops, n);
  }
  void lookup_burst(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
    lookup_bulk(addresses, next_hops, n);
  }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(nodes_);
    f(routes_);
  }

 private:
  const TrieNode* nodes_ = nullptr;
  const TrieRoute4* routes_ = nullptr;
};
static_assert(std::is_trivially_copyable_v<Trie4View>);

// The same for IPv6; at most 128 steps and 129 routes.
class Trie6View {
 public:
  static Result<Trie6View> open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted = false);

  // Both halves in host order.
  SLUICE_HD uint32_t lookup(uint64_t hi, uint64_t lo) const {
    TrieNode node = nodes_[0];
    while (node.bit != TrieNode::kLeaf) {
      node = nodes_[node.at + ((node.bit < 64 ? hi >> (63 - node.bit) : lo >> (127 - node.bit)) & 1)];
    }
    TrieRoute6 route = routes_[node.at];
    while (!covers(route, hi, lo)) route = routes_[route.cover];
    return route.next_hop;
  }
  SLUICE_HD void prefetch(uint64_t, uint64_t) const {}

  void lookup_bulk(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const;
  void lookup_bulk(LpmIsa, const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
    lookup_bulk(hi, lo, next_hops, n);
  }
  void lookup_burst(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
    lookup_bulk(hi, lo, next_hops, n);
  }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(nodes_);
    f(routes_);
  }

 private:
  SLUICE_HD static bool covers(const TrieRoute6& route, uint64_t hi, uint64_t lo) {
    const unsigned length = route.length;
    return ((hi ^ route.hi) & high_mask64(length < 64 ? length : 64)) == 0 &&
           ((lo ^ route.lo) & high_mask64(length > 64 ? length - 64 : 0)) == 0;
  }

  const TrieNode* nodes_ = nullptr;
  const TrieRoute6* routes_ = nullptr;
};
static_assert(std::is_trivially_copyable_v<Trie6View>);

// Errors: 2^31 routes.
Result<FibPlan> plan_trie4(const Rib& rib);
Result<FibPlan> plan_trie6(const Rib& rib);

}  // namespace sluice

// Path-compressed binary trie (Morrison's PATRICIA, CACM 1968; with the prefix kept in the node), IPv4 and IPv6.
// The oracle: one obvious loop, no tricks. Each node is a prefix; a child is a longer prefix that begins with it.
//
//   section: TrieHeader (64 bytes) | TrieNode4[node_count] or TrieNode6[node_count]; node 0 is the root
//
// Deviations from PATRICIA: a node keeps its whole prefix (16 or 32 bytes a node), so that a mismatch is seen where it
// stands and nothing has to be verified at the end.
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
  uint8_t reserved[56];
};
static_assert(sizeof(TrieHeader) == 64);

struct TrieNode4 {
  uint32_t child[2];  // by the first bit after the prefix; 0: none (the root is nobody's child)
  uint32_t prefix;
  uint16_t next_hop;  // 0: a branching point only
  uint8_t length;
  uint8_t reserved;
};
static_assert(sizeof(TrieNode4) == 16);

struct TrieNode6 {
  uint64_t hi, lo;
  uint32_t child[2];
  uint16_t next_hop;
  uint8_t length;
  uint8_t reserved[5];
};
static_assert(sizeof(TrieNode6) == 32);

// Non-owning, trivially copyable. `open` checks every child index and next hop, and that children are longer than their
// parents, so that a lookup ends after at most 33 steps on any image.
class Trie4View {
 public:
  using Address = uint32_t;
  // Errors: too small, a child out of range or not longer, a length past 32, a next hop past next_hop_count.
  static Result<Trie4View> open(std::span<const std::byte> section, uint32_t next_hop_count);

  // The next-hop id of the longest prefix that covers `address` (host order), or 0.
  SLUICE_HD uint32_t lookup(uint32_t address) const {
    uint32_t best = 0;
    uint32_t at = 0;
    for (;;) {
      const TrieNode4 node = nodes_[at];
      if (((address ^ node.prefix) & high_mask32(node.length)) != 0) return best;
      if (node.next_hop != 0) best = node.next_hop;
      if (node.length == 32) return best;
      at = node.child[address >> (31 - node.length) & 1];
      if (at == 0) return best;
    }
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
  void each_pointer(F&& f) {
    f(nodes_);
  }

 private:
  const TrieNode4* nodes_ = nullptr;
};
static_assert(std::is_trivially_copyable_v<Trie4View>);

// The same for IPv6; at most 129 steps.
class Trie6View {
 public:
  static Result<Trie6View> open(std::span<const std::byte> section, uint32_t next_hop_count);

  // Both halves in host order.
  SLUICE_HD uint32_t lookup(uint64_t hi, uint64_t lo) const {
    uint32_t best = 0;
    uint32_t at = 0;
    for (;;) {
      const TrieNode6 node = nodes_[at];
      const unsigned length = node.length;
      const uint64_t wrong_hi = (hi ^ node.hi) & high_mask64(length < 64 ? length : 64);
      const uint64_t wrong_lo = (lo ^ node.lo) & high_mask64(length > 64 ? length - 64 : 0);
      if ((wrong_hi | wrong_lo) != 0) return best;
      if (node.next_hop != 0) best = node.next_hop;
      if (length == 128) return best;
      at = node.child[(length < 64 ? hi >> (63 - length) : lo >> (127 - length)) & 1];
      if (at == 0) return best;
    }
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
  void each_pointer(F&& f) {
    f(nodes_);
  }

 private:
  const TrieNode6* nodes_ = nullptr;
};
static_assert(std::is_trivially_copyable_v<Trie6View>);

Result<FibPlan> plan_trie4(const Rib& rib);
Result<FibPlan> plan_trie6(const Rib& rib);

}  // namespace sluice

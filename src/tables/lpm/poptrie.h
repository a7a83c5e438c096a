// Popcount multibit trie (Asai, Ohara: Poptrie, SIGCOMM 2015), IPv4 and IPv6, for host and device.
//
//   section: PoptrieHeader (64 bytes) | IPv6: starts: 8,193 u32 | root: root_count u32 |
//   nodes: node_count * 4 PoptrieQuarter | leaves: leaf_count u16
//
//   root entry: bit 31 set: node index in the low 31 bits; else a next hop
//   IPv4: root by address bits 0..15, then 8-bit steps                  (at most 16 + 8 + 8)
//   IPv6: starts by address bits 3..15 of 2000::/3: where the 256 root entries of this /16 begin, by bits 16..23; then
//         8-bit steps (at most 24 + 13 * 8). One more start, of the last root entry, is for all other addresses, whose
//         steps begin at bit 0
//
//   a node is 256 slots in four quarters; the quarter is chosen by the step's two highest bits, the slot by the other
//   six slot is a child: node = child_base + (child bits below the slot) slot is a leaf:  next hop = leaves[leaf_base +
//   (run bits up to the slot) - 1]
//
// Deviations: 8-bit steps of four self-contained 32-byte quarters, so that a step touches one 32-byte sector (a GPU's
// unit of memory access) and a full IPv4 table takes at most two steps; the IPv6 root skips the three bits that all
// global unicast addresses share, and undivided /16s with one answer share their entries: a full table divides some
// sixty of 8,192.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/bits.h"
#include "base/hd.h"
#include "base/prefetch.h"
#include "base/result.h"
#include "tables/lpm/plan.h"
#include "tables/lpm/rib.h"

namespace sluice {

struct PoptrieHeader {
  uint64_t root_count;
  uint64_t node_count;
  uint64_t leaf_count;
  uint64_t nodes_offset;   // from the start of the section, multiple of 64
  uint64_t leaves_offset;  // the same
  uint64_t root_offset;    // multiple of 4
  uint8_t reserved[16];
};
static_assert(sizeof(PoptrieHeader) == 64);

struct alignas(32) PoptrieQuarter {
  uint64_t child;       // bit s: slot s goes on in a child node
  uint64_t run;         // bit s: slot s is a leaf whose next hop differs from the leaf before it in this quarter
  uint32_t child_base;  // nodes
  uint32_t leaf_base;
  uint64_t reserved;
};
static_assert(sizeof(PoptrieQuarter) == 32);

// Of both families' sections: 1 had no root_offset, and for IPv6 a root of 2^21 + 1 entries.
inline constexpr uint32_t kPoptrieLayoutVersion = 2;

// What both families share: the arrays and one step.
struct PoptrieArrays {
  static constexpr uint32_t kNode = 0x80000000u;

  const uint32_t* root = nullptr;
  const PoptrieQuarter* quarters = nullptr;
  const uint16_t* leaves = nullptr;

  // One step with the next eight address bits: kNode | index, or a next hop.
  SLUICE_HD uint32_t step(uint32_t node, uint32_t bits) const {
    const PoptrieQuarter q = quarters[size_t{node & ~kNode} * 4 + (bits >> 6)];
    const uint32_t slot = bits & 63;
    const uint64_t up_to = ~uint64_t{0} >> (63 - slot);  // bits 0..slot
    if (q.child >> slot & 1) return kNode | (q.child_base + popcount64(q.child & up_to) - 1);
    return leaves[q.leaf_base + popcount64(q.run & up_to) - 1];
  }
};

// Non-owning, trivially copyable; at most three dependent steps. Every index of the section is checked by `open`.
class Poptrie4View {
 public:
  static constexpr size_t kRootCount = size_t{1} << 16;

  // `trusted`: only the sizes are checked, because the builder is this process or a check has found nothing before.
  static Result<Poptrie4View> open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted = false);

  // The next-hop id for `address` (host order), or 0.
  SLUICE_HD uint32_t lookup(uint32_t address) const {
    uint32_t at = arrays_.root[address >> 16];
    if ((at & PoptrieArrays::kNode) == 0) return at;
    at = arrays_.step(at, address >> 8 & 255);
    if ((at & PoptrieArrays::kNode) == 0) return at;
    return arrays_.step(at, address & 255);
  }
  SLUICE_HD void prefetch([[maybe_unused]] uint32_t address) const {
#if !defined(__CUDA_ARCH__)
    prefetch_read(arrays_.root + (address >> 16));
#endif
  }

  void lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const;
  void lookup_bulk(LpmIsa isa, const uint32_t* addresses, uint32_t* next_hops, size_t n) const;
  void lookup_burst(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
    lookup_bulk(addresses, next_hops, n);
  }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(arrays_.root);
    f(arrays_.quarters);
    f(arrays_.leaves);
  }

 private:
  PoptrieArrays arrays_;
};
static_assert(std::is_trivially_copyable_v<Poptrie4View>);

class Poptrie6View {
 public:
  // A start for each /16 of 2000::/3, and one for everything outside.
  static constexpr size_t kStarts = (size_t{1} << 13) + 1;

  static Result<Poptrie6View> open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted = false);

  // Both halves in host order.
  SLUICE_HD uint32_t lookup(uint64_t hi, uint64_t lo) const {
    uint32_t at = arrays_.root[root_index(starts_, hi)];
    if ((at & PoptrieArrays::kNode) == 0) return at;
    const unsigned depth = root_depth(hi);
    // Steps that end inside the high half, then those of the low half.
    for (uint64_t rest = hi << depth, n = (64 - depth) / 8; n > 0; --n, rest <<= 8) {
      at = arrays_.step(at, static_cast<uint32_t>(rest >> 56));
      if ((at & PoptrieArrays::kNode) == 0) return at;
    }
    for (unsigned n = 0; n < 8; ++n, lo <<= 8) {
      at = arrays_.step(at, static_cast<uint32_t>(lo >> 56));
      if ((at & PoptrieArrays::kNode) == 0) return at;
    }
    return 0;  // never: `open` refuses a node past bit 120
  }
  SLUICE_HD void prefetch([[maybe_unused]] uint64_t hi, [[maybe_unused]] uint64_t lo) const {
#if !defined(__CUDA_ARCH__)
    prefetch_read(arrays_.root + root_index(starts_, hi));
#endif
  }

  void lookup_bulk(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const;
  void lookup_bulk(LpmIsa isa, const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const;
  void lookup_burst(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
    lookup_bulk(hi, lo, next_hops, n);
  }

  SLUICE_HD static uint32_t root_index(const uint32_t* starts, uint64_t hi) {
    const bool global = hi >> 61 == 1;
    return starts[global ? hi >> 48 & 0x1fff : kStarts - 1] + (global ? static_cast<uint32_t>(hi >> 40) & 255 : 0u);
  }
  SLUICE_HD static unsigned root_depth(uint64_t hi) {
    return hi >> 61 == 1 ? 24 : 0;
  }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(starts_);
    f(arrays_.root);
    f(arrays_.quarters);
    f(arrays_.leaves);
  }

 private:
  const uint32_t* starts_ = nullptr;
  PoptrieArrays arrays_;
};
static_assert(std::is_trivially_copyable_v<Poptrie6View>);

// Errors: 2^31 nodes or 2^32 leaves, which no RIB that fits in memory reaches.
Result<FibPlan> plan_poptrie4(const Rib& rib);
Result<FibPlan> plan_poptrie6(const Rib& rib);

}  // namespace sluice

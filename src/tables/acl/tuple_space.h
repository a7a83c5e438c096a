// Tuple space search with coarsened tuples: few hash tables, every probe verifies the whole rule.
//
// Srinivasan, Suri, Varghese, "Packet Classification using Tuple Space Search" (SIGCOMM 1999); the coarsening follows
// the idea of Daly et al., "TupleMerge" (ToN 2019). Deviations: tables are chosen offline by greedy cover under a bound
// on the entries a bucket may hold, in place of online splitting; a bucket holds every rule that hashes to it, whatever
// its key, best first; a small filter in front of each table answers most misses; port ranges are never expanded, an
// exact port is hashed and any other range is only verified.
//
// IPv4 keys search the narrow tables, all others the wide ones; rules without a family stand in both.
//
//   filter word (32 bits, 16..32 bits a key)   two bits of the hash must be set
//   slot (u32)                                 1 + index of the bucket's first entry; 0: empty
//   A single lookup (every lookup on a device) asks first which tables matter at all: tuple_prune.h.
//   entry                                      TupleEntry4 (32 bytes) or AclMatchRule (64 bytes); the last of a bucket
//   is flagged
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bits.h"
#include "base/hd.h"
#include "base/result.h"
#include "tables/acl/isa.h"
#include "tables/acl/rule_set.h"
#include "tables/acl/sections.h"
#include "tables/acl/tuple_prune.h"
#include "tables/image.h"

namespace sluice {

// One hash table. Masks select the key's bits: address words most significant first (IPv4 is word 3 alone).
struct alignas(16) TupleTable {
  uint32_t src_mask[4];
  uint32_t dst_mask[4];
  uint32_t port_mask;      // over src_port << 16 | dst_port
  uint32_t protocol_mask;  // 0 or all ones, over the multiplied protocol
  uint32_t filter_base;    // first word of its filter; the filter has 2^(32 - filter_shift) words
  uint32_t slot_base;      // first slot; there are 2^(32 - slot_shift)
  uint32_t best;           // the lowest position of its rules: nothing better is in here
  uint8_t filter_shift;    // 1..32
  uint8_t slot_shift;      // 1..32
  uint8_t words;           // bit i: address word i (src 0..3, dst 4..7) has mask bits; wide tables only
  uint8_t reserved;
  uint32_t entries;  // how many rules it holds
  uint32_t reserved2;
};
static_assert(sizeof(TupleTable) == 64 && std::is_trivially_copyable_v<TupleTable>);

// An IPv4 rule as verified on a probe: AclMatchRule in half the bytes, so that two share a cache line.
struct alignas(16) TupleEntry4 {
  static constexpr uint32_t kLast = 1u << 31;  // the bucket ends here
  static constexpr uint32_t kIcmp = 1u << 30;  // constrains ICMP: ask the full rule
  static constexpr uint32_t kRuleMask = (1u << 30) - 1;

  uint32_t src, dst;
  uint16_t src_port_low, src_port_span, dst_port_low, dst_port_span;  // span: high - low
  uint16_t flags, flags_mask;
  uint8_t protocol, protocol_mask;
  uint8_t src_free, dst_free;  // 32 - prefix length
  uint8_t dscp, dscp_mask, bits, bits_mask;
  uint32_t rule;
};
static_assert(sizeof(TupleEntry4) == 32 && std::is_trivially_copyable_v<TupleEntry4>);

// Equal to matches(the full rule, key) for IPv4 keys, ICMP apart.
SLUICE_HD bool matches4(const TupleEntry4& e, const FlowKey& key) {
  const uint64_t addresses = (uint64_t{static_cast<uint32_t>(key.src_lo) ^ e.src} >> e.src_free) |
                             (uint64_t{static_cast<uint32_t>(key.dst_lo) ^ e.dst} >> e.dst_free);
  const uint32_t fields = ((key.protocol ^ e.protocol) & e.protocol_mask) | ((key.flags ^ e.flags) & e.flags_mask) |
                          ((key.dscp ^ e.dscp) & e.dscp_mask) | ((key.bits ^ e.bits) & e.bits_mask);
  const bool ports = (static_cast<uint16_t>(key.src_port - e.src_port_low) <= e.src_port_span) &
                     (static_cast<uint16_t>(key.dst_port - e.dst_port_low) <= e.dst_port_span);
  return ((addresses | fields) == 0) & ports;
}

// On a device a table or an entry is loaded whole, 16 bytes at a time: its fields apart would be a dozen loads.
#if defined(__CUDA_ARCH__)
template <typename T>
SLUICE_HD T tuple_fetch(const T* from) {
  static_assert(alignof(T) % 16 == 0 && sizeof(T) % 16 == 0);
  uint4 quads[sizeof(T) / 16];
#pragma unroll
  for (size_t i = 0; i < sizeof(T) / 16; ++i) quads[i] = reinterpret_cast<const uint4*>(from)[i];
  T value;
  memcpy(&value, quads, sizeof value);
  return value;
}
#else
template <typename T>
SLUICE_HD const T& tuple_fetch(const T* from) {
  return *from;
}
#endif
// The same for an array that begins at a multiple of 16 bytes.
template <typename T, size_t kCount>
SLUICE_HD void tuple_fetch_array(const T (&from)[kCount], T (&to)[kCount]) {
  static_assert(sizeof from % 16 == 0);
#if defined(__CUDA_ARCH__)
  uint4 quads[sizeof(from) / 16];
#pragma unroll
  for (size_t i = 0; i < sizeof(from) / 16; ++i) quads[i] = reinterpret_cast<const uint4*>(from)[i];
  memcpy(to, quads, sizeof from);
#else
  memcpy(to, from, sizeof from);
#endif
}

inline constexpr uint32_t kTupleProtocolFactor = 0x9e3779b1u;

// One step of the hash: for a fixed word a bijection of h, so that keys that differ in one word never collide before
// the last shift.
SLUICE_HD uint32_t tuple_step(uint32_t h, uint32_t word) {
  h = (h + word) * 0x85ebca6bu;
  return h ^ (h >> 16);
}
SLUICE_HD uint32_t tuple_finish(uint32_t h, uint32_t ports, uint32_t protocol) {
  h = (h + (ports ^ protocol)) * 0xc2b2ae35u;
  return h ^ (h >> 15);
}
SLUICE_HD uint32_t tuple_hash4(const TupleTable& t, uint32_t src, uint32_t dst, uint32_t ports, uint32_t protocol) {
  const uint32_t h = tuple_step(tuple_step(0, src & t.src_mask[3]), dst & t.dst_mask[3]);
  return tuple_finish(h, ports & t.port_mask, protocol & t.protocol_mask);
}
// `words`: source then destination, most significant first.
SLUICE_HD uint32_t tuple_hash6(const TupleTable& t, const uint32_t* words, uint32_t ports, uint32_t protocol) {
  uint32_t h = 0;
  for (unsigned i = 0; i < 4; ++i) {
    if ((t.words >> i & 1) != 0) h = tuple_step(h, words[i] & t.src_mask[i]);
  }
  for (unsigned i = 0; i < 4; ++i) {
    if ((t.words >> (4 + i) & 1) != 0) h = tuple_step(h, words[4 + i] & t.dst_mask[i]);
  }
  return tuple_finish(h, ports & t.port_mask, protocol & t.protocol_mask);
}
// Whether the filter lets hash `h` pass: two of the word's bits.
SLUICE_HD bool tuple_filter_passes(uint32_t word, uint32_t h) {
  return (word >> (h & 31) & word >> (h >> 5 & 31) & 1) != 0;
}

// What lookups have visited, for choosing between structures.
struct AclTally {
  uint64_t tables = 0;  // probed
  uint64_t reads = 0;   // of a rule (tuple_space), of a block of rules (tuple_merge)
};

class TupleSpaceView {
 public:
  TupleSpaceView() = default;
  // Checks every offset, index and run. Errors: not an ACL image of `tuple_space`, damaged.
  static Result<TupleSpaceView> open(const Image& image);

  // 1-based position of the first matching rule, or 0.
  SLUICE_HD uint32_t lookup(const FlowKey& key, AclTally* tally = nullptr) const;

  // Host only: `n` (at most 32) keys at once, with the widest vectors that the processor has. Returns whether all are
  // of IPv4.
  bool lookup_burst(const FlowKey* const* keys, uint32_t* rules, size_t n) const;
  // The same on a chosen instruction set, for tests and benches. Precondition: isa_available(isa).
  bool lookup_burst_on(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, size_t n) const;
  static bool isa_available(AclIsa isa) { return acl_isa_available(isa); }

  // What `show` and benches print. Buckets are counted over the narrow and wide tables together.
  struct Shape {
    uint32_t narrow_tables, wide_tables;
    uint32_t narrow_entries, wide_entries;
    uint32_t longest_bucket;
  };
  Shape shape() const;
  // Table `i` of the narrow (IPv4) or wide ones, in search order.
  const TupleTable& table(bool wide, uint32_t i) const { return tables_[wide ? narrow_ + i : i]; }

  // Whether single lookups ask first which tables matter.
  bool pruned() const { return prune_ != nullptr; }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(tables_);
    f(filter_);
    f(slots_);
    f(entries4_);
    f(entries6_);
    f(prune_);
    rules_.each_pointer(f);
  }

 private:
  SLUICE_HD uint32_t lookup4(const FlowKey& key, AclTally* tally) const;
  SLUICE_HD uint32_t lookup4_pruned(const FlowKey& key, AclTally* tally) const;
  SLUICE_HD uint32_t lookup6(const FlowKey& key, AclTally* tally) const;
  template <bool kWide>
  void burst(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, const uint8_t* which, size_t n) const;
  // Walks one bucket: the best rule below `best` that matches, or `best`.
  SLUICE_HD uint32_t walk4(uint32_t entry, const FlowKey& key, uint32_t best, AclTally* tally = nullptr) const;
  SLUICE_HD uint32_t walk6(uint32_t entry, const FlowKey& key, uint32_t best, AclTally* tally = nullptr) const;

  const TupleTable* tables_ = nullptr;  // narrow ones first, each part in order of best
  const uint32_t* filter_ = nullptr;
  const uint32_t* slots_ = nullptr;
  const TupleEntry4* entries4_ = nullptr;
  const AclMatchRule* entries6_ = nullptr;
  const TuplePrune* prune_ = nullptr;  // nullptr: a search visits every narrow table
  AclRulesView rules_;
  uint16_t narrow_ = 0, wide_ = 0;
};
static_assert(std::is_trivially_copyable_v<TupleSpaceView> && sizeof(TupleSpaceView) == 72);

struct TupleSpaceAcl {
  static constexpr const char* kName = "tuple_space";
  static constexpr const char* kSectionName = "tuplespc";
  static constexpr const char* kSummary = "hash tables by coarsened tuple, rules verified on each probe";
  using View = TupleSpaceView;
  // O(rules x candidate tuples) time, about 128 bytes a rule. Errors: a rule set that check_rule_set refuses, memory.
  static Result<Image> build(const RuleSet& set);
  // Why building takes minutes; "" where it does not.
  static std::string slow_build(const RuleSet& set);
};

SLUICE_HD uint32_t TupleSpaceView::walk4(uint32_t entry, const FlowKey& key, uint32_t best, AclTally* tally) const {
  for (;; ++entry) {
    if (tally != nullptr) ++tally->reads;
    const TupleEntry4& e = tuple_fetch(entries4_ + entry);
    const uint32_t rule = e.rule & TupleEntry4::kRuleMask;
    if (rule >= best) return best;
    if (matches4(e, key) && ((e.rule & TupleEntry4::kIcmp) == 0 || matches(rules_.rule(rule), key))) return rule;
    if ((e.rule & TupleEntry4::kLast) != 0) return best;
  }
}

SLUICE_HD uint32_t TupleSpaceView::walk6(uint32_t entry, const FlowKey& key, uint32_t best, AclTally* tally) const {
  for (;; ++entry) {
    if (tally != nullptr) ++tally->reads;
    const AclMatchRule& e = entries6_[entry];
    const uint32_t rule = e.rule & TupleEntry4::kRuleMask;
    if (rule >= best) return best;
    if (matches(e, key)) return rule;
    if ((e.rule & TupleEntry4::kLast) != 0) return best;
  }
}

SLUICE_HD uint32_t TupleSpaceView::lookup4(const FlowKey& key, AclTally* tally) const {
  const auto src = static_cast<uint32_t>(key.src_lo), dst = static_cast<uint32_t>(key.dst_lo);
  const uint32_t ports = uint32_t{key.src_port} << 16 | key.dst_port;
  const uint32_t protocol = key.protocol * kTupleProtocolFactor;
  uint32_t best = ~0u;
  for (uint32_t i = 0; i < narrow_; ++i) {
    const TupleTable& t = tuple_fetch(tables_ + i);
    if (t.best >= best) break;
    if (tally != nullptr) ++tally->tables;
    const uint32_t h = tuple_hash4(t, src, dst, ports, protocol);
    if (!tuple_filter_passes(filter_[t.filter_base + (uint64_t{h} >> t.filter_shift)], h)) continue;
    const uint32_t slot = slots_[t.slot_base + (uint64_t{h} >> t.slot_shift)];
    if (slot != 0) best = walk4(slot - 1, key, best, tally);
  }
  return best == ~0u ? 0 : best;
}

SLUICE_HD uint32_t TupleSpaceView::lookup4_pruned(const FlowKey& key, AclTally* tally) const {
  const auto src = static_cast<uint32_t>(key.src_lo), dst = static_cast<uint32_t>(key.dst_lo);
  const uint32_t ports = uint32_t{key.src_port} << 16 | key.dst_port;
  const uint32_t protocol = key.protocol * kTupleProtocolFactor;
  uint32_t best = ~0u;
  for (uint64_t left = prune_->tables_for(src, dst, key.src_port, key.dst_port, key.protocol); left != 0;
       left &= left - 1) {
    const TuplePrune::Table& t = tuple_fetch(prune_->tables + trailing_zeros64(left));
    if (t.best >= best) break;
    if (tally != nullptr) ++tally->tables;
    const uint32_t src_mask = static_cast<uint32_t>(~uint64_t{0} << t.src_free);
    const uint32_t dst_mask = static_cast<uint32_t>(~uint64_t{0} << t.dst_free);
    const uint32_t h = tuple_finish(tuple_step(tuple_step(0, src & src_mask), dst & dst_mask), ports & t.port_mask,
                                    t.protocol != 0 ? protocol : 0);
    const uint32_t slot = slots_[t.slot_base + (uint64_t{h} >> t.slot_shift)];
    if (slot != 0) best = walk4(slot - 1, key, best, tally);
  }
  return best == ~0u ? 0 : best;
}

SLUICE_HD uint32_t TupleSpaceView::lookup6(const FlowKey& key, AclTally* tally) const {
  const uint32_t words[8] = {static_cast<uint32_t>(key.src_hi >> 32), static_cast<uint32_t>(key.src_hi),
                             static_cast<uint32_t>(key.src_lo >> 32), static_cast<uint32_t>(key.src_lo),
                             static_cast<uint32_t>(key.dst_hi >> 32), static_cast<uint32_t>(key.dst_hi),
                             static_cast<uint32_t>(key.dst_lo >> 32), static_cast<uint32_t>(key.dst_lo)};
  const uint32_t ports = uint32_t{key.src_port} << 16 | key.dst_port;
  const uint32_t protocol = key.protocol * kTupleProtocolFactor;
  uint32_t best = ~0u;
  for (uint32_t i = narrow_, end = i + wide_; i < end; ++i) {
    const TupleTable& t = tables_[i];
    if (t.best >= best) break;
    if (tally != nullptr) ++tally->tables;
    const uint32_t h = tuple_hash6(t, words, ports, protocol);
    if (!tuple_filter_passes(filter_[t.filter_base + (uint64_t{h} >> t.filter_shift)], h)) continue;
    const uint32_t slot = slots_[t.slot_base + (uint64_t{h} >> t.slot_shift)];
    if (slot != 0) best = walk6(slot - 1, key, best, tally);
  }
  return best == ~0u ? 0 : best;
}

SLUICE_HD uint32_t TupleSpaceView::lookup(const FlowKey& key, AclTally* tally) const {
  if (key.family != 4) return lookup6(key, tally);
  return prune_ != nullptr ? lookup4_pruned(key, tally) : lookup4(key, tally);
}

}  // namespace sluice

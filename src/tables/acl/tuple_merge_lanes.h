// Internal to tuple_merge: 32 keys as columns, and the vector kernels over them. Host only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tables/acl/tuple_merge.h"

namespace sluice {

struct TupleMergeKernels {
  struct Lanes {
    alignas(64) uint32_t word[8][32];  // address words; narrow lanes use 3 (source) and 7 (destination) only
    alignas(64) uint64_t pair[32];     // narrow lanes: destination << 32 | source
    alignas(64) uint32_t ports[32];
    alignas(64) uint32_t protocol[32];  // times kTupleProtocolFactor
    alignas(64) uint32_t fields[32];
    alignas(64) uint32_t best[32];  // what is found so far; kMergeNone: nothing
    // The keys: by pointer, or all of them in columns.
    const FlowKey* key[32];
    const KeyColumns* columns = nullptr;
    FlowKey key_of(size_t i) const { return columns != nullptr ? columns->key(static_cast<uint32_t>(i)) : *key[i]; }
  };
  // Room for a vector past the last candidate.
  struct Candidates {
    alignas(64) uint32_t block[32 + 16];
    alignas(64) uint32_t lane[32 + 16];
    size_t count = 0;
  };

  // Adds the blocks that table `t` has for lanes [0, n) that it may still improve. Lanes past n, up to the next
  // multiple of 16, are defined but not real: their best is 0.
  using ProbeFn = void (*)(const TupleMergeView& view, const Lanes& lanes, size_t n, const TupleMergeTable& t,
                           Candidates& out);
  // Compares each candidate's bucket with its lane and keeps the better rule.
  using VerifyFn = void (*)(const TupleMergeView& view, Lanes& lanes, const Candidates& candidates);
  // Takes over the addresses, ports and fields of `n` narrow keys, 1 to 32, the lanes behind them as those of a key of
  // zeros. False: one of the keys is not narrow; what is in the lanes is of no use then. nullptr: there is none.
  using FillFn = bool (*)(Lanes& lanes, const FlowKey* const* keys, size_t n);
  // The same of keys that stand in columns, of either form.
  using FillColumnsFn = void (*)(Lanes& lanes, const KeyColumns& keys, size_t n);
  // Compares the loose rules with all lanes.
  using LooseFn = void (*)(const TupleMergeView& view, Lanes& lanes, size_t n);

  ProbeFn probe;
  VerifyFn verify;
  LooseFn loose;
  LooseFn bitmap;  // the same by the bitmap; narrow lanes only
  FillFn fill;     // narrow lanes only
  FillColumnsFn fill_columns;

  static const TupleMergeKernels& of(AclIsa isa, bool wide);

  // The view's parts, for the kernels.
  static const uint32_t* slots(const TupleMergeView& v) { return v.slots_; }
  template <bool kWide>
  static auto blocks(const TupleMergeView& v) {
    if constexpr (kWide) {
      return v.blocks6_;
    } else {
      return v.blocks4_;
    }
  }
  static const TupleMergeLoose* loose_begin(const TupleMergeView& v, bool wide) {
    return v.loose_ + (wide ? v.narrow_loose_ : 0);
  }
  static uint32_t loose_count(const TupleMergeView& v, bool wide) { return wide ? v.wide_loose_ : v.narrow_loose_; }
  static bool full(const TupleMergeView& v, uint32_t word, const FlowKey& key) { return v.full(word, key); }
};

}  // namespace sluice

// Internal to tuple_merge: the search for one key. The vector kernels give the same.
#pragma once

#include <cstdint>

#include "base/bits.h"
#include "base/hd.h"
#include "tables/acl/tuple_merge_view.h"
#include "tables/acl/tuple_space.h"

namespace sluice {

// Tables whose slots are read together, and rows of the bitmap: on the host one, which leaves as soon as it can.
#if defined(__CUDA_ARCH__)
inline constexpr uint32_t kMergeAhead = 4;
#define SLUICE_UNROLL _Pragma("unroll")
#else
inline constexpr uint32_t kMergeAhead = 1;
#define SLUICE_UNROLL
#endif

template <bool kWide>
SLUICE_HD TupleMergeView::Probe TupleMergeView::probe_of(const FlowKey& key) {
  Probe p;
  if constexpr (kWide) {
    p.word[0] = static_cast<uint32_t>(key.src_hi >> 32);
    p.word[1] = static_cast<uint32_t>(key.src_hi);
    p.word[2] = static_cast<uint32_t>(key.src_lo >> 32);
    p.word[4] = static_cast<uint32_t>(key.dst_hi >> 32);
    p.word[5] = static_cast<uint32_t>(key.dst_hi);
    p.word[6] = static_cast<uint32_t>(key.dst_lo >> 32);
  }
  p.word[3] = static_cast<uint32_t>(key.src_lo);
  p.word[7] = static_cast<uint32_t>(key.dst_lo);
  p.ports = merge_ports(key);
  p.protocol = key.protocol * kTupleProtocolFactor;
  p.fields = merge_fields(key, kWide);
  return p;
}

// The hash of a table: the twin of the vector kernels.
template <bool kWide>
SLUICE_HD uint32_t merge_hash(const TupleMergeTable& t, const uint32_t* word, uint32_t ports, uint32_t protocol) {
  uint32_t h = 0;
  if constexpr (kWide) {
    for (unsigned i = 0; i < 4; ++i) {
      if ((t.words >> i & 1) != 0) h = tuple_step(h, word[i] & t.src_mask[i]);
    }
    for (unsigned i = 0; i < 4; ++i) {
      if ((t.words >> (4 + i) & 1) != 0) h = tuple_step(h, word[4 + i] & t.dst_mask[i]);
    }
  } else {
    h = tuple_step(tuple_step(0, word[3] & t.src_mask[3]), word[7] & t.dst_mask[3]);
  }
  return tuple_finish(h, ports & t.port_mask, protocol & t.protocol_mask);
}
// A slot's tag for a hash: 1..255.
SLUICE_HD uint32_t merge_tag(uint32_t h) {
  return (h & 255) != 0 ? h & 255 : 1;
}

template <bool kWide>
SLUICE_HD uint32_t TupleMergeView::block_of(const TupleMergeTable& t, const Probe& p) const {
  const uint32_t h = merge_hash<kWide>(t, p.word, p.ports, p.protocol);
  const uint32_t slot = slots_[t.slot_base + (uint64_t{h} >> t.slot_shift)];
  const uint32_t tag = slot & 255;
  return tag == 0 || tag == merge_tag(h) ? slot >> 8 : 0;
}

SLUICE_HD uint32_t TupleMergeView::near_lanes(const TupleMergeBlock4& b, const Probe& p) {
  uint32_t address[2 * kMergeLanes];
  uint8_t free[2 * kMergeLanes];
  tuple_fetch_array(b.address, address);
  tuple_fetch_array(b.free, free);
  uint32_t near = 0;
  SLUICE_UNROLL
  for (uint32_t i = 0; i < kMergeLanes; ++i) {
    const uint64_t differs = (static_cast<uint64_t>(p.word[3] ^ address[2 * i]) >> free[2 * i]) |
                             (static_cast<uint64_t>(p.word[7] ^ address[2 * i + 1]) >> free[2 * i + 1]);
    near |= static_cast<uint32_t>(differs == 0) << i;
  }
  return near;
}

template <bool kWide>
SLUICE_HD uint32_t TupleMergeView::scan(uint32_t block, const Probe& p, const FlowKey& key, uint32_t best,
                                        AclTally* tally) const {
  for (;; ++block) {
    if (tally != nullptr) ++tally->reads;
    if constexpr (kWide) {
      const TupleMergeBlock6& b = blocks6_[block];
      for (uint32_t i = 0; i < kMergeLanes; ++i) {
        const uint32_t word = b.rule[i] & ~kMergeMore;
        if ((word & kMergeNone) >= best) return best;  // in order
        uint64_t differs = ((p.fields ^ b.fields[i]) & b.fields_mask[i]);
        const uint64_t halves[4] = {key.src_hi, key.src_lo, key.dst_hi, key.dst_lo};
        for (unsigned h = 0; h < 4; ++h) {
          const uint64_t x = halves[h] ^ b.address[h][i];
          differs |= b.free[h][i] < 64 ? x >> b.free[h][i] : 0;
        }
        if (differs == 0 && merge_ports_in(p.ports, b.ports_low[i], b.ports_span[i]) && full(word, key))
          return word & kMergeNone;
      }
      if ((b.rule[kMergeLanes - 1] & kMergeMore) == 0) return best;
    } else {
      const TupleMergeBlock4& b = blocks4_[block];
      for (uint32_t near = near_lanes(b, p); near != 0; near &= near - 1) {
        const uint32_t i = trailing_zeros32(near);
        // Read together: on a device each wait for memory counts.
        const uint32_t word = b.rule[i] & ~kMergeMore, fields = b.fields[i], mask = b.fields_mask[i],
                       low = b.ports_low[i], span = b.ports_span[i];
        if ((word & kMergeNone) >= best) return best;  // in order
        if ((((p.fields ^ fields) & mask) == 0) & merge_ports_in(p.ports, low, span) && full(word, key))
          return word & kMergeNone;
      }
      if ((b.rule[kMergeLanes - 1] & kMergeMore) == 0) return best;
      if ((blocks4_[block + 1].rule[0] & kMergeNone) >= best) return best;
    }
  }
}

template <bool kWide>
SLUICE_HD bool TupleMergeView::loose_matches(const TupleMergeLoose& l, const Probe& p, const FlowKey& key) const {
  uint32_t differs = (p.fields ^ l.fields) & l.fields_mask;
  if constexpr (kWide) {
    for (unsigned i = 0; i < 8; ++i) differs |= (p.word[i] ^ l.value[i]) & l.mask[i];
  } else {
    differs |= ((p.word[3] ^ l.value[3]) & l.mask[3]) | ((p.word[7] ^ l.value[7]) & l.mask[7]);
  }
  return differs == 0 && merge_ports_in(p.ports, l.ports_low, l.ports_span) && full(l.rule, key);
}

template <uint32_t kParts>
SLUICE_HD uint32_t TupleMergeView::first_of(TupleMergeBitmap::Row left, uint32_t part, const Probe& p,
                                            const FlowKey& key) const {
  for (unsigned half = 0; half < 2; ++half) {
    for (; left.rules[half] != 0; left.rules[half] &= left.rules[half] - 1) {
      const uint32_t i = part * TupleMergeBitmap::kRules + 64 * half + trailing_zeros64(left.rules[half]);
      const uint32_t word = kParts == 1 ? bitmap().rule[i] : bitmap().words()[i];
      if ((word & kMergeFull) == 0 || loose_matches<false>(loose_[i], p, key)) return word & kMergeNone;
    }
  }
  return kMergeNone;
}

template <uint32_t kParts>
SLUICE_HD TupleMergeBitmap::Row TupleMergeView::left_of(uint32_t part, const Probe& p) const {
  const TupleMergeBitmap& from = bitmap();
  TupleMergeBitmap::Row left = {{~uint64_t{0}, ~uint64_t{0}}};
  const TupleMergeBitmap::Row* rows = from.rows() + part;
  const uint32_t words[4] = {p.word[3], p.word[7], p.ports, p.fields};
  for (uint32_t i = 0; i < from.count; i += kMergeAhead) {
    SLUICE_UNROLL
    for (uint32_t j = 0; j < kMergeAhead; ++j) {
      const uint32_t byte = i + j < from.count ? i + j : i;
      const uint32_t at = from.at[byte];
      const uint32_t word = at < 8 ? (at < 4 ? words[0] : words[1]) : (at < 12 ? words[2] : words[3]);
      left = both(left, tuple_fetch(rows + (byte * 256 + (word >> (8 * (at & 3)) & 255)) * kParts));
    }
  }
  return left;
}

SLUICE_HD uint32_t TupleMergeView::loose_by_bitmap(const Probe& p, const FlowKey& key) const {
  if (bitmap_parts_ == 1) return first_of<1>(left_of<1>(0, p), 0, p, key);
#if !defined(__CUDA_ARCH__)
  // Rules stand in order: the first part that has one has the best.
  constexpr uint32_t kParts = TupleMergeBitmap::kMaxParts;
  for (uint32_t part = 0; part < kParts; ++part) {
    const uint32_t best = first_of<kParts>(left_of<kParts>(part, p), part, p, key);
    if (best != kMergeNone) return best;
  }
#endif
  return kMergeNone;
}

template <bool kWide>
SLUICE_HD uint32_t TupleMergeView::lookup_as(const FlowKey& key, AclTally* tally) const {
  const Probe p = probe_of<kWide>(key);
  uint32_t best = kMergeNone;
  if (!kWide && uses_bitmap()) {
    best = loose_by_bitmap(p, key);
  } else {
    const uint32_t first_loose = kWide ? narrow_loose_ : 0,
                   end_loose = first_loose + (kWide ? wide_loose_ : narrow_loose_);
    for (uint32_t i = first_loose; i < end_loose; ++i) {
      if (!loose_matches<kWide>(loose_[i], p, key)) continue;
      best = loose_[i].rule & kMergeNone;
      break;
    }
  }
  const uint32_t first = kWide ? narrow_ : 0, end = first + (kWide ? wide_ : narrow_);
  // The slots of some tables at a time: a device waits for them once.
  for (uint32_t i = first; i < end; i += kMergeAhead) {
    if (tables_[i].best >= best) break;
    uint32_t blocks[kMergeAhead];
    SLUICE_UNROLL
    for (uint32_t j = 0; j < kMergeAhead; ++j) {
      blocks[j] = block_of<kWide>(tables_[i + j < end ? i + j : i], p);
    }
    SLUICE_UNROLL
    for (uint32_t j = 0; j < kMergeAhead; ++j) {
      if (i + j >= end || tables_[i + j].best >= best) break;
      if (tally != nullptr) ++tally->tables;
      if (blocks[j] != 0) best = scan<kWide>(blocks[j] - 1, p, key, best, tally);
    }
  }
  return best == kMergeNone ? 0 : best;
}

SLUICE_HD uint32_t TupleMergeView::lookup(const FlowKey& key, AclTally* tally) const {
  return key.family == 4 ? lookup_as<false>(key, tally) : lookup_as<true>(key, tally);
}

}  // namespace sluice

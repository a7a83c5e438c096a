// Internal to tuple_merge: the search for one key by neighbouring lanes of a device.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/bits.h"
#include "base/hd.h"
#include "tables/acl/tuple_merge_lookup.h"
#include "tables/acl/tuple_merge_view.h"
#include "tables/acl/tuple_space.h"

namespace sluice {

SLUICE_HD TupleMergeView::Column TupleMergeView::column_of(const TupleMergeBlock4& b, uint32_t i) {
  Column c;
  memcpy(c.address, __builtin_assume_aligned(b.address + 2 * i, 8), sizeof c.address);
  memcpy(&c.free, __builtin_assume_aligned(b.free + 2 * i, 2), sizeof c.free);
  c.fields = b.fields[i];
  c.fields_mask = b.fields_mask[i];
  c.low = b.ports_low[i];
  c.span = b.ports_span[i];
  c.word = b.rule[i];
  return c;
}

SLUICE_HD uint32_t TupleMergeView::match_of(const Column& c, const Probe& p) {
  // 0 when all bits are shifted out.
  const auto shifted = [](uint32_t value, uint32_t by) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_rc(value, 0, by);
#else
    return static_cast<uint32_t>(uint64_t{value} >> by);
#endif
  };
  const uint32_t differs = shifted(p.word[3] ^ c.address[0], c.free & 255u) |
                           shifted(p.word[7] ^ c.address[1], c.free >> 8) | ((p.fields ^ c.fields) & c.fields_mask);
  const bool matches = (differs == 0) & merge_ports_in(p.ports, c.low, c.span);
  return matches ? c.word & ~kMergeMore : kMergeNone;
}

// Three loads in a row, whatever the list is like: rows of the bitmap and slots, then blocks and the rule of the
// bitmap; then the rest of long buckets, block by block. What is loaded is used only after all that does not depend on
// it has been asked for, and loads are not skipped where a lane has nothing to ask for: a branch between them is a
// wait. A warp by itself waits for most of its instructions, so there are as few of them as possible, too.
template <typename Group>
SLUICE_HD uint32_t TupleMergeView::lookup_team(const FlowKey& key, const Group& group, bool here) const {
  constexpr uint32_t kLeast = Group::kLeast < kMergeLanes ? Group::kLeast : kMergeLanes;
  constexpr uint32_t kBlocks = 3;                    // that are read at a time
  constexpr uint32_t kRules = kMergeLanes / kLeast;  // of a block, a lane
  constexpr uint32_t kRows = sizeof(TupleMergeBitmap::at) / kLeast;
  const bool mine = here && key.family == 4;
  const uint32_t lane = group.lane(), lanes = group.size();
  const Probe p = probe_of<false>(key);

  // A lane every lanes'th row.
  TupleMergeBitmap::Row rows[kRows];
  SLUICE_UNROLL
  for (uint32_t r = 0; r < kRows; ++r) rows[r] = {{~uint64_t{0}, ~uint64_t{0}}};
  const bool in_step = bitmap_parts_ == 1;  // else rules are compared
  const TupleMergeBitmap* const one_part = in_step ? &bitmap() : nullptr;
  if (in_step) {
    const uint32_t words[4] = {p.word[3], p.word[7], p.ports, p.fields};
    SLUICE_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t i = r * lanes + lane;
      const uint32_t byte = i < one_part->count ? i : 0;  // a bitmap has a row at least
      const uint32_t at = one_part->at[byte];
      const uint32_t word = at < 8 ? (at < 4 ? words[0] : words[1]) : (at < 12 ? words[2] : words[3]);
      rows[r] = tuple_fetch(one_part->rows() + byte * 256 + (word >> (8 * (at & 3)) & 255));
    }
  }

  uint32_t best = kMergeNone;   // the team's
  uint32_t found = kMergeNone;  // this lane's
  // A lane's matching rule, unless the columns are not all of it.
  const auto take = [&](uint32_t word) {
    if ((word & kMergeNone) >= found) return;
    if (full(word, key)) found = word & kMergeNone;
  };
  // The loose rules that the rows leave: every lanes'th for this lane, the first of them at once.
  TupleMergeBitmap::Row left = {};
  uint32_t loose = 0, loose_word = kMergeNone;
  for (uint32_t base = 0; base == 0 || base < narrow_; base += lanes) {
    // This lane's table and what it has for the key.
    uint32_t first = kMergeNone, slot = 0, tag = 0;
    if (narrow_ != 0) {
      const bool some = mine && base + lane < narrow_;
      const TupleMergeTable& t = tuple_fetch(tables_ + (some ? base + lane : base));
      const uint32_t h = merge_hash<false>(t, p.word, p.ports, p.protocol);
      slot = slots_[t.slot_base + (uint64_t{h} >> t.slot_shift)];
      first = some ? t.best : kMergeNone;
      tag = merge_tag(h);
    }
    if (base == 0 && in_step) {
      left = rows[0];
      SLUICE_UNROLL
      for (uint32_t r = 1; r < kRows; ++r) left = both(left, rows[r]);
      const uint64_t every = mine ? ~uint64_t{0} / ((uint64_t{1} << lanes) - 1) << lane : 0;
      SLUICE_UNROLL
      for (uint64_t& half : left.rules) {
        half = (uint64_t{group.all_bits(static_cast<uint32_t>(half >> 32))} << 32 |
                group.all_bits(static_cast<uint32_t>(half))) &
               every;
      }
      loose = first_bit(left);
      loose_word = one_part->rule[loose];
    }
    // One plus this lane's block, then the blocks of the team's first candidates, in the order of their tables' best
    // rules; 0: none.
    const uint32_t block = first < best && ((slot & 255) == 0 || (slot & 255) == tag) ? slot >> 8 : 0;
    uint32_t there = group.ballot(block != 0);
    uint32_t current[kBlocks];
    Column columns[kBlocks][kRules];
    if (narrow_ != 0) {
      SLUICE_UNROLL
      for (uint32_t k = 0; k < kBlocks; ++k) {
        const uint32_t next = group.broadcast(block, there != 0 ? trailing_zeros32(there) : 0);
        current[k] = there != 0 ? next : 0;
        there &= there - 1;
        SLUICE_UNROLL
        for (uint32_t r = 0; r < kRules; ++r) {
          columns[k][r] =
              column_of(blocks4_[current[k] != 0 ? current[k] - 1 : 0], (r * lanes + lane) & (kMergeLanes - 1));
        }
      }
    }
    if (base == 0 && !in_step) {
      for (uint32_t i = lane; mine && i < narrow_loose_ && found == kMergeNone; i += lanes) {
        if (loose_matches<false>(loose_[i], p, key)) found = loose_[i].rule & kMergeNone;
      }
    }
    while ((left.rules[0] | left.rules[1]) != 0) {
      if ((loose_word & kMergeFull) == 0 || loose_matches<false>(loose_[loose], p, key)) {
        found = loose_word & kMergeNone;
        left = {};
        break;
      }
      left.rules[1] &= left.rules[0] != 0 ? ~uint64_t{0} : left.rules[1] - 1;
      left.rules[0] &= left.rules[0] - 1;
      loose = first_bit(left);
      loose_word = one_part->rule[loose];
    }
    if (narrow_ == 0) {
      best = group.least(found);
      break;
    }
    uint32_t words[kBlocks][kRules];
    uint32_t lowest = kMergeNone, any = 0;
    SLUICE_UNROLL
    for (uint32_t k = 0; k < kBlocks; ++k) {
      SLUICE_UNROLL
      for (uint32_t r = 0; r < kRules; ++r) {
        const bool there_is = current[k] != 0 && r * lanes + lane < kMergeLanes;
        words[k][r] = there_is ? match_of(columns[k][r], p) : kMergeNone;
        any |= words[k][r];
        lowest = (words[k][r] & kMergeNone) < lowest ? words[k][r] & kMergeNone : lowest;
      }
    }
    if ((any & kMergeFull) == 0) {
      found = lowest < found ? lowest : found;
    } else {
      SLUICE_UNROLL
      for (uint32_t k = 0; k < kBlocks; ++k) {
        SLUICE_UNROLL
        for (uint32_t r = 0; r < kRules; ++r) take(words[k][r]);
      }
    }
    best = group.least(found);
    // Which buckets go on: the last rule of a block says it, and rules stand in order.
    uint32_t more = 0;
    SLUICE_UNROLL
    for (uint32_t k = 0; k < kBlocks; ++k) {
      SLUICE_UNROLL
      for (uint32_t r = 0; r < kRules; ++r) {
        const bool last = current[k] != 0 && r * lanes + lane == kMergeLanes - 1;
        const uint32_t word = columns[k][r].word;
        more |= uint32_t{last && (word & kMergeMore) != 0 && (word & kMergeNone) < best} << k;
      }
    }
    more = group.broadcast(more, (kMergeLanes - 1) % lanes);
    // What is left of them, then of the candidates.
    uint32_t next = 0;
    while (group.somewhere((next | more | there) != 0)) {
      const uint32_t from = there != 0 ? trailing_zeros32(there) : 0;
      const uint32_t candidate = group.broadcast(first < best ? block : 0, from);
      if (next == 0 && more != 0) {
        const uint32_t which = trailing_zeros32(more);
        more &= more - 1;
        SLUICE_UNROLL
        for (uint32_t k = 0; k < kBlocks; ++k) next = k == which ? current[k] + 1 : next;
      } else if (next == 0 && there != 0) {
        there &= there - 1;
        next = candidate;
      }
      uint32_t last = 0;
      SLUICE_UNROLL
      for (uint32_t r = 0; r < kRules; ++r) {
        const uint32_t i = r * lanes + lane;
        const Column c = column_of(blocks4_[next != 0 ? next - 1 : 0], i & (kMergeLanes - 1));
        if (i == kMergeLanes - 1) last = c.word;
        take(next != 0 && i < kMergeLanes ? match_of(c, p) : kMergeNone);
      }
      best = group.least(found);
      last = group.broadcast(last, (kMergeLanes - 1) % lanes);
      next = next != 0 && (last & kMergeMore) != 0 && (last & kMergeNone) < best ? next + 1 : 0;
    }
    if (!group.somewhere(mine && base + lanes < narrow_ && tables_[base + lanes].best < best)) break;
  }
  if (!mine) return here ? lookup(key) : 0;
  return best == kMergeNone ? 0 : best;
}

}  // namespace sluice

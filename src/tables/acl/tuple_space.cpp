// tuple_space: opening images and the burst search. The builder is in tuple_space_build.cpp.
#include "tables/acl/tuple_space.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "base/prefetch.h"
#include "tables/acl/tuple_space_lanes.h"
#include "tables/acl/tuple_space_layout.h"

namespace sluice {

using tuple_space_detail::Header;
using tuple_space_detail::Lanes;
using tuple_space_detail::Probe;

Result<TupleSpaceView> TupleSpaceView::open(const Image& image) {
  auto section = acl_section(image, SectionTag::kAclLookup, TupleSpaceAcl::kSectionName);
  if (!section) return std::move(section).error();
  auto rules = AclRulesView::open(image);
  if (!rules) return std::move(rules).error();
  auto broken = [](const char* what) {
    return Error(std::string("ACL image: tuple_space: ") + what, "make the image again with `sluice compile`");
  };
  const auto* header = section_array<Header>(*section, 0, 1);
  if (header == nullptr || header->narrow_tables > Header::kMaxTables || header->wide_tables > Header::kMaxTables) {
    return broken("the header is damaged");
  }
  TupleSpaceView view;
  view.rules_ = *rules;
  view.narrow_ = static_cast<uint16_t>(header->narrow_tables);
  view.wide_ = static_cast<uint16_t>(header->wide_tables);
  const uint32_t count4 = header->narrow_entries, count6 = header->wide_entries;
  view.tables_ = section_array<TupleTable>(*section, header->tables_offset, uint64_t{view.narrow_} + view.wide_);
  view.filter_ = section_array<uint32_t>(*section, header->filter_offset, header->filter_words);
  view.slots_ = section_array<uint32_t>(*section, header->slots_offset, header->slot_count);
  view.entries4_ = section_array<TupleEntry4>(*section, header->narrow_offset, count4);
  view.entries6_ = section_array<AclMatchRule>(*section, header->wide_offset, count6);
  if (view.tables_ == nullptr || view.filter_ == nullptr || view.slots_ == nullptr || view.entries4_ == nullptr ||
      view.entries6_ == nullptr) {
    return broken("an array lies outside the section");
  }
  if (header->prune_offset != 0) view.prune_ = section_array<TuplePrune>(*section, header->prune_offset, 1);
  if (image.checked(SectionTag::kAclLookup)) return view;
  // The filters and the slots of the tables follow each other without a gap, so each word is checked once.
  uint64_t filter_end = 0, slot_end = 0, entries[2] = {0, 0};
  for (uint32_t i = 0, end = uint32_t{view.narrow_} + view.wide_; i < end; ++i) {
    const TupleTable& t = view.tables_[i];
    entries[i < view.narrow_ ? 0 : 1] += t.entries;
    if (t.filter_shift < 1 || t.filter_shift > 32 || t.slot_shift < 1 || t.slot_shift > 32)
      return broken("a table's size is damaged");
    if (t.filter_base != filter_end || t.slot_base != slot_end) return broken("a table is out of place");
    filter_end += uint64_t{1} << (32 - t.filter_shift);
    const uint64_t slot_begin = slot_end;
    slot_end += uint64_t{1} << (32 - t.slot_shift);
    if (filter_end > header->filter_words || slot_end > header->slot_count)
      return broken("a table lies outside the section");
    const uint32_t limit = i < view.narrow_ ? count4 : count6;
    for (uint64_t s = slot_begin; s < slot_end; ++s) {
      if (view.slots_[s] > limit) return broken("a slot points past the entries");
    }
  }
  if (header->prune_offset != 0) {
    if (view.prune_ == nullptr ||
        section_array<std::byte>(*section, header->prune_offset, header->prune_bytes) == nullptr ||
        !tuple_prune_detail::prune_ok(*view.prune_, header->prune_bytes, view.narrow_)) {
      return broken("the sets of tables are damaged");
    }
    for (uint32_t i = 0; i < view.narrow_; ++i) {
      const TuplePrune::Table& t = view.prune_->tables[i];
      if (t.slot_base != view.tables_[i].slot_base || t.slot_shift != view.tables_[i].slot_shift || t.src_free > 32 ||
          t.dst_free > 32) {
        return broken("a table's short form is damaged");
      }
    }
  }
  if (entries[0] != count4 || entries[1] != count6) return broken("the tables' entries do not add up");
  // A walk ends at a flagged entry; with the last one flagged, every walk ends inside the array.
  auto rule_ok = [&](uint32_t word) {
    const uint32_t rule = word & TupleEntry4::kRuleMask;
    return rule >= 1 && rule <= view.rules_.size();
  };
  for (uint32_t i = 0; i < count4; ++i) {
    const TupleEntry4& e = view.entries4_[i];
    if (!rule_ok(e.rule) || e.src_free > 32 || e.dst_free > 32) return broken("an entry is out of range");
  }
  for (uint32_t i = 0; i < count6; ++i) {
    const AclMatchRule& e = view.entries6_[i];
    if (!rule_ok(e.rule) || e.src_length > 128 || e.dst_length > 128) return broken("an entry is out of range");
  }
  if ((count4 > 0 && (view.entries4_[count4 - 1].rule & TupleEntry4::kLast) == 0) ||
      (count6 > 0 && (view.entries6_[count6 - 1].rule & TupleEntry4::kLast) == 0)) {
    return broken("the last bucket has no end");
  }
  image.note_checked(SectionTag::kAclLookup);
  return view;
}

TupleSpaceView::Shape TupleSpaceView::shape() const {
  Shape shape{narrow_, wide_, 0, 0, 0};
  for (uint32_t i = 0; i < narrow_; ++i) shape.narrow_entries += tables_[i].entries;
  for (uint32_t i = 0; i < wide_; ++i) shape.wide_entries += tables_[narrow_ + i].entries;
  uint32_t run = 0;
  auto count = [&](uint32_t word) {
    ++run;
    shape.longest_bucket = std::max(shape.longest_bucket, run);
    if ((word & TupleEntry4::kLast) != 0) run = 0;
  };
  for (uint32_t i = 0; i < shape.narrow_entries; ++i) count(entries4_[i].rule);
  for (uint32_t i = 0; i < shape.wide_entries; ++i) count(entries6_[i].rule);
  return shape;
}

// Searches the keys keys[which[0..n)]. Tables are taken in groups: the filters of a group first, for all lanes, then
// the slots of the lanes that passed, then their entries, each pass prefetching for the next, so that cache misses of
// different packets and tables overlap. Between groups, lanes that no later table can improve are retired, and the rest
// are packed into one vector when they fit.
template <bool kWide>
void TupleSpaceView::burst(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, const uint8_t* which,
                           size_t n) const {
  constexpr uint32_t kGroup = 8;
  constexpr size_t kPack = 16;
  struct Candidate {
    uint32_t at;  // slot, then entry
    uint32_t lane;
  };
  const Probe probe = kWide ? tuple_space_detail::wide_probe(isa) : tuple_space_detail::narrow_probe(isa);
  const TupleTable* const tables = tables_ + (kWide ? narrow_ : 0);
  const uint32_t table_count = kWide ? wide_ : narrow_;

  Lanes lanes;
  const FlowKey* key[32];
  uint8_t out[32];
  uint32_t best[32];
  alignas(64) uint32_t hash[32];
  Candidate candidates[kGroup * 32];

  for (size_t i = 0; i < n; ++i) {
    const FlowKey& k = *keys[which[i]];
    key[i] = &k;
    out[i] = which[i];
    best[i] = ~0u;
    if constexpr (kWide) {
      lanes.word[0][i] = static_cast<uint32_t>(k.src_hi >> 32);
      lanes.word[1][i] = static_cast<uint32_t>(k.src_hi);
      lanes.word[2][i] = static_cast<uint32_t>(k.src_lo >> 32);
      lanes.word[4][i] = static_cast<uint32_t>(k.dst_hi >> 32);
      lanes.word[5][i] = static_cast<uint32_t>(k.dst_hi);
      lanes.word[6][i] = static_cast<uint32_t>(k.dst_lo >> 32);
    }
    lanes.word[3][i] = static_cast<uint32_t>(k.src_lo);
    lanes.word[7][i] = static_cast<uint32_t>(k.dst_lo);
    lanes.ports[i] = uint32_t{k.src_port} << 16 | k.dst_port;
    lanes.protocol[i] = k.protocol * kTupleProtocolFactor;
  }
  // The vectors read whole groups of 16; lanes past n repeat lane 0 so that the gathers stay in bounds on defined data.
  for (size_t i = n; i % 16 != 0; ++i) {
    for (size_t w = 0; w < 8; ++w) {
      if (kWide || w == 3 || w == 7) lanes.word[w][i] = lanes.word[w][0];
    }
    lanes.ports[i] = lanes.ports[0];
    lanes.protocol[i] = lanes.protocol[0];
  }

  for (uint32_t first = 0; first < table_count;) {
    uint32_t live = 0;
    for (size_t i = 0; i < n; ++i) live |= uint32_t{tables[first].best < best[i]} << i;
    if (live == 0) break;
    if (n > kPack && std::popcount(live) <= static_cast<int>(kPack)) {
      size_t to = 0;
      for (uint32_t rest = live; rest != 0; rest &= rest - 1, ++to) {
        const auto from = static_cast<size_t>(std::countr_zero(rest));
        // Retired lanes have their result already; what is overwritten here is stored first.
        if (to != from) {
          if ((live >> to & 1) == 0) rules[out[to]] = best[to] == ~0u ? 0 : best[to];
          for (size_t w = 0; w < 8; ++w) {
            if (kWide || w == 3 || w == 7) lanes.word[w][to] = lanes.word[w][from];
          }
          lanes.ports[to] = lanes.ports[from];
          lanes.protocol[to] = lanes.protocol[from];
          key[to] = key[from];
          out[to] = out[from];
          best[to] = best[from];
        }
      }
      for (size_t i = to; i < n; ++i) {
        if ((live >> i & 1) == 0) rules[out[i]] = best[i] == ~0u ? 0 : best[i];
      }
      n = to;
      live = static_cast<uint32_t>((uint64_t{1} << n) - 1);
    }
    const uint32_t end = std::min(first + kGroup, table_count);
    size_t count = 0;
    for (uint32_t i = first; i < end; ++i) {
      const TupleTable& t = tables[i];
      for (uint32_t mask = probe(lanes, n, t, filter_, hash) & live; mask != 0; mask &= mask - 1) {
        const auto lane = static_cast<uint32_t>(std::countr_zero(mask));
        const auto slot = static_cast<uint32_t>(t.slot_base + (uint64_t{hash[lane]} >> t.slot_shift));
        prefetch_read(slots_ + slot);
        candidates[count++] = {slot, lane};
      }
    }
    size_t kept = 0;
    for (size_t c = 0; c < count; ++c) {
      const uint32_t entry = slots_[candidates[c].at];
      const uint32_t at = entry - (entry != 0);  // an empty slot is dropped below, without a branch
      candidates[kept] = {at, candidates[c].lane};
      if constexpr (kWide) {
        prefetch_read(entries6_ + at);
      } else {
        prefetch_read(entries4_ + at);
      }
      kept += entry != 0;
    }
    for (size_t c = 0; c < kept; ++c) {
      const uint32_t lane = candidates[c].lane;
      if constexpr (kWide) {
        best[lane] = walk6(candidates[c].at, *key[lane], best[lane]);
      } else {
        best[lane] = walk4(candidates[c].at, *key[lane], best[lane]);
      }
    }
    first = end;
  }
  for (size_t i = 0; i < n; ++i) rules[out[i]] = best[i] == ~0u ? 0 : best[i];
}

bool TupleSpaceView::lookup_burst_on(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, size_t n) const {
  bool all_narrow = true;
  SLUICE_ASSERT(isa_available(isa));
  for (size_t begin = 0; begin < n; begin += 32) {
    const size_t count = std::min<size_t>(32, n - begin);
    uint8_t narrow[32], wide[32];
    size_t narrow_count = 0, wide_count = 0;
    for (size_t i = 0; i < count; ++i) {
      const bool is_narrow = keys[begin + i]->family == 4;
      narrow[narrow_count] = static_cast<uint8_t>(i);
      wide[wide_count] = static_cast<uint8_t>(i);
      narrow_count += is_narrow;
      wide_count += !is_narrow;
    }
    if (narrow_count > 0) burst<false>(isa, keys + begin, rules + begin, narrow, narrow_count);
    if (wide_count > 0) burst<true>(isa, keys + begin, rules + begin, wide, wide_count);
    all_narrow &= wide_count == 0;
  }
  return all_narrow;
}

bool TupleSpaceView::lookup_burst(const FlowKey* const* keys, uint32_t* rules, size_t n) const {
  return lookup_burst_on(acl_widest_isa(), keys, rules, n);
}

}  // namespace sluice

// tuple_merge: opening images and the burst search. The builder is in tuple_merge_build.cpp.
#include "tables/acl/tuple_merge.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "base/prefetch.h"
#include "tables/acl/tuple_merge_lanes.h"
#include "tables/acl/tuple_merge_layout.h"

namespace sluice {

using tuple_merge_detail::Header;

namespace {

// Whether every bit of the rows stands for a loose rule, and every rule's word for a rule.
bool bitmap_ok(std::span<const std::byte> section, const Header& header, const TupleMergeBitmap& bitmap,
               uint32_t rules) {
  using Bitmap = TupleMergeBitmap;
  const uint32_t n = header.narrow_loose;
  if (n == 0 || (bitmap.parts != 1 && bitmap.parts != Bitmap::kMaxParts) || n > Bitmap::kRules * bitmap.parts ||
      bitmap.count > std::size(bitmap.at) || header.bitmap_bytes != Bitmap::bytes_for(bitmap.count, bitmap.parts) ||
      section_array<std::byte>(section, header.bitmap_offset, header.bitmap_bytes) == nullptr) {
    return false;
  }
  for (uint32_t i = 0; i < bitmap.count; ++i) {
    if (bitmap.at[i] >= std::size(bitmap.at)) return false;
  }
  for (uint32_t i = 0; i < Bitmap::words_for(bitmap.parts); ++i) {
    const uint32_t rule = bitmap.words()[i] & ~kMergeFull;
    if (i < n ? rule < 1 || rule > rules : bitmap.words()[i] != kMergeNone) return false;
  }
  Bitmap::Row seen[Bitmap::kMaxParts] = {};
  for (size_t i = 0; i < size_t{bitmap.count} * 256 * bitmap.parts; ++i) {
    for (size_t half = 0; half < 2; ++half) seen[i % bitmap.parts].rules[half] |= bitmap.rows()[i].rules[half];
  }
  for (uint32_t i = 0; i < 2 * Bitmap::kMaxParts; ++i) {
    const uint64_t there = n >= 64 * (i + 1) ? ~uint64_t{0} : n <= 64 * i ? 0 : (uint64_t{1} << (n - 64 * i)) - 1;
    if ((seen[i / 2].rules[i % 2] & ~there) != 0) return false;
  }
  return true;
}

}  // namespace

Result<TupleMergeView> TupleMergeView::open(const Image& image) {
  auto section = acl_section(image, SectionTag::kAclLookup, TupleMergeAcl::kSectionName);
  if (!section) return std::move(section).error();
  auto rules = AclRulesView::open(image);
  if (!rules) return std::move(rules).error();
  auto broken = [](const char* what) {
    return Error(std::string("ACL image: tuple_merge: ") + what, "make the image again with `sluice compile`");
  };
  const auto* header = section_array<Header>(*section, 0, 1);
  if (header == nullptr || header->narrow_tables > Header::kMaxTables || header->wide_tables > Header::kMaxTables ||
      header->narrow_loose > Header::kMaxLoose || header->wide_loose > Header::kMaxLoose) {
    return broken("the header is damaged");
  }
  TupleMergeView view;
  if (rules->size() > 0) view.rules_ = &rules->rule(1);
  view.narrow_ = static_cast<uint16_t>(header->narrow_tables);
  view.wide_ = static_cast<uint16_t>(header->wide_tables);
  view.narrow_loose_ = static_cast<uint16_t>(header->narrow_loose);
  view.wide_loose_ = static_cast<uint16_t>(header->wide_loose);
  view.tables_ = section_array<TupleMergeTable>(*section, header->tables_offset, uint64_t{view.narrow_} + view.wide_);
  view.slots_ = section_array<uint32_t>(*section, header->slots_offset, header->slot_count);
  view.blocks4_ = section_array<TupleMergeBlock4>(*section, header->narrow_offset, header->narrow_blocks);
  view.blocks6_ = section_array<TupleMergeBlock6>(*section, header->wide_offset, header->wide_blocks);
  view.loose_ =
      section_array<TupleMergeLoose>(*section, header->loose_offset, uint64_t{view.narrow_loose_} + view.wide_loose_);
  if (view.tables_ == nullptr || view.slots_ == nullptr || view.blocks4_ == nullptr || view.blocks6_ == nullptr ||
      view.loose_ == nullptr) {
    return broken("an array lies outside the section");
  }
  // The tables have no more slots together than there are, so the checks end.
  const bool trusted = image.checked(SectionTag::kAclLookup);
  uint64_t slots_of_tables = 0;
  for (uint32_t i = 0; i < view.narrow_ + view.wide_; ++i) {
    const TupleMergeTable& t = view.tables_[i];
    if (t.slot_shift < 1 || t.slot_shift > 32) return broken("a table's size is damaged");
    const uint64_t slot_begin = t.slot_base, slot_end = slot_begin + (uint64_t{1} << (32 - t.slot_shift));
    slots_of_tables += slot_end - slot_begin;
    if (slot_end > header->slot_count || slots_of_tables > header->slot_count)
      return broken("a table lies outside the section");
    if (trusted) continue;
    const uint32_t limit = i < view.narrow_ ? header->narrow_blocks : header->wide_blocks;
    uint32_t most = 0;
    for (uint64_t s = slot_begin; s < slot_end; ++s) most = std::max(most, view.slots_[s] >> 8);
    if (most > limit) return broken("a slot points past the blocks");
  }
  // A scan ends at a block without kMergeMore; with the last block so, every scan ends inside the array.
  auto word_ok = [&](uint32_t word, bool last) {
    const uint32_t rule = word & kMergeNone;
    if (!last && (word & kMergeMore) != 0) return false;
    return rule == kMergeNone ? (word & kMergeFull) == 0 : rule >= 1 && rule <= rules->size();
  };
  auto blocks_ok = [&](const auto* blocks, uint32_t count, uint8_t most_free) {
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t lane = 0; lane < kMergeLanes; ++lane) {
        if (!word_ok(blocks[i].rule[lane], lane + 1 == kMergeLanes)) return false;
      }
      const auto* free = reinterpret_cast<const uint8_t*>(&blocks[i].free);
      for (size_t f = 0; f < sizeof(blocks[i].free); ++f) {
        if (free[f] > most_free) return false;
      }
    }
    return count == 0 || (blocks[count - 1].rule[kMergeLanes - 1] & kMergeMore) == 0;
  };
  if (!trusted &&
      (!blocks_ok(view.blocks4_, header->narrow_blocks, 32) || !blocks_ok(view.blocks6_, header->wide_blocks, 64)))
    return broken("a block is out of range");
  for (uint32_t i = 0; !trusted && i < view.narrow_loose_ + view.wide_loose_; ++i) {
    if (!word_ok(view.loose_[i].rule, false)) return broken("a residual rule is out of range");
  }
  if (header->bitmap_offset != 0) {
    const auto* const bitmap = section_array<TupleMergeBitmap>(*section, header->bitmap_offset, 1);
    view.bitmap_parts_ = bitmap != nullptr && &view.bitmap() == bitmap &&
                                 (bitmap->parts == 1 || bitmap->parts == TupleMergeBitmap::kMaxParts)
                             ? static_cast<uint8_t>(bitmap->parts)
                             : uint8_t{0};
    if (view.bitmap_parts_ == 0 || (!trusted && !bitmap_ok(*section, *header, *bitmap, rules->size())))
      return broken("the bitmap filter of the residual rules is damaged");
  }
  image.note_checked(SectionTag::kAclLookup);
  return view;
}

TupleMergeView::Shape TupleMergeView::shape() const {
  Shape shape{narrow_, wide_, 0, 0, narrow_loose_, wide_loose_, 0};
  auto visit = [&](const TupleMergeTable& t, const auto* blocks, uint32_t& count) {
    for (uint64_t s = 0; s < uint64_t{1} << (32 - t.slot_shift); ++s) {
      const uint32_t block = slots_[t.slot_base + s] >> 8;
      if (block == 0) continue;
      uint32_t run = 1;
      while ((blocks[block - 1 + run - 1].rule[kMergeLanes - 1] & kMergeMore) != 0) ++run;
      shape.longest_bucket = std::max(shape.longest_bucket, run);
      count = std::max(count, block - 1 + run);
    }
  };
  for (uint32_t i = 0; i < narrow_; ++i) visit(tables_[i], blocks4_, shape.narrow_blocks);
  for (uint32_t i = 0; i < wide_; ++i) visit(tables_[narrow_ + i], blocks6_, shape.wide_blocks);
  return shape;
}

namespace {

// The keys keys[which[0..n)] as columns; the lanes after them are not real.
template <bool kWide>
void fill(TupleMergeKernels::Lanes& lanes, const FlowKey* const* keys, const uint8_t* which, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const FlowKey& k = *keys[which[i]];
    lanes.key[i] = &k;
    if constexpr (kWide) {
      const auto p = TupleMergeView::probe_of<true>(k);
      for (size_t w = 0; w < 8; ++w) lanes.word[w][i] = p.word[w];
    } else {
      lanes.pair[i] = k.dst_lo << 32 | static_cast<uint32_t>(k.src_lo);
    }
    lanes.ports[i] = merge_ports(k);
    lanes.fields[i] = merge_fields(k, kWide);
  }
  for (size_t i = n; i < 32; ++i) {
    if constexpr (kWide) {
      for (auto& word : lanes.word) word[i] = 0;
    }
    lanes.key[i] = lanes.key[0];
    lanes.pair[i] = lanes.ports[i] = lanes.fields[i] = 0;
  }
  // What follows from the columns, all lanes at once: loops that a compiler makes vectors of.
  for (size_t i = 0; i < 32; ++i) {
    if constexpr (!kWide) {
      lanes.word[3][i] = static_cast<uint32_t>(lanes.pair[i]);
      lanes.word[7][i] = static_cast<uint32_t>(lanes.pair[i] >> 32);
    }
    lanes.protocol[i] = (lanes.fields[i] >> 16 & 255) * kTupleProtocolFactor;
    lanes.best[i] = kMergeNone;
  }
  for (size_t i = n; i < 32; ++i) lanes.best[i] = 0;
}

}  // namespace

// The loose rules, then table by table: a probe for all lanes that the table may still improve, then the candidates,
// each verified whole. Nothing branches on a packet but the length of a bucket, and no candidate waits for another, so
// the processor overlaps their cache misses by itself: prefetches, and probes of several tables ahead, cost more than
// they hide.
template <bool kWide, typename Lanes>
void TupleMergeView::search(AclIsa isa, Lanes& lanes, size_t n) const {
  using K = TupleMergeKernels;
  const K& kernels = K::of(isa, kWide);
  K::Candidates candidates;
  if (!kWide && bitmap_parts_ != 0) {
    kernels.bitmap(*this, lanes, n);
  } else if ((kWide ? wide_loose_ : narrow_loose_) > 0) {
    kernels.loose(*this, lanes, n);
  }
  const TupleMergeTable* const tables = tables_ + (kWide ? narrow_ : 0);
  const uint32_t count = kWide ? wide_ : narrow_;
  for (uint32_t i = 0; i < count; ++i) {
    candidates.count = 0;
    kernels.probe(*this, lanes, n, tables[i], candidates);
    kernels.verify(*this, lanes, candidates);
  }
}

// Searches the keys keys[which[0..n)].
template <bool kWide>
void TupleMergeView::burst(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, const uint8_t* which,
                           size_t n) const {
  TupleMergeKernels::Lanes lanes;
  fill<kWide>(lanes, keys, which, n);
  search<kWide>(isa, lanes, n);
  for (size_t i = 0; i < n; ++i) rules[which[i]] = lanes.best[i] == kMergeNone ? 0 : lanes.best[i];
}

void TupleMergeView::lookup_columns_on(AclIsa isa, const KeyColumns& keys, uint32_t* rules, size_t n) const {
  SLUICE_ASSERT(isa_available(isa) && n <= 32);
  TupleMergeKernels::Lanes lanes;
  if (keys.family == 6) {
    TupleMergeKernels::of(isa, true).fill_columns(lanes, keys, n);
    search<true>(isa, lanes, n);
  } else {
    TupleMergeKernels::of(isa, false).fill_columns(lanes, keys, n);
    search<false>(isa, lanes, n);
  }
  for (size_t i = 0; i < n; ++i) rules[i] = lanes.best[i] == kMergeNone ? 0 : lanes.best[i];
}

bool TupleMergeView::lookup_burst_on(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, size_t n) const {
  bool all_narrow = true;
  SLUICE_ASSERT(isa_available(isa));
  static constexpr uint8_t kAll[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                       16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
  for (size_t begin = 0; begin < n; begin += 32) {
    const size_t count = std::min<size_t>(32, n - begin);
    // The first key says of most bursts whether it is worth a try.
    const auto fill_fast = TupleMergeKernels::of(isa, false).fill;
    if (fill_fast != nullptr && keys[begin]->family == 4) {
      TupleMergeKernels::Lanes lanes;
      if (fill_fast(lanes, keys + begin, count)) [[likely]] {
        search<false>(isa, lanes, count);
        for (size_t i = 0; i < count; ++i) rules[begin + i] = lanes.best[i] == kMergeNone ? 0 : lanes.best[i];
        continue;
      }
    }
    uint32_t narrow_mask = 0;
    for (size_t i = 0; i < count; ++i) {
      prefetch_read(keys[begin + i]);  // a key may begin in the line before its family's
      narrow_mask |= uint32_t{keys[begin + i]->family == 4} << i;
    }
    if (static_cast<size_t>(std::popcount(narrow_mask)) == count) {
      burst<false>(isa, keys + begin, rules + begin, kAll, count);
      continue;
    }
    all_narrow = false;
    uint8_t narrow[32], wide[32];
    size_t narrow_count = 0, wide_count = 0;
    for (uint8_t i = 0; i < count; ++i) {
      (narrow_mask >> i & 1) != 0 ? narrow[narrow_count++] = i : wide[wide_count++] = i;
    }
    if (narrow_count > 0) burst<false>(isa, keys + begin, rules + begin, narrow, narrow_count);
    burst<true>(isa, keys + begin, rules + begin, wide, wide_count);
  }
  return all_narrow;
}

bool TupleMergeView::lookup_burst(const FlowKey* const* keys, uint32_t* rules, size_t n) const {
#if defined(SLUICE_SANITIZED_THREADS)
  // The thread sanitizer takes the slots that a gather reads for unordered; those that one lane loads it can follow.
  return lookup_burst_on(AclIsa::kScalar, keys, rules, n);
#else
  return lookup_burst_on(acl_widest_isa(), keys, rules, n);
#endif
}
void TupleMergeView::lookup_columns(const KeyColumns& keys, uint32_t* rules, size_t n) const {
#if defined(SLUICE_SANITIZED_THREADS)
  lookup_columns_on(AclIsa::kScalar, keys, rules, n);
#else
  lookup_columns_on(acl_widest_isa(), keys, rules, n);
#endif
}

}  // namespace sluice

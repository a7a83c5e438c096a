// Internal to patch.cpp: the tables, buckets and blocks of one kind of keys, as they change. Host only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/prefetch.h"
#include "memory/huge_vector.h"
#include "tables/acl/patch.h"
#include "tables/acl/patch_order.h"
#include "tables/acl/tuple_merge.h"
#include "tables/acl/tuple_merge_lanes.h"
#include "tables/acl/tuple_merge_layout.h"
#include "tables/acl/tuple_merge_rules.h"
#include "tables/replica.h"

namespace sluice::acl_patch {

using namespace tuple_merge_detail;

inline constexpr uint32_t kNoSlot = ~0u, kLooseSlot = ~0u - 1;
inline constexpr size_t kBucketLimit = 24;     // rules in a bucket while another table has room
inline constexpr uint32_t kNewTableBits = 10;  // a table that is made for a rule: 2^10 slots
inline constexpr size_t kMostWalked = 65536;   // words that a search for a table's best rule looks at
// What an image's layout has room for; PatchedAclRoom may ask for less.
inline constexpr size_t kMaxTables = PatchedAclRoom{}.tables;
inline constexpr size_t kMostBlocks = (size_t{1} << 24) - 2;  // a slot's and a place's number of one has 24 bits
template <bool kWide>
inline constexpr size_t kMostLoose = kWide ? PatchedAclRoom{}.loose6 : PatchedAclRoom{}.loose4;
static_assert(kMostLoose<false> <= TupleMergeBitmap::kRules, "a bitmap of one part holds them");
static_assert(kMaxTables <= 256 && kMaxTables <= Header::kMaxTables, "a place's number of a table has 8 bits");
inline constexpr size_t kLooseRoom = kMostLoose<false> + kMostLoose<true>;
inline constexpr size_t kBitmapRoom = TupleMergeBitmap::bytes_for(16, 1);

// A lane of a long bucket without a rule: its word is before all others, and no key has these fields (a DSCP or a
// family of 255).
inline constexpr uint32_t kNobody = 1, kNever = 0xff000000u;

constexpr size_t round_up(size_t v, size_t to = 64) {
  return (v + to - 1) / to * to;
}

// The tuple that a table hashes.
inline Tuple tuple_of_table(const TupleMergeTable& t) {
  Tuple out;
  for (unsigned w = 0; w < 4; ++w) {
    out.src = static_cast<uint8_t>(out.src + std::popcount(t.src_mask[w]));
    out.dst = static_cast<uint8_t>(out.dst + std::popcount(t.dst_mask[w]));
  }
  if ((t.port_mask & 0xffffu) != 0) out.fields |= Tuple::kSrcPort;
  if (t.port_mask >> 16 != 0) out.fields |= Tuple::kDstPort;
  if (t.protocol_mask != 0) out.fields |= Tuple::kProtocol;
  return out;
}

// What the tables of both kinds of keys need of the image.
struct Common {
  ImageReplicas image;
  const AclMatchRule* rules = nullptr;  // word w at w - 1
  Header* header = nullptr;
  std::byte* lookup = nullptr;  // the section
  uint32_t* slots = nullptr;
  uint32_t slot_end = 0, slot_room = 0;
  size_t misplaced = 0;
};

// The tables, buckets and blocks of one kind of keys. Blocks of a short bucket may hold rules of other buckets of its
// table, as the builder has them; a bucket with more than eight rules has a run of blocks of its own ("chain"), in
// order, with lanes that are free between them.
template <bool kWide>
class PatchedTables {
 public:
  using Block = std::conditional_t<kWide, TupleMergeBlock6, TupleMergeBlock4>;
  static constexpr uint8_t kBits = kWide ? 128 : 32;

  void attach(Common& common, uint64_t blocks_offset, size_t block_room, uint32_t last_word,
              const PatchedAclRoom& room) {
    SLUICE_CHECK(block_room <= kMostBlocks);
    common_ = &common;
    most_tables_ = std::min(room.tables, kMaxTables);
    most_loose_ = std::min(kWide ? room.loose6 : room.loose4, kMostLoose<kWide>);
    blocks_ = reinterpret_cast<Block*>(common.lookup + blocks_offset);
    block_room_ = static_cast<uint32_t>(block_room);
    places_.resize(last_word + 1);
    meta_.resize(block_room);
  }

  uint32_t blocks() const { return block_end_; }
  // Whether a new image is large enough for `adds` rules more, about: each may make its bucket move or its chain grow,
  // and long chains grow by a fourth at a time.
  bool has_room(size_t adds) const {
    const size_t each = 2 + chain_length(std::min(longest_, kLongChain) * kMergeLanes + 1);
    return block_end_ + adds * each + 6 * (long_blocks_ + adds / kMergeLanes) <= block_room_;
  }
  const std::vector<uint32_t>& loose() const { return loose_; }
  bool holds(uint32_t word) const { return places_[word].slot != kNoSlot; }

  // Takes over what the builder made: its tables and which rule is where. False: no room.
  bool adopt(const TupleMergeView& view, std::span<const uint32_t> words) {
    const auto shape = view.shape();
    const uint32_t count = kWide ? shape.wide_tables : shape.narrow_tables;
    for (uint32_t i = 0; i < count; ++i) {
      const TupleMergeTable& from = view.table(kWide, i);
      if (!add_table(tuple_of_table(from), from.slot_shift)) return false;
    }
    std::vector<uint32_t> bucket;
    for (uint32_t i = 0; i < count; ++i) {
      const TupleMergeTable& from = view.table(kWide, i);
      for (uint64_t s = 0; s < uint64_t{1} << (32 - from.slot_shift); ++s) {
        bucket.clear();
        const auto slot = static_cast<uint32_t>(tables_[i].record.slot_base + s);
        // A block may hold rules of other buckets too.
        uint32_t block = TupleMergeKernels::slots(view)[from.slot_base + s] >> 8;
        for (bool more = block != 0; more; ++block) {
          const Block& b = TupleMergeKernels::blocks<kWide>(view)[block - 1];
          for (uint32_t at : b.rule) {
            if ((at & kMergeNone) == kMergeNone) continue;
            const uint32_t word = words[(at & kMergeNone) - 1];
            if (slot_of(tables_[i], hash(tables_[i], rule(word))) == slot) bucket.push_back(word);
          }
          more = (b.rule[kMergeLanes - 1] & kMergeMore) != 0;
        }
        if (bucket.empty()) continue;
        BucketTag tag;
        for (uint32_t word : bucket) tag.add(hash(tables_[i], rule(word)));
        if (!place_bucket(i, slot, bucket, tag.value())) return false;
        tables_[i].rules += static_cast<uint32_t>(bucket.size());
        for (uint32_t word : bucket) tables_[i].record.best = std::min(tables_[i].record.best, word);
      }
    }
    const TupleMergeLoose* const loose = TupleMergeKernels::loose_begin(view, kWide);
    // Those past the limit are the caller's to insert.
    for (uint32_t i = 0; i < TupleMergeKernels::loose_count(view, kWide) && i < most_loose_; ++i) {
      loose_.push_back(words[(loose[i].rule & kMergeNone) - 1]);
      places_[loose_.back()].slot = kLooseSlot;
    }
    std::sort(loose_.begin(), loose_.end());
    rank_tables();
    return true;
  }

  // Asks for what erase() will read: first where the rule is, some time later what is there.
  void expect_erase(uint32_t word) { prefetch_write(&places_[word]); }
  void expect_erase_there(uint32_t word) {
    const Place& place = places_[word];
    if (place.slot >= kLooseSlot) return;
    prefetch_write(&common_->slots[place.slot]);
    prefetch_write(&meta_[place.block]);
    prefetch_write(blocks_[place.block].fields);
    prefetch_read(blocks_[place.block].rule);
  }
  // The same of insert(): the slot of the first table that covers the rule, which is returned, then its block.
  uint32_t expect_insert(const AclMatchRule& rule, uint32_t word) const {
    const Tuple tuple = tuple_detail::tuple_of(rule, kBits);
    for (uint32_t t : ranked_) {
      if (!tables_[t].tuple.covers(tuple) || tables_[t].record.best > word) continue;
      const uint32_t slot = slot_of(tables_[t], hash(tables_[t], rule));
      prefetch_write(&common_->slots[slot]);
      return slot;
    }
    return kNoSlot;
  }
  void expect_insert_there(uint32_t slot) {
    if (slot == kNoSlot || common_->slots[slot] == 0) return;
    const uint32_t block = block_of(slot);
    prefetch_write(&meta_[block]);
    for (size_t at = 0; at < sizeof(Block); at += LineSet::kLine)
      prefetch_write(reinterpret_cast<std::byte*>(&blocks_[block]) + at);
  }

  // Precondition: rule(word) is written. False: no room; the rule is nowhere, all others are where they were.
  bool insert(uint32_t word) {
    const AclMatchRule& r = rule(word);
    const Tuple tuple = tuple_detail::tuple_of(r, kBits);
    const Item item = item_of<kWide>(r);
    uint32_t best = kNoSlot, best_hash = 0, best_word = kNoSlot, fresh = kNoSlot;
    size_t fewest = ~size_t{0};
    // A table that has room and a better rule already: a packet that finds one as good leaves the tables behind it
    // alone, so a rule that becomes the first of its table costs nearly all packets a probe. Else the table that comes
    // first anyway; else, without room anywhere, the shortest bucket.
    for (uint32_t t : ranked_) {
      const Table& table = tables_[t];
      if (!table.tuple.covers(tuple) || (fewest < kBucketLimit && table.record.best >= best_word)) continue;
      const uint32_t h = hash_of<kWide>(table.record, item);
      const size_t n = bucket_size(slot_of(table, h));
      if (n >= kBucketLimit && n >= fewest) continue;
      fewest = n;
      best = t;
      best_hash = h;
      best_word = table.record.best;
      if (n < kBucketLimit && best_word <= word) break;
    }
    if (fewest >= kBucketLimit) {
      if (loose_.size() < most_loose_) {
        loose_.insert(std::lower_bound(loose_.begin(), loose_.end(), word), word);
        places_[word].slot = kLooseSlot;
        loose_changed_ = true;
        return true;
      }
      fresh = make_table(tuple);
      if (fresh != kNoSlot) {
        best = fresh;
        best_hash = hash(tables_[fresh], r);
      }
    }
    if (best == kNoSlot) return false;
    const bool past = fewest >= kBucketLimit;
    if (!add_to_bucket(best, slot_of(tables_[best], best_hash), word, merge_tag(best_hash))) return false;
    common_->misplaced += past;
    count_in(tables_[best], word);
    // Not before: what they take may be the last that there is.
    if (fresh != kNoSlot) take_loose(fresh);
    return true;
  }

  void erase(uint32_t word) {
    Place& place = places_[word];
    if (place.slot == kNoSlot) return;
    if (place.slot == kLooseSlot) {
      loose_.erase(std::lower_bound(loose_.begin(), loose_.end(), word));
      loose_changed_ = true;
    } else {
      Table& table = tables_[place.table];
      --table.rules;
      table.best_gone |= table.record.best == word;
      tables_changed_ = true;
      meta_[place.block].chain ? erase_from_chain(place, word) : erase_from_block(place, word);
    }
    place = Place{};
  }

  // The rule's word is another now; the order among rules is what it was.
  void rename(uint32_t from, uint32_t to) {
    places_[to] = places_[from];
    places_[from] = Place{};
    const Place& place = places_[to];
    if (place.slot == kNoSlot) return;
    if (place.slot == kLooseSlot) {
      *std::find(loose_.begin(), loose_.end(), from) = to;
      loose_changed_ = true;
      return;
    }
    Block& block = blocks_[place.block];
    const BlockMeta& meta = meta_[place.block];
    const size_t lane = lane_of(place.block, from);
    block.rule[lane] = (block.rule[lane] & ~kMergeNone) | to;
    // Words that rules have left behind are not past those of rules that follow.
    for (size_t i = 0; i < lane; ++i) {
      if (!meta.chain && meta.slot[i] == kNoSlot && (block.rule[i] & kMergeNone) > to) forget_word(block, i);
    }
    mark(block.rule);
    Table& table = tables_[place.table];
    // A lower bound stays one.
    if (table.record.best == from || to < table.record.best) {
      table.record.best = to;
      tables_changed_ = true;
    }
  }

  // Brings the tables' best rules up to date. `order` has the words in use.
  void settle(const RuleOrder& order) {
    for (uint32_t t = 0; t < tables_.size(); ++t) {
      Table& table = tables_[t];
      if (!table.best_gone) continue;
      table.best_gone = false;
      if (table.rules == 0) {
        table.record.best = kMergeNone;
        continue;
      }
      uint32_t word = table.record.best;
      for (size_t n = 0; n < kMostWalked; ++n) {
        word = order.next(word);
        SLUICE_CHECK(word <= order.last());  // the table has a rule
        const Place& place = places_[word];
        if (place.slot < kLooseSlot && place.table == t) break;
        ++word;
      }
      table.record.best = word;
    }
  }
  bool take_tables_changed() { return std::exchange(tables_changed_, false); }
  bool take_loose_changed() { return std::exchange(loose_changed_, false); }
  // In the order of a search.
  std::vector<TupleMergeTable> records() const {
    std::vector<TupleMergeTable> out;
    for (const Table& t : tables_) {
      out.push_back(t.record);
      out.back().entries = t.rules;
    }
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.best < b.best; });
    return out;
  }
  size_t tables() const { return tables_.size(); }

 private:
  struct Place {
    uint32_t slot = kNoSlot;  // or kLooseSlot
    uint32_t block : 24 = 0;
    uint32_t table : 8 = 0;
  };
  struct Table {
    Tuple tuple;
    TupleMergeTable record;
    uint32_t rules = 0;
    bool best_gone = false;
    std::vector<uint32_t> open[kMergeLanes];  // [n - 1]: blocks that had n vacant lanes, those with BlockMeta::listed
  };
  // A lane of a block that no chain has may be vacant: it has fields that no key has, and the word of the rule that was
  // there, which is not past those of rules behind it, or kMergeNone where there are none. So a rule that goes costs
  // one line of the block.
  struct BlockMeta {
    uint32_t slot[kMergeLanes] = {kNoSlot, kNoSlot, kNoSlot, kNoSlot,
                                  kNoSlot, kNoSlot, kNoSlot, kNoSlot};  // whose rule each lane is; kNoSlot: vacant
    uint8_t live = 0;
    bool chain = false;
    uint8_t listed = 0;  // bit n - 1: it is in its table's list of blocks with n vacant lanes
    uint8_t table = 0;
  };
  struct Chain {
    uint32_t first, length;  // blocks
    uint32_t live;           // rules
  };

  static constexpr uint32_t kLongChain = 64;  // blocks
  // Lanes to the next free one from which on a chain is spread anew: about as dear as the shifts until then.
  static constexpr size_t kFarLane = 512;

  const AclMatchRule& rule(uint32_t word) const { return common_->rules[word - 1]; }
  static uint32_t hash(const Table& t, const AclMatchRule& r) { return hash_of<kWide>(t.record, item_of<kWide>(r)); }
  static uint32_t slot_of(const Table& t, uint32_t h) {
    return static_cast<uint32_t>(t.record.slot_base + (uint64_t{h} >> t.record.slot_shift));
  }
  template <typename T>
  void mark(const T& what) {
    common_->image.mark(&what, sizeof what);
  }
  void set_slot(uint32_t slot, uint32_t block, uint32_t tag) {
    uint32_t& word = common_->slots[slot];
    word = block == kNoSlot ? 0 : slot_word(block, tag);
    mark(word);
  }
  uint32_t block_of(uint32_t slot) const { return (common_->slots[slot] >> 8) - 1; }
  uint32_t tag_of(uint32_t slot) const { return common_->slots[slot] & 255; }

  void count_in(Table& table, uint32_t word) {
    ++table.rules;
    if (word < table.record.best) {
      table.record.best = word;
      table.best_gone = false;
    }
    tables_changed_ = true;
  }

  // Most useful first: where a rule is looked for a place.
  void rank_tables() {
    ranked_.resize(tables_.size());
    for (uint32_t t = 0; t < ranked_.size(); ++t) ranked_[t] = t;
    std::stable_sort(ranked_.begin(), ranked_.end(),
                     [&](uint32_t a, uint32_t b) { return tables_[a].rules > tables_[b].rules; });
  }

  bool add_table(const Tuple& tuple, uint8_t slot_shift) {
    const uint64_t slots = uint64_t{1} << (32 - slot_shift);
    if (tables_.size() == kMaxTables || common_->slot_end + slots > common_->slot_room) return false;
    Table table;
    table.tuple = tuple;
    table.record = table_of<kWide>(tuple);
    table.record.slot_base = common_->slot_end;
    table.record.slot_shift = slot_shift;
    table.record.best = kMergeNone;
    common_->slot_end += static_cast<uint32_t>(slots);
    tables_.push_back(std::move(table));
    ranked_.push_back(static_cast<uint32_t>(tables_.size() - 1));
    tables_changed_ = true;
    return true;
  }
  // A table for rules like one of `tuple`. kNoSlot: there is one like it already, or no room.
  uint32_t make_table(Tuple tuple) {
    const unsigned step = kWide ? 16 : 4;
    // The last one takes every rule; a slot is kept for it.
    const size_t slots = size_t{1} << kNewTableBits;
    if (tables_.size() + 1 >= most_tables_ || common_->slot_end + slots + 2 > common_->slot_room) tuple = Tuple{};
    tuple.src = static_cast<uint8_t>(tuple.src / step * step);
    tuple.dst = static_cast<uint8_t>(tuple.dst / step * step);
    for (const Table& t : tables_) {
      if (t.tuple.id() == tuple.id()) return kNoSlot;
    }
    if (!add_table(tuple, static_cast<uint8_t>(tuple.id() == 0 ? 32 : 32 - kNewTableBits))) return kNoSlot;
    return static_cast<uint32_t>(tables_.size() - 1);
  }
  // The loose rules that table `t` covers go there, as far as there is room.
  void take_loose(uint32_t t) {
    const Tuple tuple = tables_[t].tuple;
    const std::vector<uint32_t> loose = loose_;
    for (uint32_t word : loose) {
      if (!tuple.covers(tuple_detail::tuple_of(rule(word), kBits))) continue;
      const uint32_t h = hash(tables_[t], rule(word));
      const uint32_t slot = slot_of(tables_[t], h);
      if (bucket_size(slot) >= kBucketLimit) continue;
      if (!add_to_bucket(t, slot, word, merge_tag(h))) break;
      loose_.erase(std::lower_bound(loose_.begin(), loose_.end(), word));
      loose_changed_ = true;
      count_in(tables_[t], word);
      ++common_->misplaced;
    }
  }

  // --- blocks ---

  uint32_t take_run(uint32_t length) {
    if (length < runs_.size() && !runs_[length].empty()) {
      const uint32_t run = runs_[length].back();
      runs_[length].pop_back();
      return run;
    }
    if (block_end_ + length <= block_room_) {
      block_end_ += length;
      return block_end_ - length;
    }
    for (size_t longer = length + 1; longer < runs_.size(); ++longer) {
      if (runs_[longer].empty()) continue;
      const uint32_t run = runs_[longer].back();
      runs_[longer].pop_back();
      give_run(run + length, static_cast<uint32_t>(longer - length));
      return run;
    }
    return kNoSlot;
  }
  void give_run(uint32_t run, uint32_t length) {
    if (length >= runs_.size()) runs_.resize(length + 1);
    runs_[length].push_back(run);
  }

  // Writes and marks what is not so already: of a block's lines, those that change are what it costs a reader.
  template <typename T>
  void put(T& to, T value) {
    if (to == value) return;
    to = value;
    mark(to);
  }
  void put_address(TupleMergeBlock4& to, size_t i, const TupleMergeBlock4& from, size_t k) {
    for (size_t end = 0; end < 2; ++end) {
      put(to.address[2 * i + end], from.address[2 * k + end]);
      put(to.free[2 * i + end], from.free[2 * k + end]);
    }
  }
  void put_address(TupleMergeBlock6& to, size_t i, const TupleMergeBlock6& from, size_t k) {
    for (size_t h = 0; h < 4; ++h) {
      put(to.address[h][i], from.address[h][k]);
      put(to.free[h][i], from.free[h][k]);
    }
  }
  void move_lane(Block& to, size_t i, const Block& from, size_t k) {
    put_address(to, i, from, k);
    put(to.fields[i], from.fields[k]);
    put(to.fields_mask[i], from.fields_mask[k]);
    put(to.ports_low[i], from.ports_low[k]);
    put(to.ports_span[i], from.ports_span[k]);
    put(to.rule[i], (to.rule[i] & kMergeMore) | (from.rule[k] & ~kMergeMore));
  }
  void write_rule(Block& to, size_t i, uint32_t word) {
    Block lane;
    write_merge_lane(lane, 0, rule(word));
    move_lane(to, i, lane, 0);
  }
  void vacate(Block& b, size_t i) {
    put(b.fields[i], kNever);
    put(b.fields_mask[i], kNever);
  }
  void forget_word(Block& b, size_t i) { put(b.rule[i], (b.rule[i] & kMergeMore) | kNobody); }
  size_t lane_of(uint32_t block, uint32_t word) const {
    const Block& b = blocks_[block];
    const BlockMeta& meta = meta_[block];
    size_t i = 0;
    while (i < kMergeLanes && ((b.rule[i] & kMergeNone) != word || (meta.slot[i] == kNoSlot && !meta.chain))) ++i;
    SLUICE_CHECK(i < kMergeLanes);
    return i;
  }

  size_t bucket_size(uint32_t slot) const {
    if (common_->slots[slot] == 0) return 0;
    const BlockMeta& meta = meta_[block_of(slot)];
    if (meta.chain) return chains_.at(slot).live;
    return static_cast<size_t>(std::count(meta.slot, meta.slot + kMergeLanes, slot));
  }

  // A block is in the list of those with as many vacant lanes as it has, and in some where it was before.
  void list_block(uint32_t t, uint32_t block) {
    BlockMeta& meta = meta_[block];
    if (meta.live == kMergeLanes) return;
    const size_t at = kMergeLanes - meta.live - size_t{1};
    if ((meta.listed >> at & 1) != 0) return;
    meta.listed |= static_cast<uint8_t>(1u << at);
    tables_[t].open[at].push_back(block);
  }
  // A block of table `t` with `n` vacant lanes, with few more if there is one; kNoSlot: no room.
  uint32_t find_block(uint32_t t, size_t n) {
    for (size_t at = n - 1; at < kMergeLanes; ++at) {
      for (auto& open = tables_[t].open[at]; !open.empty(); open.pop_back()) {
        BlockMeta& meta = meta_[open.back()];
        if (kMergeLanes - meta.live == at + 1) return open.back();
        meta.listed &= static_cast<uint8_t>(~(1u << at));
      }
    }
    const uint32_t block = take_run(1);
    if (block == kNoSlot) return block;
    SLUICE_CHECK(meta_[block].live == 0 && meta_[block].listed == 0);
    meta_[block].chain = false;
    meta_[block].table = static_cast<uint8_t>(t);
    Block& b = blocks_[block];
    for (size_t i = 0; i < kMergeLanes; ++i) {
      put(b.rule[i], kMergeNone);
      vacate(b, i);
    }
    return block;
  }

  // Adds a rule to a block that has a vacant lane.
  void add_lane(uint32_t t, uint32_t block, uint32_t slot, uint32_t word) {
    Block& b = blocks_[block];
    BlockMeta& meta = meta_[block];
    const auto vacant = [&](size_t i) { return meta.slot[i] == kNoSlot; };
    size_t at = 0;  // behind the last rule before the word
    for (size_t i = 0; i < kMergeLanes; ++i) {
      if (!vacant(i) && (b.rule[i] & kMergeNone) < word) at = i + 1;
    }
    if (at == kMergeLanes || !vacant(at)) {
      // Rules give way to the nearest vacant lane.
      size_t right = at, left = at;
      while (right < kMergeLanes && !vacant(right)) ++right;
      while (left > 0 && !vacant(left - 1)) --left;
      const auto shift = [&](size_t to, size_t from) {
        move_lane(b, to, b, from);
        meta.slot[to] = meta.slot[from];
      };
      if (right < kMergeLanes && (left == 0 || right - at <= at - left)) {
        for (size_t i = right; i > at; --i) shift(i, i - 1);
      } else {
        SLUICE_CHECK(left > 0);
        for (size_t i = left - 1; i + 1 < at; ++i) shift(i, i + 1);
        --at;
      }
    }
    write_rule(b, at, word);
    meta.slot[at] = slot;
    ++meta.live;
    places_[word] = {slot, block, t};
    list_block(t, block);
  }
  void remove_lane(uint32_t t, uint32_t block, uint32_t word) {
    const size_t lane = lane_of(block, word);
    BlockMeta& meta = meta_[block];
    vacate(blocks_[block], lane);
    meta.slot[lane] = kNoSlot;
    --meta.live;
    list_block(t, block);
  }

  // Puts all rules of a bucket that has no blocks yet. False: no room; nothing has changed.
  bool place_bucket(uint32_t t, uint32_t slot, std::vector<uint32_t>& words, uint32_t tag) {
    std::sort(words.begin(), words.end());
    if (words.size() > kMergeLanes) return make_chain(t, slot, words, tag);
    const uint32_t block = find_block(t, words.size());
    if (block == kNoSlot) return false;
    for (uint32_t word : words) add_lane(t, block, slot, word);
    set_slot(slot, block, tag);
    return true;
  }

  bool add_to_bucket(uint32_t t, uint32_t slot, uint32_t word, uint32_t tag) {
    if (common_->slots[slot] == 0) {
      const uint32_t block = find_block(t, 1);
      if (block == kNoSlot) return false;
      add_lane(t, block, slot, word);
      set_slot(slot, block, tag);
      return true;
    }
    const uint32_t block = block_of(slot), both = tag_of(slot) == tag ? tag : 0;
    BlockMeta& meta = meta_[block];
    if (meta.chain) {
      if (!add_to_chain(t, slot, word)) return false;
    } else if (meta.live < kMergeLanes) {
      add_lane(t, block, slot, word);
    } else {
      // The bucket moves: to a block with more room, or to a chain.
      std::vector<uint32_t> words{word};
      for (size_t i = 0; i < kMergeLanes; ++i) {
        if (meta.slot[i] == slot) words.push_back(blocks_[block].rule[i] & kMergeNone);
      }
      const std::vector<uint32_t> moved(words.begin() + 1, words.end());
      const std::vector<Place> before = [&] {
        std::vector<Place> out;
        for (uint32_t w : moved) out.push_back(places_[w]);
        return out;
      }();
      if (!place_bucket(t, slot, words, both)) return false;
      for (size_t i = 0; i < moved.size(); ++i) remove_lane(t, before[i].block, moved[i]);
      return true;
    }
    if (both != tag_of(slot)) set_slot(slot, block_of(slot), both);
    return true;
  }

  void erase_from_block(const Place& place, uint32_t word) {
    const uint32_t block = place.block, slot = place.slot;
    remove_lane(place.table, block, word);
    const BlockMeta& meta = meta_[block];
    uint32_t left = 0;
    size_t lane = 0;
    for (size_t i = 0; i < kMergeLanes; ++i) {
      if (meta.slot[i] == slot) ++left, lane = i;
    }
    if (left == 0) {
      set_slot(slot, kNoSlot, 0);
    } else if (left == 1 && tag_of(slot) == 0) {
      set_slot(slot, block, merge_tag(hash(tables_[place.table], rule(blocks_[block].rule[lane] & kMergeNone))));
    }
  }

  // --- chains ---

  uint32_t word_at(uint32_t first, size_t lane) const {
    return blocks_[first + lane / kMergeLanes].rule[lane % kMergeLanes] & kMergeNone;
  }
  // The blocks of a chain of `n` rules: a fourth more lanes when there are many. Lengths of long ones are rounded, so
  // that a chain that is made anew again and again finds the run that it had.
  static uint32_t chain_length(size_t n) {
    const size_t wanted = n <= 4 * kMergeLanes ? n : n + n / 4;
    const size_t length = (wanted + kMergeLanes - 1) / kMergeLanes;
    return static_cast<uint32_t>(length > kLongChain ? round_up(length, kLongChain / 2) : length);
  }
  // Rules of a chain in order, spread over its lanes. False: no room; nothing has changed.
  bool make_chain(uint32_t t, uint32_t slot, const std::vector<uint32_t>& words, uint32_t tag) {
    const size_t n = words.size();
    const uint32_t length = chain_length(n);
    const uint32_t run = take_run(length);
    if (run == kNoSlot) return false;
    const size_t lanes = size_t{length} * kMergeLanes;
    for (uint32_t k = 0; k < length; ++k) {
      Block& b = blocks_[run + k];
      for (size_t i = 0; i < kMergeLanes; ++i) {
        b.rule[i] = kNobody | (i + 1 == kMergeLanes && k + 1 < length ? kMergeMore : 0);
        b.fields[i] = b.fields_mask[i] = kNever;
      }
      BlockMeta& meta = meta_[run + k];
      meta.chain = true;
      meta.table = static_cast<uint8_t>(t);
      mark(b);
    }
    for (size_t i = 0; i < n; ++i) {
      const size_t lane = i * lanes / n;
      const auto block = static_cast<uint32_t>(run + lane / kMergeLanes);
      write_rule(blocks_[block], lane % kMergeLanes, words[i]);
      places_[words[i]] = {slot, block, t};
    }
    chains_[slot] = {run, length, static_cast<uint32_t>(n)};
    longest_ = std::max(longest_, length);
    if (length > kLongChain) long_blocks_ += length;
    set_slot(slot, run, tag);
    return true;
  }
  void drop_chain(const Chain& chain) {
    for (uint32_t k = 0; k < chain.length; ++k) {
      // What is free must not lead on: an image ends with the last block that was ever used.
      blocks_[chain.first + k].rule[kMergeLanes - 1] = kMergeNone;
      mark(blocks_[chain.first + k].rule);
      meta_[chain.first + k] = BlockMeta{};
    }
    give_run(chain.first, chain.length);
    if (chain.length > kLongChain) long_blocks_ -= chain.length;
  }
  std::vector<uint32_t> words_of(const Chain& chain) const {
    std::vector<uint32_t> words;
    words.reserve(chain.live + 1);
    for (size_t lane = 0; lane < size_t{chain.length} * kMergeLanes; ++lane) {
      if (const uint32_t word = word_at(chain.first, lane); word != kNobody) words.push_back(word);
    }
    return words;
  }

  bool add_to_chain(uint32_t t, uint32_t slot, uint32_t word) {
    Chain& chain = chains_.at(slot);
    const size_t lanes = size_t{chain.length} * kMergeLanes;
    // The first lane past the word: by blocks, then by lanes.
    uint32_t lo = 0, hi = chain.length;  // the first block whose rules may all be past it
    while (lo < hi) {
      const uint32_t mid = (lo + hi) / 2;
      uint32_t k = mid, first = kNobody;
      // A block without rules is as the next one that has some.
      for (; k < hi && first == kNobody; ++k) {
        for (size_t i = 0; i < kMergeLanes && first == kNobody; ++i) first = word_at(chain.first, k * kMergeLanes + i);
      }
      first != kNobody&& first < word ? lo = k : hi = mid;
    }
    size_t at = lo * kMergeLanes;
    while (at > 0 && (word_at(chain.first, at - 1) == kNobody || word_at(chain.first, at - 1) > word)) --at;
    // `at`: just past the last rule before the word.
    size_t right = at, left = at;
    while (right < lanes && word_at(chain.first, right) != kNobody) ++right;
    while (left > 0 && word_at(chain.first, left - 1) != kNobody) --left;
    const size_t to_the_right = right < lanes ? right - at : lanes, to_the_left = left > 0 ? at - left : lanes;
    const bool to_right = to_the_right <= to_the_left;
    if (std::min(to_the_right, to_the_left) >= std::min(lanes, kFarLane)) {
      std::vector<uint32_t> words = words_of(chain);
      words.insert(std::lower_bound(words.begin(), words.end(), word), word);
      const Chain old = chain;
      if (!make_chain(t, slot, words, tag_of(slot))) return false;
      drop_chain(old);
      return true;
    }
    auto shift = [&](size_t to, size_t from) {
      const auto block = static_cast<uint32_t>(chain.first + to / kMergeLanes);
      move_lane(blocks_[block], to % kMergeLanes, blocks_[chain.first + from / kMergeLanes], from % kMergeLanes);
      places_[word_at(chain.first, to)].block = block;
    };
    if (to_right) {
      for (size_t lane = right; lane > at; --lane) shift(lane, lane - 1);
    } else {
      for (size_t lane = left - 1; lane + 1 < at; ++lane) shift(lane, lane + 1);
      --at;
    }
    const auto block = static_cast<uint32_t>(chain.first + at / kMergeLanes);
    write_rule(blocks_[block], at % kMergeLanes, word);
    places_[word] = {slot, block, t};
    ++chain.live;
    return true;
  }

  void erase_from_chain(const Place& place, uint32_t word) {
    Block& b = blocks_[place.block];
    const size_t lane = lane_of(place.block, word);
    vacate(b, lane);
    forget_word(b, lane);
    const auto it = chains_.find(place.slot);
    const uint32_t live = --it->second.live;
    if (live > kMergeLanes / 2 && live * 2 > it->second.length * kMergeLanes) return;
    // Half empty: a shorter chain, or a short bucket again. Without room it stays as it is.
    const Chain old = it->second;
    if (live == 0) {
      set_slot(place.slot, kNoSlot, 0);
      chains_.erase(it);
      return drop_chain(old);
    }
    std::vector<uint32_t> words = words_of(old);
    if (!place_bucket(place.table, place.slot, words, tag_of(place.slot))) return;
    if (words.size() <= kMergeLanes) chains_.erase(place.slot);
    drop_chain(old);
  }

  Common* common_ = nullptr;
  Block* blocks_ = nullptr;
  size_t most_tables_ = kMaxTables, most_loose_ = kMostLoose<kWide>;
  uint32_t block_room_ = 0, block_end_ = 0;
  uint32_t longest_ = 0, long_blocks_ = 0;  // of chains; blocks in those past kLongChain
  std::vector<Table> tables_;
  std::vector<uint32_t> ranked_;
  HugeVector<Place> places_;  // by word
  HugeVector<BlockMeta> meta_;
  std::unordered_map<uint32_t, Chain> chains_;  // by slot
  std::vector<std::vector<uint32_t>> runs_;     // free ones by length
  std::vector<uint32_t> loose_;                 // words in order
  bool tables_changed_ = false, loose_changed_ = true;
};

}  // namespace sluice::acl_patch

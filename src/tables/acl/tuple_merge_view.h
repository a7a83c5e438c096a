// The view of tuple_merge's tables. What its searches do is in tuple_merge_lookup.h (one key), tuple_merge_team.h (one
// key by neighbours on a device) and tuple_merge.cpp (bursts).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/bits.h"
#include "base/hd.h"
#include "base/result.h"
#include "net/key_columns.h"
#include "tables/acl/rule_set.h"
#include "tables/acl/sections.h"
#include "tables/acl/tuple_merge_layout.h"
#include "tables/acl/tuple_space.h"
#include "tables/image.h"
#include "tables/target.h"

namespace sluice {

class TupleMergeView {
 public:
  TupleMergeView() = default;
  // Checks every offset, index and run. Errors: not an ACL image of `tuple_merge`, damaged.
  static Result<TupleMergeView> open(const Image& image);

  // 1-based position of the first matching rule, or 0.
  SLUICE_HD uint32_t lookup(const FlowKey& key, AclTally* tally = nullptr) const;
  // The same by a group of at most 32 lanes (base/group.h), all of which hold the same key: a lane a table and a row of
  // the bitmap, then a lane a rule of a block. For latency: what does not wait for another load is asked for together,
  // and all groups that run in step take the same way. A group without a key comes along with `here` false. IPv6: each
  // lane does what one alone would do.
  template <typename Group>
  SLUICE_HD uint32_t lookup_team(const FlowKey& key, const Group& group, bool here = true) const;
  // Host only: `n` (at most 32) keys at once, with the widest vectors that the processor has. Returns whether all are
  // of IPv4.
  bool lookup_burst(const FlowKey* const* keys, uint32_t* rules, size_t n) const;
  // The same on a chosen instruction set, for tests and benches. Precondition: isa_available(isa).
  bool lookup_burst_on(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, size_t n) const;
  // The same of keys [0, n), n at most 32, that stand in columns.
  void lookup_columns(const KeyColumns& keys, uint32_t* rules, size_t n) const;
  void lookup_columns_on(AclIsa isa, const KeyColumns& keys, uint32_t* rules, size_t n) const;
  static bool isa_available(AclIsa isa) { return acl_isa_available(isa); }

  // What `show` and benches print; longest_bucket in blocks.
  struct Shape {
    uint32_t narrow_tables, wide_tables;
    uint32_t narrow_blocks, wide_blocks;
    uint32_t narrow_loose, wide_loose;
    uint32_t longest_bucket;
  };
  Shape shape() const;
  // Of the bitmap; 0: there is none.
  uint32_t bitmap_parts() const { return bitmap_parts_; }
  // Table `i` of the narrow (IPv4) or wide ones, in search order.
  const TupleMergeTable& table(bool wide, uint32_t i) const { return tables_[wide ? narrow_ + i : i]; }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(tables_);
    f(slots_);
    f(blocks4_);
    f(blocks6_);
    f(loose_);
    f(rules_);
  }

  // What one key looks like to the search; built once a packet.
  struct Probe {
    uint32_t word[8];
    uint32_t ports, protocol, fields;
  };
  template <bool kWide>
  SLUICE_HD static Probe probe_of(const FlowKey& key);
  // The slot's block plus one, or 0 when the table has nothing for the key.
  template <bool kWide>
  SLUICE_HD uint32_t block_of(const TupleMergeTable& t, const Probe& p) const;
  // The best rule below `best` in the bucket that begins at `block`, or `best`.
  template <bool kWide>
  SLUICE_HD uint32_t scan(uint32_t block, const Probe& p, const FlowKey& key, uint32_t best,
                          AclTally* tally = nullptr) const;
  template <bool kWide>
  SLUICE_HD bool loose_matches(const TupleMergeLoose& l, const Probe& p, const FlowKey& key) const;
  // Precondition: there is one. It follows the loose rules at the next multiple of 64 bytes, which saves a pointer: a
  // view has to fit a stage.
  SLUICE_HD const TupleMergeBitmap& bitmap() const {
    const auto end = reinterpret_cast<uintptr_t>(loose_ + narrow_loose_ + wide_loose_);
    return *reinterpret_cast<const TupleMergeBitmap*>((end + 63) & ~uintptr_t{63});
  }
  // Whether it is looked at; else the rules are compared. One of four parts is for cores: its code would cost the lists
  // that were built for a device registers.
  SLUICE_HD bool uses_bitmap() const {
#if defined(__CUDA_ARCH__)
    return bitmap_parts_ == 1;
#else
    return bitmap_parts_ != 0;
#endif
  }
  // The best loose rule of an IPv4 key, or kMergeNone. Precondition: uses_bitmap().
  SLUICE_HD uint32_t loose_by_bitmap(const Probe& p, const FlowKey& key) const;
  SLUICE_HD static TupleMergeBitmap::Row both(const TupleMergeBitmap::Row& a, const TupleMergeBitmap::Row& b) {
    return {{a.rules[0] & b.rules[0], a.rules[1] & b.rules[1]}};
  }
  // Its lowest bit, or 127.
  SLUICE_HD static uint32_t first_bit(const TupleMergeBitmap::Row& row) {
    if (row.rules[0] != 0) return trailing_zeros64(row.rules[0]);
    return 64 + (row.rules[1] != 0 ? trailing_zeros64(row.rules[1]) : 63);
  }
  // What the rows of a key leave of a part; there are kParts.
  template <uint32_t kParts>
  SLUICE_HD TupleMergeBitmap::Row left_of(uint32_t part, const Probe& p) const;
  // The first of the rules that are left of a part.
  template <uint32_t kParts>
  SLUICE_HD uint32_t first_of(TupleMergeBitmap::Row left, uint32_t part, const Probe& p, const FlowKey& key) const;

 private:
  friend struct TupleMergeKernels;
  // One rule of a block, as a lane of a team holds it: what was loaded and nothing made of it, so that nobody waits.
  struct Column {
    uint32_t address[2], fields, fields_mask, low, span, word;
    uint16_t free;
  };
  SLUICE_HD static Column column_of(const TupleMergeBlock4& b, uint32_t i);
  // The rule's word, without kMergeMore, where its columns match, else kMergeNone.
  SLUICE_HD static uint32_t match_of(const Column& c, const Probe& p);
  // Finds the rules of n lanes that are filled.
  template <bool kWide, typename Lanes>
  void search(AclIsa isa, Lanes& lanes, size_t n) const;
  template <bool kWide>
  void burst(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, const uint8_t* which, size_t n) const;
  // The lanes of a block whose prefixes cover the key's addresses.
  SLUICE_HD static uint32_t near_lanes(const TupleMergeBlock4& b, const Probe& p);
  template <bool kWide>
  SLUICE_HD uint32_t lookup_as(const FlowKey& key, AclTally* tally) const;
  SLUICE_HD bool full(uint32_t word, const FlowKey& key) const {
    return (word & kMergeFull) == 0 || matches(rules_[(word & kMergeNone) - 1], key);
  }

  const TupleMergeTable* tables_ = nullptr;  // narrow ones first, each part in order of best
  const uint32_t* slots_ = nullptr;
  const TupleMergeBlock4* blocks4_ = nullptr;
  const TupleMergeBlock6* blocks6_ = nullptr;
  const TupleMergeLoose* loose_ = nullptr;  // narrow ones first, each part in order of position
  const AclMatchRule* rules_ = nullptr;     // rule r at r - 1
  uint16_t narrow_ = 0, wide_ = 0;
  uint16_t narrow_loose_ = 0, wide_loose_ = 0;
  uint8_t bitmap_parts_ = 0;  // a bitmap of so many parts follows the loose rules; 0: there is none
};
static_assert(std::is_trivially_copyable_v<TupleMergeView> && sizeof(TupleMergeView) == 64);

}  // namespace sluice

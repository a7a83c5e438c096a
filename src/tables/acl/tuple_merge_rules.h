// Internal to tuple_merge: how a rule looks to a hash, in a block and among the loose rules. Host only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tables/acl/tuple_merge.h"
#include "tables/acl/tuple_rules.h"

namespace sluice::tuple_merge_detail {

using tuple_detail::Tuple;

struct Item {
  uint32_t word[8];
  uint32_t ports, protocol;
};

template <bool kWide>
Item item_of(const AclMatchRule& r) {
  Item i{};
  if constexpr (kWide) {
    i.word[0] = static_cast<uint32_t>(r.src_hi >> 32);
    i.word[1] = static_cast<uint32_t>(r.src_hi);
    i.word[2] = static_cast<uint32_t>(r.src_lo >> 32);
    i.word[4] = static_cast<uint32_t>(r.dst_hi >> 32);
    i.word[5] = static_cast<uint32_t>(r.dst_hi);
    i.word[6] = static_cast<uint32_t>(r.dst_lo >> 32);
  }
  i.word[3] = static_cast<uint32_t>(r.src_lo);
  i.word[7] = static_cast<uint32_t>(r.dst_lo);
  i.ports = uint32_t{r.dst_port_low} << 16 | r.src_port_low;
  i.protocol = r.protocol * kTupleProtocolFactor;
  return i;
}

// The mask of address word `w` (most significant first) of a prefix of `length` bits; narrow addresses are word 3.
template <bool kWide>
uint32_t word_mask(unsigned length, unsigned w) {
  if (!kWide) return w == 3 ? high_mask32(length) : 0;
  return high_mask32(length > 32 * w ? std::min(32u, length - 32 * w) : 0);
}

template <bool kWide>
TupleMergeTable table_of(const Tuple& tuple) {
  TupleMergeTable t{};
  for (unsigned w = 0; w < 4; ++w) {
    t.src_mask[w] = word_mask<kWide>(tuple.src, w);
    t.dst_mask[w] = word_mask<kWide>(tuple.dst, w);
    if (t.src_mask[w] != 0) t.words |= static_cast<uint8_t>(1u << w);
    if (t.dst_mask[w] != 0) t.words |= static_cast<uint8_t>(16u << w);
  }
  t.port_mask =
      ((tuple.fields & Tuple::kDstPort) != 0 ? 0xffff0000u : 0) | ((tuple.fields & Tuple::kSrcPort) != 0 ? 0xffffu : 0);
  t.protocol_mask = (tuple.fields & Tuple::kProtocol) != 0 ? ~0u : 0;
  return t;
}

// As merge_fields has them.
inline uint32_t fields_word(unsigned top, unsigned protocol, unsigned flags, unsigned bits) {
  return static_cast<uint32_t>(top << 24 | protocol << 16 | (flags & 0xff00u) | bits);
}
inline uint32_t fields_of(const AclMatchRule& r, bool wide) {
  return fields_word(wide ? r.family : r.dscp, r.protocol, r.flags, r.bits);
}
inline uint32_t fields_mask_of(const AclMatchRule& r, bool wide) {
  return fields_word(wide ? (r.family != 0 ? 0xff : 0) : r.dscp_mask, r.protocol_mask, r.flags_mask, r.bits_mask);
}
inline uint32_t word_of(const AclMatchRule& r, bool wide) {
  const bool full = r.icmp_mask != 0 || (r.flags_mask & 0xff) != 0 || (wide && r.dscp_mask != 0);
  return r.rule | (full ? kMergeFull : 0);
}
inline uint32_t ports_low_of(const AclMatchRule& r) {
  return uint32_t{r.dst_port_low} << 16 | r.src_port_low;
}
inline uint32_t ports_span_of(const AclMatchRule& r) {
  return static_cast<uint32_t>(r.dst_port_high - r.dst_port_low) << 16 |
         static_cast<uint32_t>(r.src_port_high - r.src_port_low);
}

inline void write_lane(TupleMergeBlock4& b, size_t i, const AclMatchRule& r) {
  b.address[2 * i] = static_cast<uint32_t>(r.src_lo);
  b.address[2 * i + 1] = static_cast<uint32_t>(r.dst_lo);
  b.free[2 * i] = static_cast<uint8_t>(r.src_length == 0 ? 32 : 128 - r.src_length);
  b.free[2 * i + 1] = static_cast<uint8_t>(r.dst_length == 0 ? 32 : 128 - r.dst_length);
}
inline void write_lane(TupleMergeBlock6& b, size_t i, const AclMatchRule& r) {
  const uint64_t halves[4] = {r.src_hi, r.src_lo, r.dst_hi, r.dst_lo};
  for (size_t h = 0; h < 4; ++h) {
    const unsigned length = h < 2 ? r.src_length : r.dst_length;
    const unsigned bits = h % 2 == 0 ? std::min(length, 64u) : length - std::min(length, 64u);
    b.address[h][i] = halves[h];
    b.free[h][i] = static_cast<uint8_t>(64 - bits);
  }
}

template <bool kWide>
uint32_t hash_of(const TupleMergeTable& t, const Item& i) {
  return merge_hash<kWide>(t, i.word, i.ports, i.protocol);
}

// The tag of a bucket's slot, of its rules' hashes: 0 where they have several.
class BucketTag {
 public:
  void add(uint32_t hash) {
    const uint32_t own = merge_tag(hash);
    tag_ = !any_ || tag_ == own ? own : 0;
    any_ = true;
  }
  uint32_t value() const { return tag_; }

 private:
  uint32_t tag_ = 0;
  bool any_ = false;
};
// What a slot holds whose bucket begins at `block`.
inline uint32_t slot_word(uint32_t block, uint32_t tag) {
  return (block + 1) << 8 | tag;
}

// Lane `i` of a block.
template <typename Block>
void write_merge_lane_of(Block& b, size_t i, const AclMatchRule& r, bool wide) {
  write_lane(b, i, r);
  b.fields[i] = fields_of(r, wide);
  b.fields_mask[i] = fields_mask_of(r, wide);
  b.ports_low[i] = ports_low_of(r);
  b.ports_span[i] = ports_span_of(r);
  b.rule[i] = word_of(r, wide);
}
inline void write_merge_lane(TupleMergeBlock4& b, size_t i, const AclMatchRule& r) {
  write_merge_lane_of(b, i, r, false);
}
inline void write_merge_lane(TupleMergeBlock6& b, size_t i, const AclMatchRule& r) {
  write_merge_lane_of(b, i, r, true);
}

template <bool kWide>
TupleMergeLoose loose_of(const AclMatchRule& r) {
  TupleMergeLoose l{};
  const Item item = item_of<kWide>(r);
  const Tuple tuple = tuple_detail::tuple_of(r, kWide ? 128 : 32);
  for (unsigned w = 0; w < 8; ++w) {
    l.value[w] = item.word[w];
    l.mask[w] = word_mask<kWide>(w < 4 ? tuple.src : tuple.dst, w % 4);
    if (l.mask[w] != 0) l.words |= 1u << w;
  }
  l.fields = fields_of(r, kWide);
  l.fields_mask = fields_mask_of(r, kWide);
  l.ports_low = ports_low_of(r);
  l.ports_span = ports_span_of(r);
  if (l.fields_mask != 0) l.words |= TupleMergeLoose::kFields;
  if (l.ports_span != ~0u) l.words |= TupleMergeLoose::kPorts;
  l.rule = word_of(r, kWide);
  return l;
}

// Loose rules from which on a bitmap costs less than comparing each.
inline constexpr size_t kBitmapFrom = 16;
// The bitmap of narrow loose rules, at most TupleMergeBitmap::kRules, as it lies in an image.
std::vector<std::byte> bitmap_bytes(const std::vector<TupleMergeLoose>& loose);

// The tuples of the tables that the builder would choose, most useful first. `wide`: for keys that are not IPv4.
std::vector<Tuple> choose_tuples(const std::vector<AclMatchRule>& flat, bool wide);

}  // namespace sluice::tuple_merge_detail

// Few coarse hash tables whose buckets are blocks of eight rules, compared at once.
//
// After TupleMerge (Daly et al., ToN 2019), built offline and shaped by what a packet costs on a vector machine: a
// probe of a table for 16 packets is one hash and one gather, a block of eight whole rules is verified in a dozen
// vector instructions, a branch that goes wrong costs more than either. So tables are few and coarse, a bucket holds 24
// rules (up to 128 where no tuple gains enough, the last table's any number), and each is verified without a branch. A
// tuple may leave any bit out: blocks are compared whole, so it never decides a result, and small buckets share blocks.
//
//   table       masks; slots [slot_base, + 2^(32 - slot_shift)), picked by the hash's high bits
//   slot (u32)  tag:8 | 1 + first block:24; 0: empty; tag 0: several keys, any passes
//   block       8 rules as columns, best first; kMore in the last rule word: the bucket goes on in the next block
//   loose       the few rules that no table is worth: compared with every packet, or
//   sieve       for every byte of an IPv4 key, a bit for each loose rule that the byte's value leaves possible
//
// IPv4 keys search the narrow half (blocks of 256 bytes), all others the wide one (448 bytes); rules without a family
// stand in both.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bits.h"
#include "base/hd.h"
#include "base/result.h"
#include "net/key_columns.h"
#include "tables/acl/rule_set.h"
#include "tables/acl/sections.h"
#include "tables/acl/target.h"
#include "tables/acl/tuple_space.h"
#include "tables/image.h"

namespace sluice {

// One hash table. Masks select the key's bits as in TupleTable.
struct alignas(16) TupleMergeTable {
  uint32_t src_mask[4];
  uint32_t dst_mask[4];
  uint32_t port_mask;  // over merge_ports
  uint32_t protocol_mask;
  uint32_t slot_base;
  uint32_t best;       // the lowest position of its rules
  uint8_t slot_shift;  // 1..32
  uint8_t words;       // bit i: address word i (src 0..3, dst 4..7) has mask bits; wide tables only
  uint16_t reserved;
  uint32_t entries;
  uint32_t reserved2[2];
};
static_assert(sizeof(TupleMergeTable) == 64 && std::is_trivially_copyable_v<TupleMergeTable>);

inline constexpr uint32_t kMergeLanes = 8;  // rules in a block
// Rule words of blocks and loose rules.
inline constexpr uint32_t kMergeMore = 1u << 31;        // in the last word of a block: another block follows
inline constexpr uint32_t kMergeFull = 1u << 30;        // has conditions that the columns lack: ask the full rule
inline constexpr uint32_t kMergeNone = kMergeFull - 1;  // no rule here; also the mask of the rule's position

// Parts of a key as one load each. Little-endian: the ports are destination << 16 | source, as they lie in memory.
SLUICE_HD uint32_t merge_load(const void* from) {
  uint32_t v;
  memcpy(&v, from, sizeof v);
  return v;
}
SLUICE_HD uint32_t merge_ports(const FlowKey& key) {
  static_assert(std::endian::native == std::endian::little &&
                offsetof(FlowKey, dst_port) == offsetof(FlowKey, src_port) + 2);
  return merge_load(&key.src_port);
}
// The remaining conditions in one word: DSCP (narrow) or family (wide), protocol, flags (high byte), fragment bits.
SLUICE_HD uint32_t merge_fields(const FlowKey& key, bool wide) {
  static_assert(offsetof(FlowKey, protocol) == offsetof(FlowKey, flags) + 2 &&
                offsetof(FlowKey, dscp) == offsetof(FlowKey, flags) + 3);
  const uint32_t word = (merge_load(&key.flags) & 0xffffff00u) | key.bits;
  return wide ? (word & 0x00ffffffu) | static_cast<uint32_t>(key.family) << 24 : word;
}

// Tables whose slots are read together, and rows of the sieve: on the host one, which leaves as soon as it can.
#if defined(__CUDA_ARCH__)
inline constexpr uint32_t kMergeAhead = 4;
#define SLUICE_UNROLL _Pragma("unroll")
#else
inline constexpr uint32_t kMergeAhead = 1;
#define SLUICE_UNROLL
#endif

// Eight IPv4 rules as columns: four cache lines, 32 bytes a rule.
struct alignas(64) TupleMergeBlock4 {
  uint32_t address[2 * kMergeLanes];  // source, destination, alternately
  uint32_t fields[kMergeLanes], fields_mask[kMergeLanes];
  uint32_t ports_low[kMergeLanes], ports_span[kMergeLanes];  // destination << 16 | source; span: high - low
  uint32_t rule[kMergeLanes];                                // ascending positions, then kMergeNone
  uint8_t free[2 * kMergeLanes];                             // 32 - prefix length, alternately
  uint32_t reserved[4];
};
static_assert(sizeof(TupleMergeBlock4) == 256);

// Eight rules of any family: seven cache lines, 56 bytes a rule.
struct alignas(64) TupleMergeBlock6 {
  uint64_t address[4][kMergeLanes];  // source high, low; destination high, low
  uint32_t fields[kMergeLanes], fields_mask[kMergeLanes];
  uint32_t ports_low[kMergeLanes], ports_span[kMergeLanes];
  uint32_t rule[kMergeLanes];
  uint8_t free[4][kMergeLanes];  // 64 - the prefix's bits in that half
};
static_assert(sizeof(TupleMergeBlock6) == 448);

// A rule that is compared with every packet. Address words most significant first (IPv4 is word 3 alone).
struct alignas(16) TupleMergeLoose {
  uint32_t value[8], mask[8];  // source, destination
  uint32_t fields, fields_mask;
  uint32_t ports_low, ports_span;
  uint32_t rule;
  uint32_t words;  // bit i: mask[i] is not zero; bit 8: fields_mask is not zero; bit 9: some port is ruled out
  static constexpr uint32_t kFields = 1u << 8, kPorts = 1u << 9;
  uint32_t reserved[2];
};
static_assert(sizeof(TupleMergeLoose) == 96);

// The loose IPv4 rules as bit vectors (after Lakshman and Stiliadis, SIGCOMM 1998, by bytes in place of ranges): one
// row of bits for each value of each byte of the 16-byte key {source, destination, ports, fields}, each word
// little-endian; the conjunction of a key's rows leaves the rules that match. Bytes that rule nothing out have no rows.
// A row is one part of 128 bits or four. The rows, 256 a byte, follow this struct; where there are four parts, then the
// words.
struct alignas(64) TupleMergeSieve {
  static constexpr uint32_t kRules = 128;  // of a part
  static constexpr uint32_t kMaxParts = 4;
  struct alignas(16) Row {
    uint64_t rules[2];
  };
  uint32_t count;  // bytes that have rows
  uint32_t parts;
  uint32_t reserved[2];
  uint8_t at[16];  // which ones
  uint8_t reserved2[32];
  uint32_t rule[kRules + 16];  // the words, where there is one part

  SLUICE_HD const Row* rows() const { return reinterpret_cast<const Row*>(this + 1); }
  // The loose rules' words; kMergeFull here also asks for a comparison, because a range of ports is not one of bytes.
  // Past the rules: kMergeNone, words_for(parts) in all.
  SLUICE_HD const uint32_t* words() const {
    return parts == 1 ? rule : reinterpret_cast<const uint32_t*>(rows() + uint64_t{count} * 256 * parts);
  }
  static constexpr uint32_t words_for(uint32_t parts) { return parts * kRules + 16; }
  static constexpr uint64_t bytes_for(uint32_t count, uint32_t parts) {
    return sizeof(TupleMergeSieve) + uint64_t{count} * 256 * parts * sizeof(Row) +
           (parts == 1 ? 0 : words_for(parts) * sizeof(uint32_t));
  }
};
static_assert(sizeof(TupleMergeSieve) == 640);

// Whether both 16-bit halves of `ports` lie in [low, low + span].
SLUICE_HD bool merge_ports_in(uint32_t ports, uint32_t low, uint32_t span) {
  return (static_cast<uint16_t>((ports >> 16) - (low >> 16)) <= (span >> 16)) &
         (static_cast<uint16_t>(ports - low) <= static_cast<uint16_t>(span));
}

class TupleMergeView {
 public:
  TupleMergeView() = default;
  // Checks every offset, index and run. Errors: not an ACL image of `tuple_merge`, damaged.
  static Result<TupleMergeView> open(const Image& image);

  // 1-based position of the first matching rule, or 0.
  SLUICE_HD uint32_t lookup(const FlowKey& key, AclTally* tally = nullptr) const {
    return key.family == 4 ? lookup_as<false>(key, tally) : lookup_as<true>(key, tally);
  }
  // The same by a group of at most 32 lanes (base/group.h), all of which hold the same key: a lane a table and a row of
  // the sieve, then a lane a rule of a block. For latency: what does not wait for another load is asked for together,
  // and all groups that run in step take the same way. A group without a key comes along with `here` false. IPv6: each
  // lane does what one alone would do.
  template <typename Group>
  SLUICE_HD uint32_t lookup_team(const FlowKey& key, const Group& group, bool here = true) const;
  // Host only: `n` (at most 32) keys at once, with the widest vectors that the processor has.
  void lookup_burst(const FlowKey* const* keys, uint32_t* rules, size_t n) const;
  // The same on a chosen instruction set, for tests and benches. Precondition: isa_available(isa).
  void lookup_burst_on(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, size_t n) const;
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
  // Of the sieve; 0: there is none.
  uint32_t sieve_parts() const { return sieved_; }
  // Table `i` of the narrow (IPv4) or wide ones, in search order.
  const TupleMergeTable& table(bool wide, uint32_t i) const { return tables_[wide ? narrow_ + i : i]; }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  void each_pointer(F&& f) {
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
  SLUICE_HD const TupleMergeSieve& sieve() const {
    const auto end = reinterpret_cast<uintptr_t>(loose_ + narrow_loose_ + wide_loose_);
    return *reinterpret_cast<const TupleMergeSieve*>((end + 63) & ~uintptr_t{63});
  }
  // Whether it is looked at; else the rules are compared. One of four parts is for cores: its code would cost the lists
  // that were built for a device registers.
  SLUICE_HD bool by_sieve() const {
#if defined(__CUDA_ARCH__)
    return sieved_ == 1;
#else
    return sieved_ != 0;
#endif
  }
  // The best loose rule of an IPv4 key, or kMergeNone. Precondition: by_sieve().
  SLUICE_HD uint32_t sieved(const Probe& p, const FlowKey& key) const;
  SLUICE_HD static TupleMergeSieve::Row both(const TupleMergeSieve::Row& a, const TupleMergeSieve::Row& b) {
    return {{a.rules[0] & b.rules[0], a.rules[1] & b.rules[1]}};
  }
  // Its lowest bit, or 127.
  SLUICE_HD static uint32_t first_bit(const TupleMergeSieve::Row& row) {
    if (row.rules[0] != 0) return trailing_zeros64(row.rules[0]);
    return 64 + (row.rules[1] != 0 ? trailing_zeros64(row.rules[1]) : 63);
  }
  // What the rows of a key leave of a part; there are kParts.
  template <uint32_t kParts>
  SLUICE_HD TupleMergeSieve::Row left_of(uint32_t part, const Probe& p) const;
  // The first of the rules that are left of a part.
  template <uint32_t kParts>
  SLUICE_HD uint32_t first_of(TupleMergeSieve::Row left, uint32_t part, const Probe& p, const FlowKey& key) const;

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
  uint8_t sieved_ = 0;  // a sieve of so many parts follows the loose rules; 0: there is none
};
static_assert(std::is_trivially_copyable_v<TupleMergeView> && sizeof(TupleMergeView) == 64);

struct TupleMergeAcl {
  static constexpr const char* kName = "tuple_merge";
  static constexpr const char* kSectionName = "tuplemrg";
  static constexpr const char* kSummary = "few coarse hash tables, rules verified eight at a time";
  using View = TupleMergeView;
  // About 40 bytes a rule (IPv4) besides the rules, actions and sources. Errors: a rule set that check_rule_set
  // refuses, memory.
  // For a core, short lists have loose rules by the hundred and hardly a table; a device's team reads one part of a
  // sieve.
  static Result<Image> build(const RuleSet& set, AclTarget target = AclTarget::kCpu);
};

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
SLUICE_HD uint32_t TupleMergeView::first_of(TupleMergeSieve::Row left, uint32_t part, const Probe& p,
                                            const FlowKey& key) const {
  for (unsigned half = 0; half < 2; ++half) {
    for (; left.rules[half] != 0; left.rules[half] &= left.rules[half] - 1) {
      const uint32_t i = part * TupleMergeSieve::kRules + 64 * half + trailing_zeros64(left.rules[half]);
      const uint32_t word = kParts == 1 ? sieve().rule[i] : sieve().words()[i];
      if ((word & kMergeFull) == 0 || loose_matches<false>(loose_[i], p, key)) return word & kMergeNone;
    }
  }
  return kMergeNone;
}

template <uint32_t kParts>
SLUICE_HD TupleMergeSieve::Row TupleMergeView::left_of(uint32_t part, const Probe& p) const {
  const TupleMergeSieve& from = sieve();
  TupleMergeSieve::Row left = {{~uint64_t{0}, ~uint64_t{0}}};
  const TupleMergeSieve::Row* rows = from.rows() + part;
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

SLUICE_HD uint32_t TupleMergeView::sieved(const Probe& p, const FlowKey& key) const {
  if (sieved_ == 1) return first_of<1>(left_of<1>(0, p), 0, p, key);
#if !defined(__CUDA_ARCH__)
  // Rules stand in order: the first part that has one has the best.
  constexpr uint32_t kParts = TupleMergeSieve::kMaxParts;
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
  if (!kWide && by_sieve()) {
    best = sieved(p, key);
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

// Three loads in a row, whatever the list is like: rows of the sieve and slots, then blocks and the sieved rule; then
// the rest of long buckets, block by block. What is loaded is used only after all that does not depend on it has been
// asked for, and loads are not skipped where a lane has nothing to ask for: a branch between them is a wait. A warp by
// itself waits for most of its instructions, so there are as few of them as possible, too.
template <typename Group>
SLUICE_HD uint32_t TupleMergeView::lookup_team(const FlowKey& key, const Group& group, bool here) const {
  constexpr uint32_t kLeast = Group::kLeast < kMergeLanes ? Group::kLeast : kMergeLanes;
  constexpr uint32_t kBlocks = 3;                    // that are read at a time
  constexpr uint32_t kRules = kMergeLanes / kLeast;  // of a block, a lane
  constexpr uint32_t kRows = sizeof(TupleMergeSieve::at) / kLeast;
  const bool mine = here && key.family == 4;
  const uint32_t lane = group.lane(), lanes = group.size();
  const Probe p = probe_of<false>(key);

  // A lane every lanes'th row.
  TupleMergeSieve::Row rows[kRows];
  SLUICE_UNROLL
  for (uint32_t r = 0; r < kRows; ++r) rows[r] = {{~uint64_t{0}, ~uint64_t{0}}};
  const bool in_step = sieved_ == 1;  // else rules are compared
  const TupleMergeSieve* const one_part = in_step ? &sieve() : nullptr;
  if (in_step) {
    const uint32_t words[4] = {p.word[3], p.word[7], p.ports, p.fields};
    SLUICE_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t i = r * lanes + lane;
      const uint32_t byte = i < one_part->count ? i : 0;  // a sieve has a row at least
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
  TupleMergeSieve::Row left = {};
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

// What lies in an image of tuple_merge: tables, blocks of rules, loose rules and their bit vectors; and a key's parts
// in the same form.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/hd.h"
#include "net/flow_key.h"

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
struct alignas(64) TupleMergeBitmap {
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
    return sizeof(TupleMergeBitmap) + uint64_t{count} * 256 * parts * sizeof(Row) +
           (parts == 1 ? 0 : words_for(parts) * sizeof(uint32_t));
  }
};
static_assert(sizeof(TupleMergeBitmap) == 640);

// Whether both 16-bit halves of `ports` lie in [low, low + span].
SLUICE_HD bool merge_ports_in(uint32_t ports, uint32_t low, uint32_t span) {
  return (static_cast<uint16_t>((ports >> 16) - (low >> 16)) <= (span >> 16)) &
         (static_cast<uint16_t>(ports - low) <= static_cast<uint16_t>(span));
}

}  // namespace sluice

namespace sluice::tuple_merge_detail {

// Offsets are from the start of the section.
//
//   Header | TupleMergeTable[narrow + wide] | slots | TupleMergeBlock4[] | TupleMergeBlock6[] | TupleMergeLoose[] |
//   TupleMergeBitmap
struct Header {
  static constexpr uint32_t kMaxTables = 256;  // of each kind
  static constexpr uint32_t kMaxLoose = 1024;  // of each kind

  uint32_t narrow_tables, wide_tables;
  uint32_t narrow_blocks, wide_blocks;
  uint32_t narrow_loose, wide_loose;
  uint64_t tables_offset;
  uint64_t slots_offset, slot_count;
  uint64_t narrow_offset, wide_offset, loose_offset;
  uint64_t bitmap_offset, bitmap_bytes;  // 0: there is none
  uint64_t build_steps;                  // rules that the builder has hashed, for tests of what a build may cost
  uint64_t reserved[4];

  // Where arrays with room for so many begin, one behind the other, as far as loose rules.
  void place_arrays(uint64_t tables, uint64_t slots, uint64_t blocks4, uint64_t blocks6) {
    tables_offset = sizeof(Header);
    slots_offset = tables_offset + tables * sizeof(TupleMergeTable);
    narrow_offset = (slots_offset + slots * sizeof(uint32_t) + 63) / 64 * 64;
    wide_offset = narrow_offset + blocks4 * sizeof(TupleMergeBlock4);
    loose_offset = wide_offset + blocks6 * sizeof(TupleMergeBlock6);
  }
};
static_assert(sizeof(Header) == 128 && std::is_trivially_copyable_v<Header>);

}  // namespace sluice::tuple_merge_detail

// Internal to tuple_merge: the layout of its kAclLookup section.
#pragma once

#include <cstdint>
#include <type_traits>

namespace sluice::tuple_merge_detail {

// Offsets are from the start of the section.
//
//   Header | TupleMergeTable[narrow + wide] | slots | TupleMergeBlock4[] | TupleMergeBlock6[] | TupleMergeLoose[] |
//   TupleMergeSieve
struct Header {
  static constexpr uint32_t kMaxTables = 256;  // of each kind
  static constexpr uint32_t kMaxLoose = 1024;  // of each kind

  uint32_t narrow_tables, wide_tables;
  uint32_t narrow_blocks, wide_blocks;
  uint32_t narrow_loose, wide_loose;
  uint64_t tables_offset;
  uint64_t slots_offset, slot_count;
  uint64_t narrow_offset, wide_offset, loose_offset;
  uint64_t sieve_offset, sieve_bytes;  // 0: there is none
  uint64_t build_steps;                // rules that the builder has hashed, for tests of what a build may cost
  uint64_t reserved[4];
};
static_assert(sizeof(Header) == 128 && std::is_trivially_copyable_v<Header>);

}  // namespace sluice::tuple_merge_detail

// Internal to tuple_space: the layout of its kAclLookup section.
#pragma once

#include <cstdint>
#include <type_traits>

namespace sluice::tuple_space_detail {

// Offsets are from the start of the section.
//
//   Header | TupleTable[narrow + wide] | filter words | slots | TupleEntry4[] | AclMatchRule[] | TuplePrune
struct Header {
  static constexpr uint32_t kMaxTables = 256;  // of each kind

  uint32_t narrow_tables, wide_tables;
  uint32_t narrow_entries, wide_entries;
  uint64_t tables_offset;
  uint64_t filter_offset, filter_words;
  uint64_t slots_offset, slot_count;
  uint64_t narrow_offset, wide_offset;
  uint64_t prune_offset, prune_bytes;  // 0: there is none
  uint64_t build_steps;                // rules that the builder has hashed, for tests of what a build may cost
  uint64_t reserved[4];
};
static_assert(sizeof(Header) == 128 && std::is_trivially_copyable_v<Header>);

}  // namespace sluice::tuple_space_detail

// Which of a tuple_space's tables can hold a match at all, told by each field of an IPv4 key alone.
//
// Pruned tuple search (Srinivasan, Suri, Varghese, SIGCOMM 1999): a table matters to a packet only when some rule of it
// has a source prefix that covers the packet's source, some rule a destination prefix that covers its destination, and
// likewise for ports and protocol. For each field a direct lookup gives a class, the class a set of tables as 64 bits;
// the conjunction of the five sets is what a search visits: 2 to 7 tables of 12 to 35. Every set may be too large (a
// prefix that got no block of its own is rounded up), never too small. One packet pays 6 to 10 loads that do not depend
// on each other across fields; that suits a device, where each table costs a dependent load and divergence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "base/hd.h"
#include "tables/acl/rule_set.h"

namespace sluice {

// Followed by masks, uint64_t[class_count], then blocks, uint16_t[block_count][256].
struct alignas(64) TuplePrune {
  static constexpr uint32_t kMaxTables = 64;
  static constexpr uint32_t kBlock = 0x8000;  // an entry of root or of a block: go on in that block

  // A table as a search needs it, in one 16-byte load.
  struct alignas(16) Table {
    uint32_t slot_base;
    uint32_t best;
    uint32_t port_mask;  // as in TupleTable
    uint8_t src_free, dst_free;
    uint8_t slot_shift;
    uint8_t protocol;  // 1: hashed
  };

  uint32_t class_count;
  uint32_t block_count;
  uint32_t upper_count;  // blocks of the second level come first, those of the third follow
  uint32_t reserved[13];
  Table tables[kMaxTables];
  uint64_t protocol[256];
  uint64_t port[2][256];         // by class: source, destination
  uint8_t port_class[2][65536];  // by port
  uint16_t root[2][65536];       // by the upper half of the address: a class, or kBlock | block

  SLUICE_HD const uint64_t* masks() const { return reinterpret_cast<const uint64_t*>(this + 1); }
  SLUICE_HD const uint16_t* blocks() const { return reinterpret_cast<const uint16_t*>(masks() + class_count); }
  static constexpr uint64_t bytes_for(uint32_t classes, uint32_t blocks) {
    return sizeof(TuplePrune) + uint64_t{classes} * 8 + uint64_t{blocks} * 512;
  }

  SLUICE_HD uint64_t address_mask(unsigned which, uint32_t address) const {
    uint32_t entry = root[which][address >> 16];
    if ((entry & kBlock) != 0) entry = blocks()[(entry & (kBlock - 1)) * 256 + (address >> 8 & 255)];
    if ((entry & kBlock) != 0) entry = blocks()[(entry & (kBlock - 1)) * 256 + (address & 255)];
    return masks()[entry];
  }
  // Bit t: table t may hold a match.
  SLUICE_HD uint64_t tables_for(uint32_t src, uint32_t dst, uint32_t src_port, uint32_t dst_port,
                                uint32_t key_protocol) const {
    return address_mask(0, src) & address_mask(1, dst) & port[0][port_class[0][src_port]] &
           port[1][port_class[1][dst_port]] & protocol[key_protocol];
  }
};
static_assert(std::is_trivially_copyable_v<TuplePrune> && sizeof(TuplePrune::Table) == 16);

namespace tuple_prune_detail {

// A rule and the narrow table that holds it.
struct Placed {
  const AclMatchRule* rule;
  uint32_t table;
};

// The bytes of a TuplePrune but for its tables, which are the caller's. Precondition: tables below kMaxTables. At most
// a block for four rules, and 0.4 MB besides.
std::vector<std::byte> make_prune(std::span<const Placed> placed);

// Whether every class, block and bit of the `bytes` at `prune` is in range, tables apart.
bool prune_ok(const TuplePrune& prune, uint64_t bytes, uint32_t table_count);

}  // namespace tuple_prune_detail

}  // namespace sluice

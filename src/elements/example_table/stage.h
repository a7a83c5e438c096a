// ExampleTableFilter: packets by whether a table has their source address. Host and device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

// An address of the table, and the order in which they lie there.
struct ExampleTableEntry {
  uint64_t family, hi, lo;  // 4 or 6; IPv4 in the low half of lo

  SLUICE_HD bool before(const ExampleTableEntry& other) const {
    if (family != other.family) return family < other.family;
    return hi != other.hi ? hi < other.hi : lo < other.lo;
  }
};
static_assert(std::is_trivially_copyable_v<ExampleTableEntry> && sizeof(ExampleTableEntry) == 24);

// Packets whose source address is in the table leave by output 1; packets that are not IP are in no table.
struct ExampleTableStage {
  static constexpr FieldMask kReads = kFieldKey;
  static constexpr FieldMask kWrites = kFieldReason;

  const ExampleTableEntry* entries = nullptr;
  uint64_t count = 0;

  // Every pointer that the stage holds, so that a device gets a copy: f(pointer) into a table's image.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(entries);
  }

  SLUICE_HD bool contains(const ExampleTableEntry& wanted) const {
    uint64_t low = 0, high = count;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (entries[middle].before(wanted)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < count && !wanted.before(entries[low]);
  }

  SLUICE_HD uint8_t operator()(Packet& p) const {
    return contains({p.key.family, p.key.src_hi, p.key.src_lo}) ? fail(p, DropReason::kAclDeny, 1) : uint8_t{0};
  }
};

}  // namespace sluice

// Group: the lanes that run one cooperative stage together. A CPU worker is a group of one lane; a GPU warp or block is
// another; ThreadGroup (group_threads.h) is one of N host threads. A stage written against this interface runs on all.
#pragma once

#include <cstdint>

#include "base/hd.h"

namespace sluice {

// One lane: every collective is the identity.
struct OneLane {
  static constexpr uint32_t kLeast = 1;  // groups of this type have so many lanes at least
  SLUICE_HD uint32_t lane() const { return 0; }
  SLUICE_HD uint32_t size() const { return 1; }
  SLUICE_HD void sync() const {}
  // Every lane gets the value of lane `from`.
  template <typename T>
  SLUICE_HD T broadcast(T value, uint32_t from = 0) const {
    (void)from;
    return value;
  }
  // Every lane gets op over all lanes' values, taken in lane order (op need not commute).
  template <typename T, typename Op>
  SLUICE_HD T reduce(T value, Op op) const {
    (void)op;
    return value;
  }
  // The sum of the values of the lanes before this one.
  SLUICE_HD uint64_t sum_before(uint64_t value) const {
    (void)value;
    return 0;
  }
  // Bit i: lane i's value; every lane gets it. Groups of at most 32 lanes.
  SLUICE_HD uint32_t ballot(bool value) const { return value ? 1u : 0u; }
  // The lowest of all lanes' values, and the bits that are set in all of them.
  SLUICE_HD uint32_t least(uint32_t value) const { return value; }
  SLUICE_HD uint32_t all_bits(uint32_t value) const { return value; }
  // Whether a lane says so: of this group, or of one that runs in step with it, so that all of them go on together.
  SLUICE_HD bool somewhere(bool value) const { return value; }
};

}  // namespace sluice

// What planb and range24 share: lists of next hops below a tree's leaves, and lookups by groups. Host only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace sluice {

// List b is [starts[b], starts[b + 1]) of `hops`; `starts` has one entry more than there are lists. Errors: the lists
// do not cover the hops one after another, one is empty, a next hop is past next_hop_count; each begins with
// `algorithm`.
Result<void> check_lists(const char* algorithm, const uint32_t* starts, uint32_t lists, const uint16_t* hops,
                         uint32_t hop_count, uint32_t next_hop_count);

// Answers any number of addresses with `whole`, which takes a multiple of kGroup: what is left over goes as one more
// group, filled up with zeros.
template <size_t kGroup, typename Whole>
void in_groups(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n, Whole&& whole) {
  const size_t i = n / kGroup * kGroup;
  whole(hi, lo, next_hops, i);
  if (i == n) return;
  uint64_t rest_hi[kGroup] = {}, rest_lo[kGroup] = {};
  uint32_t found[kGroup];
  std::copy(hi + i, hi + n, rest_hi);
  std::copy(lo + i, lo + n, rest_lo);
  whole(rest_hi, rest_lo, found, kGroup);
  std::copy(found, found + (n - i), next_hops + i);
}

}  // namespace sluice

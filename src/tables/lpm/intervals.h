// Prefixes -> elementary intervals: the address line cut where the longest match changes. Host only.
//
// A sweep over the routes in (address, length) order with a stack of the prefixes that are open at the cursor; the top
// of the stack is the longest match there (prefixes nest or are disjoint, so the stack never holds more than 129
// entries).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tables/lpm/rib.h"

namespace sluice {

using Uint128 = unsigned __int128;

// The longest match is `next_hop` from `begin` up to the next interval's begin.
template <typename Key>
struct Interval {
  Key begin;
  uint16_t next_hop;
};
using Interval4 = Interval<uint32_t>;
using Interval6 = Interval<Uint128>;

inline uint32_t route_begin(const Route4& r) {
  return r.address;
}
inline uint32_t route_last(const Route4& r) {
  return r.address | ~high_mask32(r.length);
}
inline Uint128 route_begin(const Route6& r) {
  return Uint128{r.hi} << 64 | r.lo;
}
inline Uint128 route_last(const Route6& r) {
  const uint64_t hi = r.hi | ~high_mask64(r.length < 64 ? r.length : 64);
  const uint64_t lo = r.lo | ~high_mask64(r.length > 64 ? r.length - 64u : 0);
  return Uint128{hi} << 64 | lo;
}

// The intervals of a settled family, in order. The first begins at 0; neighbours differ in next hop (0: no route).
template <typename Key, typename Route>
std::vector<Interval<Key>> intervals_of(std::span<const Route> routes) {
  struct Open {
    Key last;
    uint16_t next_hop;
  };
  std::vector<Interval<Key>> out;
  out.reserve(routes.size() + 16);
  Open stack[130];
  size_t depth = 0;
  Key cursor = 0;
  bool wrapped = false;  // the cursor has passed the last address
  auto emit = [&](Key begin, uint16_t next_hop) {
    if (out.empty() || out.back().next_hop != next_hop) out.push_back({begin, next_hop});
  };
  auto close_top = [&] {
    const Open& top = stack[depth - 1];
    if (wrapped || cursor > top.last) return;
    emit(cursor, top.next_hop);
    cursor = top.last + 1;
    wrapped = cursor == 0;
  };
  for (const Route& route : routes) {
    const Key begin = route_begin(route);
    for (; depth > 0 && stack[depth - 1].last < begin; --depth) close_top();
    if (cursor < begin) {
      emit(cursor, depth > 0 ? stack[depth - 1].next_hop : uint16_t{0});
      cursor = begin;
    }
    stack[depth++] = {route_last(route), route.next_hop};
  }
  for (; depth > 0; --depth) close_top();
  if (!wrapped) emit(cursor, 0);
  return out;
}

}  // namespace sluice

// Tables, addresses and a brute-force oracle for the LPM tests and fuzzers. Not part of the library.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "net/types.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/intervals.h"
#include "tables/lpm/rib.h"

namespace sluice::lpm_test {

inline IpPrefix prefix4(uint32_t address, unsigned length) {
  return {{0, address & high_mask32(length), 4}, static_cast<uint8_t>(length)};
}
inline IpPrefix prefix6(uint64_t hi, uint64_t lo, unsigned length) {
  return prefix_around({hi, lo, 6}, length);
}

// Interns names "n1".."nK" so that ids are 1..K.
inline void intern_ids(Rib& rib, uint32_t count) {
  while (rib.next_hop_count() < count) rib.intern("n" + std::to_string(rib.next_hop_count() + 1));
}

// The definition: of all prefixes that cover the address, the longest.
inline uint32_t linear_lookup4(std::span<const Route4> routes, uint32_t address) {
  int best = -1;
  uint32_t next_hop = 0;
  for (const Route4& r : routes) {
    if (((address ^ r.address) & high_mask32(r.length)) != 0 || r.length <= best) continue;
    best = r.length;
    next_hop = r.next_hop;
  }
  return next_hop;
}
inline uint32_t linear_lookup6(std::span<const Route6> routes, uint64_t hi, uint64_t lo) {
  int best = -1;
  uint32_t next_hop = 0;
  for (const Route6& r : routes) {
    const bool covers = ((hi ^ r.hi) & high_mask64(std::min<unsigned>(r.length, 64))) == 0 &&
                        ((lo ^ r.lo) & high_mask64(r.length > 64 ? r.length - 64u : 0)) == 0;
    if (!covers || r.length <= best) continue;
    best = r.length;
    next_hop = r.next_hop;
  }
  return next_hop;
}

struct Addresses6 {
  std::vector<uint64_t> hi, lo;
  void add(Uint128 a) {
    hi.push_back(static_cast<uint64_t>(a >> 64));
    lo.push_back(static_cast<uint64_t>(a));
  }
};

// Both ends of each prefix and their neighbours outside, and the ends of the address line.
// One input in `n`, by its bytes alone (FNV-1a), so that a finding replays. What costs many milliseconds an input is
// for those: a choice by one byte would be inherited by every mutant of a seed that has it.
inline bool one_input_in(uint32_t n, const uint8_t* data, size_t size) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 16777619u;
  return (hash >> 8) % n == 0;
}

inline std::vector<uint32_t> edge_addresses(std::span<const Route4> routes) {
  std::vector<uint32_t> out = {0, 1, 0xffffffffu, 0xfffffffeu, 0x80000000u, 0x7fffffffu};
  for (const Route4& r : routes) {
    for (uint32_t a : {route_begin(r), route_last(r)}) {
      out.insert(out.end(), {a - 1, a, a + 1});
    }
  }
  return out;
}
inline Addresses6 edge_addresses(std::span<const Route6> routes) {
  Addresses6 out;
  for (Uint128 a : {Uint128{0}, ~Uint128{0}, Uint128{1} << 127, (Uint128{1} << 125) - 1, Uint128{1} << 125,
                    (Uint128{1} << 126) - 1, Uint128{1} << 126}) {
    out.add(a);
  }
  for (const Route6& r : routes) {
    for (Uint128 a : {route_begin(r), route_last(r)}) {
      out.add(a - 1);
      out.add(a);
      out.add(a + 1);
    }
  }
  return out;
}

// Uniform over the whole line; for IPv6 over 2000::/3, with one in sixteen anywhere.
inline std::vector<uint32_t> uniform4(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint32_t> out(n);
  for (uint32_t& a : out) a = static_cast<uint32_t>(random());
  return out;
}
inline Addresses6 uniform6(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  Addresses6 out;
  for (size_t i = 0; i < n; ++i) {
    uint64_t hi = random();
    if (random() % 16 != 0) hi = uint64_t{1} << 61 | hi >> 3;
    out.hi.push_back(hi);
    out.lo.push_back(random());
  }
  return out;
}
// A random prefix of the table, then a random host in it.
inline std::vector<uint32_t> prefix_weighted4(std::span<const Route4> routes, size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint32_t> out(n);
  for (uint32_t& a : out) {
    const Route4& r = routes[random() % routes.size()];
    a = r.address | (static_cast<uint32_t>(random()) & ~high_mask32(r.length));
  }
  return out;
}
inline Addresses6 prefix_weighted6(std::span<const Route6> routes, size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  Addresses6 out;
  for (size_t i = 0; i < n; ++i) {
    const Route6& r = routes[random() % routes.size()];
    const Uint128 host = (Uint128{random()} << 64 | random()) & (route_last(r) - route_begin(r));
    out.add(route_begin(r) | host);
  }
  return out;
}

// Clustered prefixes of every length: deep nesting, shared /24s, neighbours.
inline Rib random_rib(uint64_t seed, size_t routes, uint32_t next_hops) {
  std::mt19937_64 random(seed);
  Rib rib;
  intern_ids(rib, next_hops);
  const uint32_t base4 = static_cast<uint32_t>(random());
  const uint64_t base6 = uint64_t{1} << 61 | random() >> 3;
  for (size_t i = 0; i < routes; ++i) {
    const auto next_hop = static_cast<uint32_t>(1 + random() % next_hops);
    // Half of them differ from the base in their last bits only.
    uint32_t address = static_cast<uint32_t>(random());
    if (random() % 2 != 0) address = base4 ^ (address >> (random() % 32));
    rib.add(prefix4(address, static_cast<unsigned>(random() % 33)), next_hop);
    uint64_t hi = random(), lo = random();
    if (random() % 4 != 0) hi = base6 ^ (hi >> (random() % 64));
    if (random() % 4 == 0) hi = base6;
    rib.add(prefix6(hi, lo, static_cast<unsigned>(random() % 129)), next_hop);
  }
  rib.settle();
  return rib;
}

// A's table of one family and the oracle's of the other.
template <typename A>
Result<Image> build4(const Rib& rib) {
  return assemble_routes(rib, A::kName, A::plan4(rib), Trie::kName, Trie::plan6(rib));
}
template <typename A>
Result<Image> build6(const Rib& rib) {
  return assemble_routes(rib, Trie::kName, Trie::plan4(rib), A::kName, A::plan6(rib));
}
// with_fib4 and with_fib6, for what is in no product too.
template <typename A, typename F>
Result<void> with_view4(const Image& image, const Rib& rib, F&& f) {
  if constexpr (detail::LpmOffered<A>) return with_fib4(image, f);
  auto view = A::View4::open(image.section(SectionTag::kFib4), rib.next_hop_count());
  if (!view) return std::move(view).error();
  f(*view);
  return {};
}
template <typename A, typename F>
Result<void> with_view6(const Image& image, const Rib& rib, F&& f) {
  if constexpr (detail::LpmOffered<A>) return with_fib6(image, f);
  auto view = A::View6::open(image.section(SectionTag::kFib6), rib.next_hop_count());
  if (!view) return std::move(view).error();
  f(*view);
  return {};
}

}  // namespace sluice::lpm_test

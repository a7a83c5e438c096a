// For tests: one rule set and its keys through every algorithm, every instruction set, and an image loaded from bytes;
// each verdict against the oracle.
#pragma once

#include <gtest/gtest.h>
#include <cstring>

#include <algorithm>
#include <string>
#include <vector>

#include "base/group.h"
#include "tables/acl/algorithms.h"

namespace sluice::acl_test {

inline std::string describe(const FlowKey& k) {
  std::string out = "family " + std::to_string(k.family);
  for (uint64_t v : {k.src_hi, k.src_lo, k.dst_hi, k.dst_lo}) out += " " + std::to_string(v);
  for (unsigned v : {unsigned{k.src_port}, unsigned{k.dst_port}, unsigned{k.flags}, unsigned{k.protocol},
                     unsigned{k.dscp}, unsigned{k.bits}, unsigned{k.icmp}}) {
    out += " " + std::to_string(v);
  }
  return out;
}

// The oracle's verdicts, straight from the Model: it shares no image code with what is tested.
inline std::vector<uint32_t> oracle(const RuleSet& set, const std::vector<FlowKey>& keys) {
  std::vector<AclMatchRule> flat;
  for (const AclRule& rule : set.rules) flat.push_back(flatten(rule, static_cast<uint32_t>(flat.size() + 1)));
  std::vector<uint32_t> out;
  for (const FlowKey& key : keys) {
    uint32_t found = 0;
    for (const AclMatchRule& rule : flat) {
      if (!matches(rule, key)) continue;
      found = rule.rule;
      break;
    }
    out.push_back(found);
  }
  return out;
}

template <typename Burst>
std::vector<uint32_t> in_bursts(const std::vector<FlowKey>& keys, Burst&& burst) {
  std::vector<uint32_t> out(keys.size(), 0xdeadbeef);
  std::vector<const FlowKey*> pointers;
  for (const FlowKey& key : keys) pointers.push_back(&key);
  // Bursts of every size from 1 to 32.
  for (size_t at = 0, size = 1; at < keys.size(); at += size, size = size % kAclBurst + 1) {
    size = std::min(size, keys.size() - at);
    burst(pointers.data() + at, out.data() + at, size);
  }
  return out;
}

inline void expect_same(const std::vector<uint32_t>& want, const std::vector<uint32_t>& got,
                        const std::vector<FlowKey>& keys, const std::string& what) {
  ASSERT_EQ(want.size(), got.size());
  size_t wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == got[i]) continue;
    if (++wrong <= 3)
      ADD_FAILURE() << what << ", packet " << i << ": rule " << got[i] << ", oracle " << want[i] << ": "
                    << describe(keys[i]);
  }
  EXPECT_EQ(wrong, 0u) << what;
}

// Where a lookup says that all its keys are of IPv4, they are.
template <typename Lookup>
void look_up_burst(Lookup&& lookup, const FlowKey* const* keys, size_t n) {
  if constexpr (std::is_void_v<decltype(lookup())>) {
    lookup();
  } else if (lookup()) {
    EXPECT_TRUE(std::all_of(keys, keys + n, [](const FlowKey* key) { return key->family == 4; }));
  }
}

// The keys that columns can hold, by family in runs of every length up to 32, beside `want`.
template <typename Lookup>
void check_columns(const std::vector<FlowKey>& keys, const std::vector<uint32_t>& want, const std::string& what,
                   Lookup&& lookup) {
  struct {
    alignas(64) uint32_t ports[32], rest[32], source[32], destination[32];
    alignas(64) uint64_t halves[4][32];
  } columns;
  std::memset(&columns, 0xa5, sizeof columns);
  for (const uint32_t family : {4u, 6u}) {
    const bool six = family == 6;
    KeyColumns view{family, columns.ports, columns.rest, columns.source, columns.destination};
    view.source_high = columns.halves[0];
    view.source_low = columns.halves[1];
    view.destination_high = columns.halves[2];
    view.destination_low = columns.halves[3];
    size_t places[32] = {};
    uint32_t n = 0, limit = 1;
    const auto run = [&] {
      uint32_t rules[32];
      lookup(view, rules, size_t{n});
      for (uint32_t i = 0; i < n; ++i) {
        ASSERT_EQ(rules[i], want[places[i]])
            << what << ", key " << i << " of " << n << ": " << describe(keys[places[i]]);
      }
      n = 0;
      limit = limit % 32 + 1;
    };
    for (size_t k = 0; k < keys.size(); ++k) {
      if (keys[k].family != family) continue;
      const Key4 packed = pack_key4(keys[k]);
      columns.ports[n] = packed.ports;
      columns.rest[n] = packed.rest;
      columns.source[n] = packed.source;
      columns.destination[n] = packed.destination;
      const uint64_t halves[4] = {keys[k].src_hi, keys[k].src_lo, keys[k].dst_hi, keys[k].dst_lo};
      for (size_t h = 0; six && h < 4; ++h) columns.halves[h][n] = halves[h];
      // One of a trace may have more than a packet can.
      if (!(view.key(n) == keys[k])) continue;
      places[n++] = k;
      if (n == limit) run();
    }
    if (n != 0) run();
  }
}

template <typename Algorithm>
void check_image(const Image& built, const std::vector<FlowKey>& keys, const std::vector<uint32_t>& want) {
  using View = typename Algorithm::View;
  const auto loaded = Image::from_bytes(built.bytes(), ImageKind::kAcl);
  ASSERT_TRUE(loaded.ok()) << to_string(loaded.error());
  const std::string name = Algorithm::kName;
  for (const Image* image : {&built, &*loaded}) {
    auto view = View::open(*image);
    ASSERT_TRUE(view.ok()) << to_string(view.error());
    std::vector<uint32_t> single;
    for (const FlowKey& key : keys) single.push_back(view->lookup(key));
    expect_same(want, single, keys, name + " lookup");
    expect_same(want,
                in_bursts(keys, [&](const FlowKey* const* k, uint32_t* r,
                                    size_t n) { look_up_burst([&] { return view->lookup_burst(k, r, n); }, k, n); }),
                keys, name + " lookup_burst");
    if constexpr (requires { view->lookup_team(keys[0], OneLane{}); }) {
      std::vector<uint32_t> team;
      for (const FlowKey& key : keys) team.push_back(view->lookup_team(key, OneLane{}));
      expect_same(want, team, keys, name + " lookup_team");
    }
    if constexpr (requires { View::isa_available(AclIsa::kScalar); }) {
      for (AclIsa isa : {AclIsa::kScalar, AclIsa::kAvx2, AclIsa::kAvx512}) {
        if (!View::isa_available(isa)) continue;
        expect_same(want,
                    in_bursts(keys,
                              [&](const FlowKey* const* k, uint32_t* r, size_t n) {
                                look_up_burst([&] { return view->lookup_burst_on(isa, k, r, n); }, k, n);
                              }),
                    keys, name + " lookup_burst_on " + std::to_string(static_cast<int>(isa)));
        if constexpr (requires { &View::lookup_columns_on; }) {
          check_columns(keys, want, name + " lookup_columns_on " + std::to_string(static_cast<int>(isa)),
                        [&](auto&&... a) { view->lookup_columns_on(isa, a...); });
        }
      }
    }
    if constexpr (detail::AclOffered<Algorithm>) {
      auto any = AclView::open(*image);
      ASSERT_TRUE(any.ok()) << to_string(any.error());
      expect_same(want,
                  in_bursts(keys, [&](const FlowKey* const* k, uint32_t* r,
                                      size_t n) { look_up_burst([&] { return any->lookup_burst(k, r, n); }, k, n); }),
                  keys, name + " through AclView");
      if (!keys.empty()) {
        EXPECT_EQ(any->lookup(keys[0]), want[0]);
      }
    }
  }
  auto first = View::open(built);
  const View moved = relocated(*first, built.bytes().data(), loaded->bytes().data());
  for (size_t i = 0; i < std::min<size_t>(keys.size(), 64); ++i) EXPECT_EQ(moved.lookup(keys[i]), want[i]);
}

// Everything that one algorithm offers, against `want`; with its images for each target, where these differ.
template <typename Algorithm>
void check_algorithm(const RuleSet& set, std::vector<FlowKey> keys, std::vector<uint32_t> want) {
  // A search of every rule is the oracle's own loop: on large sets a few keys say as much as all of them.
  if constexpr (requires { Algorithm::kComparesAll; }) {
    if (set.rules.size() > 5000) {
      keys.resize(std::min<size_t>(keys.size(), 40));
      want.resize(keys.size());
    }
  }
  auto built = Algorithm::build(set);
  ASSERT_TRUE(built.ok()) << to_string(built.error());
  check_image<Algorithm>(*built, keys, want);
  if constexpr (requires { Algorithm::build(set, TableTarget::kGpu); }) {
    auto for_device = Algorithm::build(set, TableTarget::kGpu);
    ASSERT_TRUE(for_device.ok()) << to_string(for_device.error());
    if (!std::ranges::equal(built->bytes(), for_device->bytes())) check_image<Algorithm>(*for_device, keys, want);
  }
}

template <typename... Algorithms>
void check_list(AclAlgorithmList<Algorithms...>, const RuleSet& set, const std::vector<FlowKey>& keys) {
  const auto want = oracle(set, keys);
  (check_algorithm<Algorithms>(set, keys, want), ...);
}

inline void check_all_algorithms(const RuleSet& set, const std::vector<FlowKey>& keys) {
  check_list(AllAcl{}, set, keys);
}

}  // namespace sluice::acl_test

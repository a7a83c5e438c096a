#include "tables/acl/region.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>

#include "tables/acl/acl_test_support.h"

namespace sluice {
namespace {

using acl_test::below;
using acl_test::Random;

// A key that can occur, near the rules.
FlowKey occurring(FlowKey key, Random& random) {
  if (AclRegion::bit_of(key.bits) == 0) key.bits = AclRegion::kOccurring[below(random, AclRegion::kOccurring.size())];
  if ((key.bits & (FlowKey::kNoFlags | FlowKey::kLaterFragment)) != 0) {
    key.flags = 0;
    key.icmp &= 0xff00;
  }
  if ((key.bits & (FlowKey::kNoIcmpType | FlowKey::kLaterFragment)) != 0) key.icmp &= 0x00ff;
  if (key.family == 0) key.family = 4;
  if (key.family == 4) {
    key.src_hi = key.dst_hi = 0;
    key.src_lo &= 0xffffffff;
    key.dst_lo &= 0xffffffff;
  }
  return key;
}

AclRegion random_region(Random& random) {
  while (true) {
    AclRule rule = acl_test::random_rule(random);
    // Short prefixes, so that regions meet.
    if (auto region = region_of(flatten(rule, 1))) {
      if (acl_test::chance(random, 30)) region->protocols[0] &= ~(uint64_t{1} << 6 | uint64_t{1} << 17);
      if (acl_test::chance(random, 30)) region->dscp &= ~uint64_t{0} << 40;
      const uint64_t any = region->protocols[0] | region->protocols[1] | region->protocols[2] | region->protocols[3];
      if (any != 0 && region->dscp != 0) return *region;
    }
  }
}

TEST(AclRegion, HasTheKeysThatItsRuleMatches) {
  Random random(1);
  for (int i = 0; i < 3000; ++i) {
    const AclRule rule = acl_test::random_rule(random);
    const AclMatchRule flat = flatten(rule, 1);
    const auto region = region_of(flat);
    for (int k = 0; k < 4; ++k) {
      const FlowKey key = occurring(k < 3 ? acl_test::key_in(rule, random) : acl_test::random_key(random), random);
      EXPECT_EQ(region && contains(*region, key), matches(flat, key));
    }
  }
}

TEST(AclRegion, OfImpossibleBitsIsNothing) {
  AclRule rule;
  rule.bits_mask = FlowKey::kFragment | FlowKey::kLaterFragment;
  rule.bits = FlowKey::kLaterFragment;  // a later fragment that is not a fragment
  EXPECT_FALSE(region_of(flatten(rule, 1)).has_value());
  rule.bits |= FlowKey::kFragment;
  EXPECT_TRUE(region_of(flatten(rule, 1)).has_value());
  rule.needs_ports = true;
  EXPECT_FALSE(region_of(flatten(rule, 1)).has_value());
}

TEST(AclRegion, KeysOfARegionAreInIt) {
  Random random(2);
  for (int i = 0; i < 2000; ++i) {
    const AclRegion region = random_region(random);
    for (uint64_t draw = 0; draw < 8; ++draw) ASSERT_TRUE(contains(region, key_of(region, draw))) << i << " " << draw;
  }
}

TEST(AclRegion, IntersectsContainsAndSubtractsAsSetsDo) {
  Random random(3);
  size_t met = 0, inside = 0;
  for (int i = 0; i < 6000; ++i) {
    const AclRegion a = random_region(random);
    AclRegion b = random_region(random);
    if (i % 2 == 0) {  // one that shares fields with a
      b.src = a.src;
      b.families = a.families;
      b.dst = a.families == 3 || i % 4 == 0 ? AclRegion::Addresses{} : a.dst;
      b.only_families(b.families);
      if (i % 3 == 0) b.flags = b.icmp = {};
      if (i % 5 == 0) b.src_port = b.dst_port = {};
      if (i % 7 == 0) b.protocols = a.protocols;
      if (i % 3 == 0) b.bits = AclRegion::kBitsThatOccur;
    }
    const auto common = intersect(a, b);
    std::vector<AclRegion> pieces;
    subtract(a, b, pieces);
    met += common ? 1 : 0;
    inside += contains(b, a) ? 1 : 0;
    EXPECT_EQ(contains(b, a), pieces.empty());
    EXPECT_EQ(contains(b, a), common && *common == a);
    std::vector<FlowKey> keys;
    for (uint64_t draw = 0; draw < 6; ++draw) {
      keys.push_back(key_of(a, draw));
      keys.push_back(key_of(b, draw));
      if (common) keys.push_back(key_of(*common, draw));
    }
    for (const AclRegion& piece : pieces) keys.push_back(key_of(piece, below(random, 1000)));
    for (const FlowKey& key : keys) {
      const bool in_a = contains(a, key), in_b = contains(b, key);
      ASSERT_EQ(common && contains(*common, key), in_a && in_b);
      size_t in = 0;
      for (const AclRegion& piece : pieces) in += contains(piece, key) ? 1 : 0;
      ASSERT_EQ(in, in_a && !in_b ? 1u : 0u) << "disjoint pieces of what is left";
    }
  }
  EXPECT_GT(met, 500u);
  EXPECT_GT(inside, 20u);
}

TEST(AclRegion, WritesRulesThatMatchItsKeys) {
  Random random(4);
  for (int i = 0; i < 2000; ++i) {
    const AclRegion region = random_region(random);
    AclRule like;
    like.verb = AclVerb::kMark;
    like.mark = 7;
    like.line = 3;
    std::vector<AclRule> rules;
    append_rules(region, like, rules);
    ASSERT_EQ(rules.size(), rule_count(region));
    for (const AclRule& rule : rules) {
      ASSERT_EQ(acl_rule_fault(rule), nullptr);
      EXPECT_EQ(rule.mark, 7u);
      EXPECT_EQ(rule.line, 3u);
    }
    std::vector<FlowKey> keys{occurring(acl_test::random_key(random), random)};
    for (uint64_t draw = 0; draw < 6; ++draw) {
      keys.push_back(occurring(key_of(region, draw), random));
      keys.push_back(keys.back());
      keys.back().protocol = static_cast<uint8_t>(random());
      keys.push_back(keys[keys.size() - 2]);
      keys.back().dscp = static_cast<uint8_t>(below(random, 64));
      keys.back().bits = static_cast<uint8_t>(below(random, 128));
      keys.back() = occurring(keys.back(), random);
    }
    for (const FlowKey& key : keys) {
      bool matched = false;
      for (const AclRule& rule : rules) matched |= matches(flatten(rule, 1), key);
      ASSERT_EQ(matched, contains(region, key));
    }
  }
}

TEST(AclRegion, RangesAreTheFewestPrefixes) {
  const IpAddress all_ones{~uint64_t{0}, ~uint64_t{0}, 6};
  EXPECT_EQ(prefixes_of_range({0, 0, 4}, {0, 0xffffffff, 4}), (std::vector<IpPrefix>{{{0, 0, 4}, 0}}));
  EXPECT_EQ(prefixes_of_range({0, 0, 6}, all_ones), (std::vector<IpPrefix>{{{0, 0, 6}, 0}}));
  EXPECT_EQ(prefixes_of_range(all_ones, all_ones), (std::vector<IpPrefix>{{all_ones, 128}}));
  EXPECT_EQ(prefixes_of_range({0, 1, 4}, {0, 0xffffffff, 4}).size(), 32u);
  EXPECT_EQ(prefixes_of_range({0, 1, 6}, {~uint64_t{0}, ~uint64_t{0} - 1, 6}).size(), 254u);
  EXPECT_TRUE(prefixes_of_range({0, 2, 4}, {0, 1, 4}).empty());
  Random random(6);
  for (int i = 0; i < 300; ++i) {
    const uint64_t a = below(random, 4000), b = a + below(random, 4000);
    uint64_t next = a;
    for (const IpPrefix& p : prefixes_of_range({0, a, 4}, {0, b, 4})) {
      ASSERT_EQ(p.address.lo, next);
      next += uint64_t{1} << (32 - p.length);
    }
    EXPECT_EQ(next, b + 1);
  }
}

TEST(AclRegion, UsesFewRules) {
  AclRegion region;
  EXPECT_EQ(rule_count(region), 1u);
  region.protocols[0] &= ~(uint64_t{1} << 6);  // all but TCP
  EXPECT_EQ(rule_count(region), 8u);
  region.only_bits(0, FlowKey::kLaterFragment);
  EXPECT_EQ(rule_count(region), 8u);
  region.dscp &= ~uint64_t{1};
  EXPECT_EQ(rule_count(region), 8u * 63);
}

TEST(AclRegion, HullsContainBoth) {
  Random random(8);
  for (int i = 0; i < 2000; ++i) {
    const AclRegion a = random_region(random), b = random_region(random), both = hull(a, b);
    EXPECT_TRUE(contains(both, a));
    EXPECT_TRUE(contains(both, b));
    EXPECT_EQ(hull(a, a), a);
  }
}

TEST(AclRegion, ClustersOfAddressesAreThoseThatCostLeast) {
  // All values of the 16 addresses of a prefix, against every way to cut it.
  using Addresses = AclRegion::Addresses;
  for (unsigned set = 1; set < 65536; set += 7) {
    std::vector<Addresses> values;
    for (unsigned i = 0; i < 16; ++i) {
      if ((set >> i & 1) != 0) values.push_back({{0, i}, {0, i}});
    }
    const uint64_t inside = 1 + set % 11, outside = 1 + set % 3;
    struct Best {
      uint64_t around, all;
    };
    std::function<Best(unsigned, unsigned)> best = [&](unsigned first, unsigned size) -> Best {
      const unsigned here = set >> first & ((1u << size) - 1);
      if (here == 0) return {1, 0};
      if (here == (1u << size) - 1) return {0, inside};
      const Best a = best(first, size / 2), b = best(first + size / 2, size / 2);
      return {a.around + b.around, std::min(a.all + b.all, (a.around + b.around) * outside + inside)};
    };
    const auto found = cluster_addresses(values, 4, inside, outside);
    const uint64_t each = values.size() * inside, want = best(0, 16).all;
    if (found.empty()) {
      EXPECT_GE(want, each);
      continue;
    }
    uint64_t cost = 0;
    for (const Addresses& v : values) {
      EXPECT_TRUE(std::any_of(found.begin(), found.end(),
                              [&](const Addresses& f) { return f.low <= v.low && v.high <= f.high; }));
    }
    for (const Addresses& f : found) {
      const auto size = static_cast<unsigned>(f.high.lo - f.low.lo + 1);
      ASSERT_LE(f.high.lo, 15u);
      std::function<uint64_t(unsigned, unsigned)> around = [&](unsigned first, unsigned n) -> uint64_t {
        const unsigned here = set >> first & ((1u << n) - 1);
        if (here == 0) return 1;
        return here == (1u << n) - 1 ? 0 : around(first, n / 2) + around(first + n / 2, n / 2);
      };
      cost += inside + outside * around(static_cast<unsigned>(f.low.lo), size);
    }
    EXPECT_EQ(cost, want);
    EXPECT_LT(cost, each);
  }
}

TEST(AclRegion, UnionsKeepAndLoseParts) {
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    std::vector<AclRegion> list, what;
    for (int k = 0; k < 4; ++k) {
      list.push_back(random_region(random));
      what.push_back(random_region(random));
      what.back().families = 3;
      what.back().src = what.back().dst = {};
    }
    auto kept = list, left = list;
    ASSERT_TRUE(keep_only(kept, what, 1000));
    ASSERT_TRUE(take_away(left, what, 100000));
    auto has = [](const std::vector<AclRegion>& in, const FlowKey& key) {
      return std::any_of(in.begin(), in.end(), [&](const AclRegion& r) { return contains(r, key); });
    };
    for (const AclRegion& r : list) {
      for (uint64_t draw = 0; draw < 10; ++draw) {
        const FlowKey key = key_of(r, draw);
        EXPECT_EQ(has(kept, key), has(what, key));
        EXPECT_EQ(has(left, key), !has(what, key));
      }
    }
    EXPECT_FALSE(keep_only(list, std::vector<AclRegion>(3), 2)) << "a limit is a limit";
  }
}

}  // namespace
}  // namespace sluice

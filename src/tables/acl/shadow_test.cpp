#include "tables/acl/shadow.h"

#include <gtest/gtest.h>

#include <map>

#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"

namespace sluice {
namespace {

using acl_test::below;
using acl_test::chance;
using acl_test::Random;
using Kind = RuleFinding::Kind;

struct Built {
  explicit Built(const RuleSet& set) : image(LinearAcl::build(set).value()) {
    rules = AclRulesView::open(image).value();
    actions = AclActionsView::open(image).value();
  }
  Image image;
  AclRulesView rules;
  AclActionsView actions;
};

std::vector<RuleFinding> find(const RuleSet& set, const ShadowOptions& options = {}) {
  const Built built(set);
  return find_shadowed(built.rules, built.actions, options);
}

// Rules over few values of each field, so that they cover each other, and one key for each class of keys that such
// rules can tell apart.
AclRule small_rule(Random& random) {
  AclRule r;
  if (chance(random, 70)) {
    r.family = chance(random, 75) ? 4 : 6;
    auto prefix = [&](IpPrefix& p) {
      if (chance(random, 40)) return;
      p.address.family = r.family;
      p.address.lo = 0x0a000000 + below(random, 4);
      p.length = static_cast<uint8_t>((r.family == 4 ? 32 : 128) - below(random, 3));
      p.address.lo &= ~uint64_t{0} << ((r.family == 4 ? 32 : 128) - p.length);
    };
    prefix(r.src);
    prefix(r.dst);
  }
  if (chance(random, 40)) {
    r.dst_port_low = static_cast<uint16_t>(below(random, 3));
    r.dst_port_high = chance(random, 30) ? 65535 : static_cast<uint16_t>(r.dst_port_low + below(random, 3));
  }
  if (chance(random, 15)) r.src_port_high = 0;
  if (chance(random, 40)) {
    r.protocol_mask = chance(random, 70) ? 0xff : 0x01;
    r.protocol = (chance(random, 50) ? 6 : 17) & r.protocol_mask;
  }
  if (chance(random, 25)) {
    r.flags_mask = static_cast<uint16_t>(0x0200 * (1 + below(random, 2)));
    r.flags = chance(random, 50) ? r.flags_mask : uint16_t{0};
  }
  if (chance(random, 25)) {
    r.bits_mask = static_cast<uint8_t>(2 * (1 + below(random, 3)));
    r.bits = static_cast<uint8_t>(below(random, 8)) & r.bits_mask;
  }
  if (chance(random, 15)) r.needs_ports = true;
  if (chance(random, 10)) r.dscp = static_cast<uint8_t>(below(random, 2));
  r.verb = chance(random, 50) ? AclVerb::kPermit : AclVerb::kDeny;
  return r;
}

std::vector<FlowKey> all_classes() {
  std::vector<FlowKey> keys;
  FlowKey k;
  for (uint8_t family : {4, 6}) {
    k.family = family;
    for (uint64_t src : {0x0a000000u, 0x0a000001u, 0x0a000002u, 0x0a000003u, 0x0b000000u}) {
      k.src_lo = src;
      for (uint64_t dst : {0x0a000000u, 0x0a000001u, 0x0a000002u, 0x0a000003u, 0x0b000000u}) {
        k.dst_lo = dst;
        for (uint16_t port : {0, 1, 2, 3, 4, 65535}) {
          k.dst_port = port;
          for (uint16_t src_port : {0, 1}) {
            k.src_port = src_port;
            for (uint8_t protocol : {6, 17, 8, 9}) {
              k.protocol = protocol;
              for (uint16_t flags : {0x0000, 0x0200, 0x0400, 0x0600}) {
                k.flags = flags;
                for (uint8_t bits : {0, 1, 2, 3, 6}) {
                  k.bits = bits;
                  // Three values of DSCP in turn instead of all: another field of their own would triple the keys.
                  for (uint8_t dscp : {0, 1, 2}) {
                    k.dscp = dscp;
                    keys.push_back(k);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return keys;
}

// The definition, key by key, in the order that shadow.h gives: first what is never reached, then, one rule at a time
// and from the top, what changes nothing.
std::map<uint32_t, Kind> by_definition(const RuleSet& set, const std::vector<FlowKey>& keys, AclVerb unmatched) {
  const size_t n = set.rules.size();
  std::vector<AclMatchRule> flat;
  for (const AclRule& r : set.rules) flat.push_back(flatten(r, 1));
  std::vector<uint32_t> masks;  // bit r: rule r matches the key
  masks.reserve(keys.size());
  uint32_t ever = 0, first = 0;
  for (const FlowKey& key : keys) {
    uint32_t mask = 0;
    for (size_t r = 0; r < n; ++r) mask |= uint32_t{matches(flat[r], key)} << r;
    masks.push_back(mask);
    ever |= mask;
    first |= mask & (~mask + 1);
  }
  std::sort(masks.begin(), masks.end());
  masks.erase(std::unique(masks.begin(), masks.end()), masks.end());
  std::map<uint32_t, Kind> found;
  uint32_t gone = 0;
  for (uint32_t r = 0; r < n; ++r) {
    if ((first >> r & 1) != 0) continue;
    found[r + 1] = (ever >> r & 1) != 0 ? Kind::kShadowed : Kind::kImpossible;
    gone |= 1u << r;
  }
  auto verdict = [&](uint32_t mask) {
    return mask == 0 ? unmatched : set.rules[static_cast<size_t>(__builtin_ctz(mask))].verb;
  };
  for (uint32_t r = 0; r < n; ++r) {
    if ((gone >> r & 1) != 0) continue;
    const bool same = std::all_of(masks.begin(), masks.end(), [&](uint32_t mask) {
      return verdict(mask & ~gone) == verdict(mask & ~gone & ~(1u << r));
    });
    if (!same) continue;
    found[r + 1] = Kind::kRedundant;
    gone |= 1u << r;
  }
  return found;
}

TEST(Shadow, AgreesWithTheDefinitionOnEveryClassOfKeys) {
  const char* scale = std::getenv("SLUICE_TEST_SCALE");
  const int rounds = 120 * (scale != nullptr ? std::max(1, std::atoi(scale)) : 1);
  const auto keys = all_classes();
  std::map<Kind, size_t> seen;
  for (int i = 0; i < rounds; ++i) {
    Random random(static_cast<uint64_t>(i) + 1);
    RuleSet set;
    const size_t n = 2 + below(random, 12);
    for (size_t r = 0; r < n; ++r) set.rules.push_back(small_rule(random));
    for (AclVerb unmatched : {AclVerb::kNone, AclVerb::kDeny}) {
      ShadowOptions options;
      options.unmatched = unmatched;
      std::map<uint32_t, Kind> got;
      for (const RuleFinding& f : find(set, options)) {
        got[f.rule] = f.kind;
        ++seen[f.kind];
        for (uint32_t by : f.by) EXPECT_EQ(by < f.rule, f.kind == Kind::kShadowed);
      }
      ASSERT_EQ(got, by_definition(set, keys, unmatched)) << "seed " << i + 1;
    }
  }
  EXPECT_GT(seen[Kind::kShadowed], 50u);
  EXPECT_GT(seen[Kind::kRedundant], 50u);
  EXPECT_GT(seen[Kind::kImpossible], 5u);
  EXPECT_EQ(seen[Kind::kUndecided], 0u);
}

// Larger random lists: without what is reported, every packet has the same verdict.
TEST(Shadow, ReportsRulesThatCanBeRemovedTogether) {
  for (uint64_t seed : {1, 2, 3}) {
    Random random(seed);
    RuleSet set = acl_test::random_set(random, 600);
    for (size_t r = 0; r < 600; r += 3) set.rules[r].keep = set.rules[r].verb != AclVerb::kDeny;
    for (size_t r = 100; r < 160; ++r) set.rules[r] = set.rules[below(random, 100)];
    const auto findings = find(set);
    EXPECT_GT(findings.size(), 50u);
    std::vector<bool> gone(set.rules.size());
    for (const RuleFinding& f : findings) {
      ASSERT_NE(f.kind, Kind::kUndecided);
      gone[f.rule - 1] = true;
    }
    std::vector<AclMatchRule> flat;
    for (const AclRule& r : set.rules) flat.push_back(flatten(r, 1));
    for (FlowKey key : acl_test::keys_for(set, 20000, random)) {
      if ((key.bits & FlowKey::kLaterFragment) != 0) key.bits = 6;
      if (key.family == 0) continue;
      const AclRule *all = nullptr, *kept = nullptr;
      for (size_t r = 0; r < flat.size() && kept == nullptr; ++r) {
        if (!matches(flat[r], key)) continue;
        if (all == nullptr) all = &set.rules[r];
        if (!gone[r]) kept = &set.rules[r];
      }
      ASSERT_EQ(all == nullptr, kept == nullptr);
      if (all == nullptr) continue;
      ASSERT_EQ(all->verb, kept->verb);
      ASSERT_EQ(all->mark, kept->mark);
      ASSERT_EQ(all->log, kept->log);
      ASSERT_EQ(all->keep, kept->keep);
    }
  }
}

TEST(Shadow, NamesTheRulesAndTheConflict) {
  RuleSet set;
  auto add = [&](uint16_t low, uint16_t high, AclVerb verb) {
    AclRule r;
    r.dst_port_low = low;
    r.dst_port_high = high;
    r.verb = verb;
    set.rules.push_back(r);
  };
  add(0, 99, AclVerb::kPermit);
  add(100, 199, AclVerb::kDeny);
  add(50, 60, AclVerb::kPermit);    // 3: inside of 1
  add(50, 150, AclVerb::kPermit);   // 4: inside of 1 and 2 together, and 2 says otherwise
  add(300, 310, AclVerb::kPermit);  // 5: 6 does the same
  add(200, 400, AclVerb::kPermit);
  const auto found = find(set);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], (RuleFinding{3, Kind::kShadowed, {1}, 1, false}));
  EXPECT_EQ(found[1], (RuleFinding{4, Kind::kShadowed, {1, 2}, 2, true}));
  EXPECT_EQ(found[2], (RuleFinding{5, Kind::kRedundant, {6}, 1, false}));
}

TEST(Shadow, SaysWhenItDoesNotKnow) {
  // The last rule is what is left when boxes of every shape are taken away: many pieces.
  Random random(9);
  RuleSet set;
  for (int i = 0; i < 20; ++i) {
    AclRule r;
    r.src_port_low = static_cast<uint16_t>(below(random, 60000));
    r.src_port_high = static_cast<uint16_t>(r.src_port_low + 5000);
    r.flags_mask = static_cast<uint16_t>(random() & 0xff00);
    r.flags = static_cast<uint16_t>(random()) & r.flags_mask;
    set.rules.push_back(r);
  }
  AclRule all;  // covered by these two, which the search meets last
  AclRule low = all, high = all;
  low.dst_port_high = 40000;
  high.dst_port_low = 40001;
  set.rules.push_back(low);
  set.rules.push_back(high);
  set.rules.push_back(all);
  ShadowOptions options;
  options.rule_steps = 100;
  auto last = find(set, options).back();
  EXPECT_EQ(last.rule, 23u);
  EXPECT_EQ(last.kind, Kind::kUndecided);
  options = {};
  last = find(set, options).back();
  EXPECT_EQ(last.kind, Kind::kShadowed);
  options.steps = 0;
  for (const RuleFinding& f : find(set, options)) EXPECT_EQ(f.kind, Kind::kUndecided);
  EXPECT_EQ(find(set, options).size(), set.rules.size());
}

TEST(Shadow, StopsWhenAsked) {
  Random random(4);
  const Built built(acl_test::random_set(random, 50));
  const auto found = find_shadowed(built.rules, built.actions, {}, [](size_t) { return false; });
  EXPECT_EQ(found.size(), 50u);
  for (const RuleFinding& f : found) EXPECT_TRUE(f.kind == Kind::kUndecided || f.kind == Kind::kImpossible);
}

}  // namespace
}  // namespace sluice

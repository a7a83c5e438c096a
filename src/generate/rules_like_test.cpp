#include "generate/rules_like.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "formats/native_rules.h"
#include "generate/rules.h"

namespace sluice {
namespace {

RuleSet given(RuleShape shape, uint32_t count, double ipv6 = 0.3) {
  auto text = generate_rules({.shape = shape, .count = count, .seed = 5, .ipv6_fraction = ipv6});
  EXPECT_TRUE(text.ok());
  auto set = parse_native_rules(*text, "given");
  EXPECT_TRUE(set.ok());
  return set.ok() ? *set : RuleSet{};
}

RuleSet like(const RuleSet& set, uint32_t count, uint64_t seed = 1) {
  auto made = generate_rules_like(set, {count, seed});
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : to_string(made.error()));
  return made.ok() ? *made : RuleSet{};
}

using Shares = std::map<std::tuple<int, int, int>, double>;

template <typename Of>
Shares shares(const RuleSet& set, Of&& of) {
  Shares out;
  for (const AclRule& r : set.rules) out[of(r)] += 1.0 / static_cast<double>(set.rules.size());
  return out;
}

// Half of the sum of differences: 0 for equal distributions, 1 for disjoint ones.
double distance(const Shares& a, const Shares& b) {
  double sum = 0;
  for (const auto& [key, share] : a) sum += std::abs(share - (b.contains(key) ? b.at(key) : 0));
  for (const auto& [key, share] : b) sum += a.contains(key) ? 0 : share;
  return sum / 2;
}

int port_class(uint16_t low, uint16_t high) {
  return low == 0 && high == 65535 ? 0 : low == high ? 1 : low == 1024 && high == 65535 ? 2 : 3;
}

// The share of rules whose source (destination) prefix lies inside a shorter one of the list, other than the whole.
double nested(const RuleSet& set, bool src) {
  std::set<std::tuple<int, int, uint64_t, uint64_t>> there;
  const auto cut = [](const IpPrefix& p, unsigned length) {
    const unsigned wide = p.address.family == 4 ? 96 + length : length;
    return std::tuple(int{p.address.family}, static_cast<int>(length), p.address.hi & high_mask64(std::min(wide, 64u)),
                      p.address.lo & high_mask64(wide > 64 ? wide - 64 : 0));
  };
  for (const AclRule& r : set.rules) there.insert(cut(src ? r.src : r.dst, (src ? r.src : r.dst).length));
  size_t n = 0;
  for (const AclRule& r : set.rules) {
    const IpPrefix& p = src ? r.src : r.dst;
    bool inside = false;
    for (unsigned length = 8; length < p.length && !inside; ++length) inside = there.contains(cut(p, length));
    n += inside ? 1 : 0;
  }
  return static_cast<double>(n) / static_cast<double>(set.rules.size());
}

TEST(RulesLike, MoreRulesHaveTheSharesOfTheGiven) {
  for (const RuleShape shape : {RuleShape::kAcl, RuleShape::kFw, RuleShape::kIpc}) {
    const RuleSet set = given(shape, 1000);
    const RuleSet made = like(set, 7300);
    ASSERT_EQ(made.rules.size(), 7300u);
    const auto near = [&](auto&& of) { return distance(shares(set, of), shares(made, of)); };
    EXPECT_LT(near([](const AclRule& r) { return std::tuple(int{r.family}, int{r.src.length}, int{r.dst.length}); }),
              0.03);
    EXPECT_LT(near([](const AclRule& r) {
                return std::tuple(port_class(r.src_port_low, r.src_port_high),
                                  port_class(r.dst_port_low, r.dst_port_high), int{r.protocol});
              }),
              0.03);
    EXPECT_LT(near([](const AclRule& r) { return std::tuple(int{r.flags}, int{r.flags_mask}, int{r.protocol_mask}); }),
              0.03);
    EXPECT_LT(near([](const AclRule& r) { return std::tuple(static_cast<int>(r.verb), int{r.log}, 0); }), 0.03);
    // A little more: copies come to lie inside short prefixes of others.
    for (const bool src : {true, false}) EXPECT_NEAR(nested(set, src), nested(made, src), 0.1);
  }
}

TEST(RulesLike, EveryRuleIsADifferentOneThatParsesBack) {
  const RuleSet set = given(RuleShape::kIpc, 400);
  const RuleSet made = like(set, 3000);
  const auto parsed = parse_native_rules(to_native(made), "made");
  ASSERT_TRUE(parsed.ok());
  ASSERT_EQ(parsed->rules.size(), made.rules.size());
  std::set<std::string> lines;
  for (size_t i = 0; i < made.rules.size(); ++i) {
    EXPECT_TRUE(same_match(flatten(parsed->rules[i], 1), flatten(made.rules[i], 1))) << i;
    lines.insert(to_native(made.rules[i]).substr(to_native(made.rules[i]).find(' ')));
  }
  EXPECT_EQ(lines.size(), made.rules.size());
  // The given rules are there, in their order.
  size_t next = 0;
  for (const AclRule& r : made.rules) next += next < set.rules.size() && r == set.rules[next] ? 1 : 0;
  EXPECT_EQ(next, set.rules.size());
}

TEST(RulesLike, FewerRulesAreASampleInOrder) {
  const RuleSet set = given(RuleShape::kAcl, 500);
  const RuleSet made = like(set, 120);
  ASSERT_EQ(made.rules.size(), 120u);
  size_t at = 0;
  for (const AclRule& r : made.rules) {
    while (at < set.rules.size() && !(set.rules[at] == r)) ++at;
    ASSERT_LT(at, set.rules.size());
    ++at;
  }
  EXPECT_EQ(like(set, 500).rules, set.rules);
}

TEST(RulesLike, SameSeedSameRules) {
  const RuleSet set = given(RuleShape::kFw, 200);
  EXPECT_EQ(like(set, 1500, 3).rules, like(set, 1500, 3).rules);
  EXPECT_NE(like(set, 1500, 3).rules, like(set, 1500, 4).rules);
}

TEST(RulesLike, SaysWhatItCannotDo) {
  EXPECT_FALSE(generate_rules_like(RuleSet{}, {10, 1}).ok());
  EXPECT_FALSE(generate_rules_like(given(RuleShape::kAcl, 10), {1'000'001, 1}).ok());
  RuleSet everything;  // nothing to move: a second rule would be the first again
  everything.rules.resize(1);
  EXPECT_FALSE(generate_rules_like(everything, {2, 1}).ok());
  EXPECT_EQ(like(everything, 1).rules.size(), 1u);
}

}  // namespace
}  // namespace sluice

// Generated rule sets: exact counts, no duplicates, nothing buried, the shape that was asked for, and the same bytes
// for a seed.
#include "generate/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "generate/random.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

auto as_tuple(const FlowRegion& r) {
  return std::tuple(r.src.address.family, r.src.address.hi, r.src.address.lo, r.src.length, r.dst.address.hi,
                    r.dst.address.lo, r.dst.length, r.src_port.low, r.src_port.high, r.dst_port.low, r.dst_port.high,
                    r.protocol, r.protocol_mask, r.flags, r.flags_mask);
}

bool prefix_inside(const IpPrefix& inner, const IpPrefix& outer) {
  if (inner.address.family != outer.address.family || inner.length < outer.length) return false;
  if (inner.address.family == 4) {
    return ((inner.address.lo ^ outer.address.lo) & high_mask32(outer.length)) == 0;
  }
  return ((inner.address.hi ^ outer.address.hi) & high_mask64(std::min<unsigned>(outer.length, 64))) == 0 &&
         ((inner.address.lo ^ outer.address.lo) & high_mask64(outer.length > 64 ? outer.length - 64u : 0)) == 0;
}

bool inside(const FlowRegion& a, const FlowRegion& b) {
  auto bits = [](unsigned va, unsigned ma, unsigned vb, unsigned mb) {
    return (mb & ~ma) == 0 && ((va ^ vb) & mb) == 0;
  };
  return prefix_inside(a.src, b.src) && prefix_inside(a.dst, b.dst) && a.src_port.low >= b.src_port.low &&
         a.src_port.high <= b.src_port.high && a.dst_port.low >= b.dst_port.low && a.dst_port.high <= b.dst_port.high &&
         bits(a.protocol, a.protocol_mask, b.protocol, b.protocol_mask) &&
         bits(a.flags, a.flags_mask, b.flags, b.flags_mask);
}

uint64_t hash_of(const std::string& text) {
  uint64_t h = text.size();
  for (const char c : text) h = mix64(h ^ static_cast<unsigned char>(c));
  return h;
}

std::vector<FlowRegion> rules_of(const RulesOptions& options) {
  auto rules = generate_rule_regions(options);
  EXPECT_TRUE(rules.ok());
  return rules.ok() ? *rules : std::vector<FlowRegion>{};
}

class RuleShapes : public ::testing::TestWithParam<RuleShape> {};
INSTANTIATE_TEST_SUITE_P(All, RuleShapes, ::testing::Values(RuleShape::kAcl, RuleShape::kFw, RuleShape::kIpc),
                         [](const auto& shape) { return std::string(to_string(shape.param)); });

TEST_P(RuleShapes, CountsAreExactAndRulesDistinct) {
  for (const uint32_t count : {10u, 1000u, 30'000u}) {
    for (const double ipv6 : {0.0, 0.3, 1.0}) {
      const auto rules = rules_of({.shape = GetParam(), .count = count, .seed = 7, .ipv6_fraction = ipv6});
      ASSERT_EQ(rules.size(), count);
      std::set<decltype(as_tuple(rules[0]))> seen;
      size_t six = 0;
      for (const FlowRegion& r : rules) {
        EXPECT_TRUE(seen.insert(as_tuple(r)).second);
        six += r.src.address.family == 6;
        EXPECT_EQ(r.src.address.family, r.dst.address.family);
        EXPECT_LE(r.src_port.low, r.src_port.high);
        EXPECT_LE(r.dst_port.low, r.dst_port.high);
        for (const IpPrefix& p : {r.src, r.dst}) {
          if (p.address.family == 6) {
            EXPECT_TRUE(p.length == 0 || p.address.hi >> 61 == 1);
          }
          EXPECT_EQ(prefix_around(p.address, p.length), p);
        }
      }
      EXPECT_EQ(six, static_cast<size_t>(count * ipv6 + 0.5));
    }
  }
}

TEST_P(RuleShapes, SpecificComesBeforeGeneral) {
  const auto rules =
      rules_of({.shape = GetParam(), .count = 1500, .seed = 3, .ipv6_fraction = 0.25, .default_rule = true});
  size_t nested = 0;
  for (size_t i = 0; i < rules.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      ASSERT_FALSE(inside(rules[i], rules[j])) << i << " is buried under " << j;
      nested += inside(rules[j], rules[i]);
    }
  }
  EXPECT_GT(nested, 20u);  // lists without overlap would be too easy
}

TEST_P(RuleShapes, TextHasOneRuleALineInTheRightForm) {
  auto text = generate_rules({.shape = GetParam(), .count = 500, .seed = 5});
  ASSERT_TRUE(text.ok());
  std::istringstream lines(*text);
  const auto rules = rules_of({.shape = GetParam(), .count = 500, .seed = 5});
  std::string line;
  size_t n = 0;
  for (; std::getline(lines, line); ++n) {
    unsigned a[4], b[4], la, lb, p[4], proto, proto_mask, flags, flags_mask;
    int end = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "@%u.%u.%u.%u/%u\t%u.%u.%u.%u/%u\t%u : %u\t%u : %u\t0x%2X/0x%2X\t0x%4X/0x%4X%n",
                          &a[0], &a[1], &a[2], &a[3], &la, &b[0], &b[1], &b[2], &b[3], &lb, &p[0], &p[1], &p[2], &p[3],
                          &proto, &proto_mask, &flags, &flags_mask, &end),
              18)
        << line;
    EXPECT_EQ(static_cast<size_t>(end), line.size());
    FlowRegion r;
    r.src = {{0, a[0] << 24 | a[1] << 16 | a[2] << 8 | a[3], 4}, static_cast<uint8_t>(la)};
    r.dst = {{0, b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3], 4}, static_cast<uint8_t>(lb)};
    r.src_port = {static_cast<uint16_t>(p[0]), static_cast<uint16_t>(p[1])};
    r.dst_port = {static_cast<uint16_t>(p[2]), static_cast<uint16_t>(p[3])};
    r.protocol = static_cast<uint8_t>(proto);
    r.protocol_mask = static_cast<uint8_t>(proto_mask);
    r.flags = static_cast<uint16_t>(flags);
    r.flags_mask = static_cast<uint16_t>(flags_mask);
    ASSERT_EQ(r, rules[n]) << line;
  }
  EXPECT_EQ(n, 500u);
}

TEST_P(RuleShapes, NativeTextIsWrittenForMixedFamilies) {
  auto text =
      generate_rules({.shape = GetParam(), .count = 400, .seed = 5, .ipv6_fraction = 0.5, .default_rule = true});
  ASSERT_TRUE(text.ok());
  size_t six = 0;
  size_t lines = 0;
  std::istringstream in(*text);
  std::string line;
  for (; std::getline(in, line); ++lines) {
    EXPECT_TRUE(line.starts_with("permit ") || line.starts_with("deny ")) << line;
    EXPECT_THAT(line, HasSubstr(" from "));
    EXPECT_THAT(line, HasSubstr(" to "));
    six += line.find("::") != std::string::npos || std::count(line.begin(), line.end(), ':') > 5;
  }
  EXPECT_EQ(lines, 400u);
  EXPECT_GT(six, 180u);
  EXPECT_TRUE(text->ends_with("ip from any to any\n"));
}

// The shape, against what was measured on sets of each kind: shares in percent, wide enough for any seed.
TEST(RulesTest, ShapesHaveTheirHistograms) {
  struct Expected {
    RuleShape shape;
    double exact_dst, any_ports, tcp, udp, src_host, src_any;  // src_any: length 0 to 2
    size_t tuples_low, tuples_high;
  };
  for (const Expected& e : {Expected{RuleShape::kAcl, 61, 27, 88, 1.2, 50, 1, 350, 800},
                            {RuleShape::kFw, 61, 17, 57, 33, 11, 65, 330, 650},
                            {RuleShape::kIpc, 39, 37, 28, 37, 17, 12, 700, 1300}}) {
    for (const uint64_t seed : {1ull, 2ull, 3ull}) {
      const auto rules = rules_of({.shape = e.shape, .count = 10'000, .seed = seed});
      size_t exact = 0, wild = 0, tcp = 0, udp = 0, host = 0, any = 0;
      std::set<std::tuple<int, int, bool, bool, bool, int>> tuples;
      std::set<std::pair<uint64_t, int>> sources;
      for (const FlowRegion& r : rules) {
        exact += r.dst_port.low == r.dst_port.high;
        wild += r.src_port == RegionPorts{} && r.dst_port == RegionPorts{};
        tcp += r.protocol == 6;
        udp += r.protocol == 17;
        host += r.src.length == 32;
        any += r.src.length <= 2;
        tuples.insert({r.src.length, r.dst.length, r.src_port.low == r.src_port.high, r.dst_port.low == r.dst_port.high,
                       r.protocol_mask != 0, r.flags_mask});
        sources.insert({r.src.address.lo, r.src.length});
      }
      const std::string what = std::string(to_string(e.shape)) + " seed " + std::to_string(seed);
      EXPECT_NEAR(static_cast<double>(exact) / 100, e.exact_dst, 6) << what;
      EXPECT_NEAR(static_cast<double>(wild) / 100, e.any_ports, 6) << what;
      EXPECT_NEAR(static_cast<double>(tcp) / 100, e.tcp, 5) << what;
      EXPECT_NEAR(static_cast<double>(udp) / 100, e.udp, 5) << what;
      EXPECT_NEAR(static_cast<double>(host) / 100, e.src_host, 6) << what;
      EXPECT_NEAR(static_cast<double>(any) / 100, e.src_any, 6) << what;
      EXPECT_GT(tuples.size(), e.tuples_low) << what;
      EXPECT_LT(tuples.size(), e.tuples_high) << what;
      EXPECT_LT(sources.size(), 4500u) << what;  // addresses are shared
      EXPECT_GT(sources.size(), 700u) << what;
    }
  }
}

TEST(RulesTest, SameSeedSameBytesEverywhere) {
  const std::pair<RulesOptions, uint64_t> golden[] = {
      {{.shape = RuleShape::kAcl, .count = 2000, .seed = 1}, 0xe0121c7441f1f3f7ull},
      {{.shape = RuleShape::kFw, .count = 2000, .seed = 1}, 0x221fbb14282f0715ull},
      {{.shape = RuleShape::kIpc, .count = 2000, .seed = 1}, 0xc754b151d1955fd7ull},
      {{.shape = RuleShape::kAcl, .count = 2000, .seed = 1, .ipv6_fraction = 0.25, .default_rule = true},
       0x54d8545e4347b309ull},
  };
  for (const auto& [options, expected] : golden) {
    auto text = generate_rules(options);
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(hash_of(*text), expected) << std::hex << hash_of(*text);
    RulesOptions other = options;
    other.seed = 2;
    EXPECT_NE(*generate_rules(other), *text);
  }
}

// A million with SLUICE_TEST_SCALE=10.
TEST(RulesTest, ManyRulesAreDistinct) {
  const char* scale = std::getenv("SLUICE_TEST_SCALE");
  const uint32_t count = scale != nullptr && std::atoi(scale) >= 10 ? 1'000'000 : 200'000;
  const auto rules = rules_of({.shape = RuleShape::kFw, .count = count});
  std::vector<uint64_t> hashes;
  for (const FlowRegion& r : rules) {
    uint64_t h = mix64(r.src.address.lo << 32 | r.dst.address.lo);
    h = mix64(h ^ (uint64_t{r.src.length} << 40 | uint64_t{r.dst.length} << 32 | uint64_t{r.src_port.low} << 16 |
                   r.src_port.high));
    h = mix64(h ^ (uint64_t{r.dst_port.low} << 48 | uint64_t{r.dst_port.high} << 32 | uint64_t{r.flags} << 16 |
                   r.flags_mask));
    hashes.push_back(mix64(h ^ (uint64_t{r.protocol} << 8 | r.protocol_mask)));
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
  EXPECT_EQ(hashes.size(), count);
}

TEST(RulesTest, OptionsOutOfRangeAreRefused) {
  EXPECT_FALSE(generate_rules({.count = 9}).ok());
  EXPECT_FALSE(generate_rules({.count = 1'000'001}).ok());
  EXPECT_FALSE(generate_rules({.ipv6_fraction = 1.1}).ok());
  EXPECT_FALSE(generate_rules({.ipv6_fraction = -0.1}).ok());
  const auto six = rules_of({.count = 10, .ipv6_fraction = 1});
  EXPECT_FALSE(to_classbench(six).ok());
  EXPECT_FALSE(generate_trace(six, {}).ok());
  EXPECT_FALSE(generate_trace({}, {}).ok());
}

TEST(RulesTest, TraceHeadersLieInTheirRuleAndReachItsCorners) {
  for (const RuleShape shape : {RuleShape::kAcl, RuleShape::kFw, RuleShape::kIpc}) {
    const auto rules = rules_of({.shape = shape, .count = 200, .seed = 9});
    auto trace = generate_trace(rules, {.count = 20'000, .seed = 4});
    ASSERT_TRUE(trace.ok());
    std::istringstream in(*trace);
    uint64_t sip, dip, sport, dport, proto, word, rule;
    size_t n = 0, low = 0, high = 0;
    std::set<uint64_t> drawn;
    while (in >> sip >> dip >> sport >> dport >> proto >> word >> rule) {
      ++n;
      ASSERT_LT(rule, rules.size());
      const FlowRegion& r = rules[rule];
      FlowRegion header = r;
      header.src = {{0, sip, 4}, 32};
      header.dst = {{0, dip, 4}, 32};
      header.src_port = {static_cast<uint16_t>(sport), static_cast<uint16_t>(sport)};
      header.dst_port = {static_cast<uint16_t>(dport), static_cast<uint16_t>(dport)};
      header.protocol = static_cast<uint8_t>(proto);
      header.protocol_mask = 255;
      header.flags = static_cast<uint16_t>(word >> 16);
      header.flags_mask = 0xffff;
      ASSERT_EQ(word & 0xffff, 0u);
      ASSERT_TRUE(inside(header, r)) << n;
      low += dport == r.dst_port.low;
      high += dport == r.dst_port.high;
      drawn.insert(rule);
    }
    EXPECT_EQ(n, 20'000u);
    EXPECT_EQ(drawn.size(), rules.size());
    EXPECT_GT(low, n * 30 / 100);
    EXPECT_GT(high, n * 30 / 100);
    EXPECT_EQ(*generate_trace(rules, {.count = 20'000, .seed = 4}), *trace);
    EXPECT_NE(*generate_trace(rules, {.count = 20'000, .seed = 5}), *trace);
  }
}

}  // namespace
}  // namespace sluice

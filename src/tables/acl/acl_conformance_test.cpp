// Every algorithm gives the oracle's verdict: random sets of all shapes, and the ones that hurt.
#include <gtest/gtest.h>

#include "tables/acl/acl_test_support.h"
#include "tables/acl/conformance.h"

namespace sluice {
namespace {

using acl_test::check_all_algorithms;
using acl_test::keys_for;
using acl_test::Random;

TEST(AclConformance, RandomSetsOfBothFamilies) {
  Random random(1);
  for (size_t rules : {0, 1, 2, 3, 10, 33, 100, 400, 1500}) {
    const auto set = acl_test::random_set(random, rules);
    check_all_algorithms(set, keys_for(set, 600, random));
  }
}

TEST(AclConformance, OneFamilyAlone) {
  Random random(2);
  for (uint8_t family : {4, 6}) {
    const auto set = acl_test::random_set(random, 700, family);
    check_all_algorithms(set, keys_for(set, 800, random));
  }
}

// Prefixes of every length with ranges of ports: what the plainer algorithms have no tables for.
TEST(AclConformance, Ipv6PrefixesOfEveryLength) {
  Random random(7);
  RuleSet set;
  for (unsigned length = 129; length-- > 0;) {
    for (const bool source : {true, false}) {
      AclRule rule;
      rule.family = 6;
      IpPrefix& prefix = source ? rule.src : rule.dst;
      prefix.length = static_cast<uint8_t>(length);
      prefix.address = {0x20010db8'00112233 & high_mask64(std::min(length, 64u)),
                        0x44556677'8899aabb & high_mask64(length > 64 ? length - 64 : 0), 6};
      acl_test::random_ports(random, rule.src_port_low, rule.src_port_high);
      acl_test::random_ports(random, rule.dst_port_low, rule.dst_port_high);
      rule.protocol = source ? 6 : 17;
      rule.protocol_mask = 0xff;
      set.rules.push_back(rule);
    }
  }
  auto keys = keys_for(set, 1500, random);
  // And those that differ from the address in one bit alone.
  for (unsigned bit = 0; bit < 128; ++bit) {
    FlowKey key = acl_test::key_in(set.rules[0], random);
    (bit < 64 ? key.src_hi : key.src_lo) ^= uint64_t{1} << (63 - bit % 64);
    keys.push_back(key);
  }
  check_all_algorithms(set, keys);
}

TEST(AclConformance, NoRulesMatchNothing) {
  Random random(3);
  const RuleSet empty;
  check_all_algorithms(empty, keys_for(empty, 100, random));
}

TEST(AclConformance, RulesThatOnlyOverlappingRangesTellApart) {
  const RuleSet set = acl_test::overlapping_ranges(3000);
  Random random(4);
  check_all_algorithms(set, keys_for(set, 1000, random));
}

TEST(AclConformance, TenThousandWildcards) {
  RuleSet same;
  same.rules.resize(10000);
  Random random(5);
  check_all_algorithms(same, keys_for(same, 200, random));
  const RuleSet distinct = acl_test::wildcards_by_flags(10000);
  auto keys = keys_for(distinct, 300, random);
  check_all_algorithms(distinct, keys);
}

TEST(AclConformance, EveryCombinationOfPrefixLengths) {
  Random random(6);
  RuleSet set;
  for (uint8_t family : {4, 6}) {
    const unsigned step = family == 4 ? 1 : 5, bits = family == 4 ? 32 : 128;
    for (unsigned src = 0; src <= bits; src += step) {
      for (unsigned dst = 0; dst <= bits; dst += step) {
        AclRule rule = acl_test::random_rule(random, family);
        auto cut = [&](IpPrefix& prefix, unsigned length) {
          prefix.length = static_cast<uint8_t>(length);
          prefix.address.family = family;
          prefix.address.hi = family == 4 ? 0 : random() & high_mask64(std::min(length, 64u));
          prefix.address.lo =
              family == 4 ? random() & high_mask32(length) : random() & high_mask64(length > 64 ? length - 64 : 0);
        };
        cut(rule.src, src);
        cut(rule.dst, dst);
        set.rules.push_back(rule);
      }
    }
  }
  std::shuffle(set.rules.begin(), set.rules.end(), random);
  check_all_algorithms(set, keys_for(set, 1500, random));
  auto image = TupleSpaceAcl::build(set);
  ASSERT_TRUE(image.ok());
  const auto shape = TupleSpaceView::open(*image)->shape();
  EXPECT_LE(shape.narrow_tables, 96u);
  EXPECT_LE(shape.wide_tables, 96u);
  for (TableTarget target : {TableTarget::kCpu, TableTarget::kGpu}) {
    auto merged = TupleMergeAcl::build(set, target);
    ASSERT_TRUE(merged.ok());
    const auto view = TupleMergeView::open(*merged);
    EXPECT_LE(view->shape().narrow_tables, 64u);
    EXPECT_LE(view->shape().wide_tables, 64u);
    EXPECT_LE(view->shape().narrow_loose, TupleMergeBitmap::kRules * view->bitmap_parts());
    EXPECT_LE(view->shape().wide_loose, TupleMergeBitmap::kRules);
    EXPECT_EQ(view->bitmap_parts(), target == TableTarget::kCpu ? TupleMergeBitmap::kMaxParts : 1);
  }
}

}  // namespace
}  // namespace sluice

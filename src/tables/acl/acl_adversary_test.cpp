// Lists made to hurt: every algorithm stays right, and what they cost stays within what docs/design/acl.md says,
// counted in tables, reads, bytes and rules hashed, never in time.
#include <gtest/gtest.h>

#include <cmath>

#include "tables/acl/acl_test_support.h"
#include "tables/acl/conformance.h"
#include "tables/acl/tuple_merge_layout.h"
#include "tables/acl/tuple_space_layout.h"
#include "tables/acl/work.h"

namespace sluice {
namespace {

using acl_test::Random;

template <typename Header>
uint64_t steps_of(const Image& image) {
  return section_array<Header>(image.section(SectionTag::kAclLookup), 0, 1)->build_steps;
}

uint64_t search_bytes(const Image& image) {
  return image.find(SectionTag::kAclLookup)->bytes;
}

// What may not be exceeded for a list of n rules: reads a packet (see AclWork), bytes a rule of the search structure,
// rules hashed by the builder a rule.
struct Limits {
  double space_reads, merge_reads, bytes, steps;
};

void check_cost(const RuleSet& set, const Limits& limits) {
  const auto n = static_cast<double>(set.rules.size());
  const auto space = TupleSpaceAcl::build(set), merge = TupleMergeAcl::build(set), bits = BitvecAcl::build(set);
  ASSERT_TRUE(space.ok() && merge.ok() && bits.ok());
  const AclWork of_space = *acl_work(*space), of_merge = *acl_work(*merge), of_bits = *acl_work(*bits);
  EXPECT_LE(of_space.tables, 96);
  EXPECT_LE(of_merge.tables, 64);
  EXPECT_LE(of_space.reads, limits.space_reads);
  EXPECT_LE(of_merge.reads, limits.merge_reads);
  // Every byte of an IPv4 key (22) for each chunk, whatever the rules.
  EXPECT_LE(of_bits.reads, 22 * std::ceil(n / 512));
  // What prunes tables has half a megabyte for itself, a bitmap 70 KB.
  EXPECT_LE(static_cast<double>(search_bytes(*space)), (1 << 19) + limits.bytes * n);
  EXPECT_LE(static_cast<double>(search_bytes(*merge)), 70000 + limits.bytes * n);
  EXPECT_LE(static_cast<double>(search_bytes(*bits)), 65536 * 44.0 + 3 * 1024 * n);
  EXPECT_LE(static_cast<double>(steps_of<tuple_space_detail::Header>(*space)), limits.steps * n);
  EXPECT_LE(static_cast<double>(steps_of<tuple_merge_detail::Header>(*merge)), limits.steps * n);
}

TEST(AclAdversary, EveryPairOfPrefixLengths) {
  Random random(31);
  const RuleSet set = acl_test::every_pair_of_lengths(random);
  ASSERT_EQ(set.rules.size(), 2178u);
  check_cost(set, {8, 4, 64, 400});
}

TEST(AclAdversary, NestedPrefixesOfOneAddress) {
  const RuleSet set = acl_test::nested_prefixes();
  Random random(32);
  acl_test::check_all_algorithms(set, acl_test::keys_for(set, 300, random));
  check_cost(set, {200, 100, 64, 3000});
}

// One pair of prefixes, one protocol, 10,000 overlapping ranges: one bucket, which is scanned.
TEST(AclAdversary, RangesOfOneKey) {
  const RuleSet set = acl_test::overlapping_ranges(10000);
  check_cost(set, {1000, 800, 128, 100});
}

TEST(AclAdversary, TenThousandWildcards) {
  RuleSet same;
  same.rules.resize(10000);
  check_cost(same, {1, 1, 1, 1});  // one match: one rule is kept
  const RuleSet distinct = acl_test::wildcards_by_flags(10000);
  check_cost(distinct, {6000, 800, 192, 80});
}

}  // namespace
}  // namespace sluice

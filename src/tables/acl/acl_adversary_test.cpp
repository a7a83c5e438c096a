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
  // What prunes tables has half a megabyte for itself, a sieve 70 KB.
  EXPECT_LE(static_cast<double>(search_bytes(*space)), (1 << 19) + limits.bytes * n);
  EXPECT_LE(static_cast<double>(search_bytes(*merge)), 70000 + limits.bytes * n);
  EXPECT_LE(static_cast<double>(search_bytes(*bits)), 65536 * 44.0 + 3 * 1024 * n);
  EXPECT_LE(static_cast<double>(steps_of<tuple_space_detail::Header>(*space)), limits.steps * n);
  EXPECT_LE(static_cast<double>(steps_of<tuple_merge_detail::Header>(*merge)), limits.steps * n);
}

// Source and destination prefixes of every pair of lengths, ports of every kind: no tuple holds more than a rule or
// two.
TEST(AclAdversary, EveryPairOfPrefixLengths) {
  Random random(31);
  RuleSet set;
  for (unsigned src = 0; src <= 32; ++src) {
    for (unsigned dst = 0; dst <= 32; ++dst) {
      for (unsigned ports = 0; ports < 4; ports += 3) {
        AclRule r;
        r.family = 4;
        r.src = {{0, random() & high_mask32(src), 4}, static_cast<uint8_t>(src)};
        r.dst = {{0, random() & high_mask32(dst), 4}, static_cast<uint8_t>(dst)};
        if ((ports & 1) != 0) r.src_port_low = r.src_port_high = static_cast<uint16_t>(random());
        if ((ports & 2) != 0) r.dst_port_low = r.dst_port_high = static_cast<uint16_t>(random());
        set.rules.push_back(r);
      }
    }
  }
  std::shuffle(set.rules.begin(), set.rules.end(), random);
  check_cost(set, {8, 4, 64, 400});
}

// Prefixes of one address, each inside of the one before: every lookup of that address passes all of them.
TEST(AclAdversary, NestedPrefixesOfOneAddress) {
  RuleSet set;
  for (unsigned src = 33; src-- > 0;) {
    for (unsigned dst = 33; dst-- > 0;) {
      AclRule r;
      r.family = 4;
      r.src = {{0, 0x0a0b0c0d & high_mask32(src), 4}, static_cast<uint8_t>(src)};
      r.dst = {{0, 0xc0a80101 & high_mask32(dst), 4}, static_cast<uint8_t>(dst)};
      set.rules.push_back(r);
    }
  }
  Random random(32);
  acl_test::check_all_algorithms(set, acl_test::keys_for(set, 300, random));
  check_cost(set, {200, 100, 64, 3000});
}

// One pair of prefixes, one protocol, 10,000 overlapping ranges: one bucket, which is scanned.
TEST(AclAdversary, RangesOfOneKey) {
  RuleSet set;
  for (unsigned i = 0; i < 10000; ++i) {
    AclRule r;
    r.family = 4;
    r.src = {{0, 0x0a000000, 4}, 8};
    r.dst = {{0, 0x0a010000, 4}, 16};
    r.src_port_low = static_cast<uint16_t>(i * 3);
    r.src_port_high = static_cast<uint16_t>(i * 3 + 2000);
    r.dst_port_low = static_cast<uint16_t>(60000 - i * 5);
    r.dst_port_high = static_cast<uint16_t>(60000 - i * 5 + 800);
    set.rules.push_back(r);
  }
  check_cost(set, {1000, 800, 128, 100});
}

TEST(AclAdversary, TenThousandWildcards) {
  RuleSet same;
  same.rules.resize(10000);
  check_cost(same, {1, 1, 1, 1});  // one match: one rule is kept
  RuleSet distinct;
  for (unsigned i = 0; i < 10000; ++i) {
    AclRule r;
    r.flags_mask = 0xffff;
    r.flags = static_cast<uint16_t>(i * 6);
    distinct.rules.push_back(r);
  }
  check_cost(distinct, {6000, 800, 192, 80});
}

}  // namespace
}  // namespace sluice

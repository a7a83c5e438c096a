// A lookup by a group of lanes, as a device's small rings make it, with host threads for the lanes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/group_threads.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/conformance.h"
#include "tables/acl/tuple_merge.h"

namespace sluice {
namespace {

void expect_team_finds(const RuleSet& set, const std::vector<FlowKey>& keys) {
  const std::vector<uint32_t> want = acl_test::oracle(set, keys);
  // A bitmap of one part, and where the list is short of four.
  for (TableTarget target : {TableTarget::kGpu, TableTarget::kCpu}) {
    auto image = TupleMergeAcl::build(set, target);
    ASSERT_TRUE(image.ok());
    auto view = TupleMergeView::open(*image);
    ASSERT_TRUE(view.ok());
    for (uint32_t lanes : {2u, 8u, 32u}) {
      ThreadGroup group(lanes);
      // Every lane gets the answer.
      std::vector<std::vector<uint32_t>> found(lanes, std::vector<uint32_t>(keys.size()));
      group.run([&](const ThreadLane& lane) {
        for (size_t i = 0; i < keys.size(); ++i) found[lane.lane()][i] = view->lookup_team(keys[i], lane);
      });
      for (const auto& one : found) acl_test::expect_same(want, one, keys, "team of " + std::to_string(lanes));
    }
  }
}

TEST(TupleMergeTeam, FindsWhatOneLaneFinds) {
  acl_test::Random random(77);
  for (size_t rules : {3u, 60u, 700u}) {
    const RuleSet set = acl_test::random_set(random, rules);
    expect_team_finds(set, acl_test::keys_for(set, 60, random));
  }
}

TEST(TupleMergeTeam, WalksBucketsOfManyBlocks) {
  // One source and destination, ports that overlap: one bucket of blocks that hold eight rules each.
  acl_test::Random random(5);
  AclRule rule;
  do {
    rule = acl_test::random_rule(random, 4);
  } while (rule.src.length != 32 || rule.dst.length != 32 || rule.needs_ports || rule.bits_mask != 0);
  rule.src_port_low = 0;
  rule.src_port_high = 65535;
  rule.protocol = rule.protocol_mask = 0;
  rule.flags = rule.flags_mask = rule.icmp = rule.icmp_mask = 0;
  RuleSet set;
  for (uint32_t i = 0; i < 45; ++i) {
    rule.dst_port_low = static_cast<uint16_t>(1000 - 20 * i);
    rule.dst_port_high = static_cast<uint16_t>(1010 + i);
    set.rules.push_back(rule);
  }
  expect_team_finds(set, acl_test::keys_for(set, 100, random));
}

}  // namespace
}  // namespace sluice

// Every algorithm before and after many random updates of a list: what was patched all along and what is built of the
// rules of the moment give the oracle's verdicts. With SLUICE_TEST_SCALE=40: 100,000 updates.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tables/acl/acl_test_support.h"
#include "tables/acl/conformance.h"
#include "tables/acl/patch.h"

namespace sluice {
namespace {

using acl_test::below;
using acl_test::Random;

TEST(AclUpdates, EveryAlgorithmEqualsTheOracleBeforeAndAfter) {
  const char* scale = std::getenv("SLUICE_TEST_SCALE");
  const size_t updates = 2500 * (scale == nullptr ? 1 : static_cast<size_t>(std::max(1, std::atoi(scale))));
  Random random(81);
  std::map<uint64_t, AclRule> rules;
  for (uint64_t i = 1; i <= 600; ++i) rules.emplace(i << 32, acl_test::random_rule(random));
  std::vector<OrderedRule> initial;
  for (const auto& [priority, rule] : rules) initial.push_back({priority, rule});
  auto list = PatchedAcl::create(initial);
  ASSERT_TRUE(list.ok()) << to_string(list.error());
  const auto check = [&] {
    RuleSet set;
    std::vector<uint64_t> priorities = {0};
    for (const auto& [priority, rule] : rules) {
      priorities.push_back(priority);
      set.rules.push_back(rule);
    }
    const auto keys = acl_test::keys_for(set, 700, random);
    acl_test::check_all_algorithms(set, keys);
    const auto want = acl_test::oracle(set, keys);
    const auto image = (*list)->publish();
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    const auto view = AclView::open(**image);
    ASSERT_TRUE(view.ok()) << to_string(view.error());
    const auto found = acl_test::in_bursts(keys, [&](auto... a) { view->lookup_burst(a...); });
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(found[i] == 0 ? 0 : (*list)->priority_of(found[i]), priorities[want[i]]) << acl_test::describe(keys[i]);
      ASSERT_EQ(view->lookup(keys[i]), found[i]);
    }
  };
  check();
  for (int quarter = 0; quarter < 4; ++quarter) {
    for (size_t n = 0; n < updates / 4; ++n) {
      AclChange change;
      const auto at = rules.lower_bound(below(random, 601) << 32);
      const uint64_t fresh = below(random, 601) << 32 | (random() & 0xffffffff);
      switch (at == rules.end() ? 0 : below(random, rules.size() < 500 ? 2 : 3)) {
        case 0:
          if (!rules.contains(fresh)) change.add(fresh, (rules[fresh] = acl_test::random_rule(random)));
          break;
        case 1:
          change.replace(at->first, (at->second = acl_test::random_rule(random)));
          break;
        default:
          change.remove(at->first);
          rules.erase(at);
      }
      const auto ok = (*list)->apply(change);
      ASSERT_TRUE(ok.ok()) << to_string(ok.error());
    }
    check();
  }
}

}  // namespace
}  // namespace sluice

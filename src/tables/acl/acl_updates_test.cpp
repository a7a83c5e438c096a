// Every algorithm before and after many random updates of a list: what was patched all along and what is built of the
// rules of the moment give the oracle's verdicts. With SLUICE_TEST_SCALE=40: 100,000 updates.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tables/acl/acl_test_support.h"
#include "tables/acl/changing_list.h"
#include "tables/acl/conformance.h"
#include "tables/acl/work.h"

namespace sluice {
namespace {

using acl_test::ChangingList;
using acl_test::Random;

TEST(AclUpdates, EveryAlgorithmEqualsTheOracleBeforeAndAfter) {
  const char* scale = std::getenv("SLUICE_TEST_SCALE");
  const size_t updates = 2500 * (scale == nullptr ? 1 : static_cast<size_t>(std::max(1, std::atoi(scale))));
  Random random(81);
  ChangingList model(acl_test::random_set(random, 600).rules);
  auto list = PatchedAcl::create(model.ordered());
  ASSERT_TRUE(list.ok()) << to_string(list.error());
  const auto check = [&] {
    const RuleSet set = model.set();
    const std::vector<uint64_t> priorities = model.priorities();
    const auto keys = acl_test::keys_for(set, 700, random);
    acl_test::check_all_algorithms(set, keys);
    const auto want = acl_test::oracle(set, keys);
    const auto image = (*list)->publish();
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    const auto view = AclView::open(**image);
    ASSERT_TRUE(view.ok()) << to_string(view.error());
    const auto work = acl_work(**image);
    ASSERT_TRUE(work.ok()) << to_string(work.error());
    EXPECT_GT(work->reads, 0);
    const auto found = acl_test::in_bursts(keys, [&](auto... a) { view->lookup_burst(a...); });
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(found[i] == 0 ? 0 : (*list)->priority_of(found[i]), priorities[want[i]]) << acl_test::describe(keys[i]);
      ASSERT_EQ(view->lookup(keys[i]), found[i]);
    }
  };
  check();
  for (int quarter = 0; quarter < 4; ++quarter) {
    for (size_t n = 0; n < updates / 4; ++n) {
      const auto ok = (*list)->apply(model.step(random));
      ASSERT_TRUE(ok.ok()) << to_string(ok.error());
    }
    check();
  }
}

}  // namespace
}  // namespace sluice

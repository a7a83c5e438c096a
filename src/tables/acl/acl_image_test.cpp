// ACL images: what they carry, and that damaged ones are refused or answer within bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/damage.h"

namespace sluice {
namespace {

TEST(AclImage, CarriesActionsAndSources) {
  acl_test::Random random(11);
  RuleSet set = acl_test::random_set(random, 50);
  set.files = {"a.acl", "dir/b.acl"};
  set.rules[7].file = 1;
  for (const std::string& name : acl_algorithm_names()) {
    auto image = build_acl(set, name);
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    EXPECT_EQ(acl_image_algorithm(*image), name);
    auto actions = AclActionsView::open(*image);
    auto source = AclSourceView::open(*image);
    auto rules = AclRulesView::open(*image);
    ASSERT_TRUE(actions.ok() && source.ok() && rules.ok());
    EXPECT_EQ(actions->action(0).verb, AclVerb::kNone);
    EXPECT_EQ(actions->action(51).verb, AclVerb::kNone);
    for (uint32_t r = 1; r <= 50; ++r) {
      EXPECT_EQ(actions->action(r).verb, set.rules[r - 1].verb);
      EXPECT_EQ(actions->action(r).log, set.rules[r - 1].log);
      if (set.rules[r - 1].verb == AclVerb::kMark) {
        EXPECT_EQ(actions->action(r).mark, set.rules[r - 1].mark);
      }
      EXPECT_EQ(source->line(r), r);
      EXPECT_EQ(source->file(r), r == 8 ? "dir/b.acl" : "a.acl");
      EXPECT_TRUE(same_match(rules->rule(r), flatten(set.rules[r - 1], r)));
    }
    EXPECT_EQ(source->file(0), "");
    EXPECT_EQ(source->line(51), 0u);
  }
}

TEST(AclImage, UnknownAlgorithmAndBadRulesAreErrors) {
  const auto unknown = build_acl({}, "tuple-space");
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(to_string(unknown.error()), testing::HasSubstr("did you mean 'tuple_space'?"));
  RuleSet set;
  set.rules.resize(3);
  set.rules[0].src.length = 8;                                    // a prefix without a family
  set.rules[1].src_port_low = 5, set.rules[1].src_port_high = 4;  // empty
  set.rules[2].dscp = 64;
  for (const std::string& name : acl_algorithm_names()) {
    const auto built = build_acl(set, name);
    ASSERT_FALSE(built.ok());
    EXPECT_EQ(built.error().diagnostics.size(), 3u);
  }
}

TEST(AclImage, AnImageOfOneAlgorithmIsNotOpenedAsAnother) {
  auto linear = build_acl({}, "linear"), tuples = build_acl({}, "tuple_space");
  ASSERT_TRUE(linear.ok() && tuples.ok());
  EXPECT_FALSE(TupleSpaceView::open(*linear).ok());
  EXPECT_FALSE(LinearView::open(*tuples).ok());
}

// The checksum is put right after each damage, so that the checks of the views are what stands in the way.
TEST(AclImage, DamagedImagesAreRefusedOrAnswerWithinBounds) {
  acl_test::Random random(12);
  const RuleSet set = acl_test::random_set(random, 120);
  const auto keys = acl_test::keys_for(set, 64, random);
  size_t refused = 0;
  for (const std::string& name : acl_algorithm_names()) {
    auto image = build_acl(set, name);
    ASSERT_TRUE(image.ok());
    for (int round = 0; round < 1500; ++round) {
      std::vector<std::byte> bytes(image->bytes().begin(), image->bytes().end());
      for (uint64_t n = acl_test::below(random, 3) + 1; n > 0; --n) {
        const size_t at =
            acl_test::chance(random, 50) ? acl_test::below(random, bytes.size()) : 64 + acl_test::below(random, 512);
        bytes[at] = static_cast<std::byte>(acl_test::chance(random, 30) ? 0xff : random());
      }
      if (acl_test::chance(random, 5)) bytes.resize(acl_test::below(random, bytes.size()));
      refused += !acl_test::answers_within_bounds(std::move(bytes), keys);
    }
  }
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace sluice

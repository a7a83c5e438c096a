// ACL images: what they carry, and that damaged ones are refused or answer within bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/conformance.h"
#include "tables/acl/damage.h"
#include "tables/acl/tuple_merge_layout.h"
#include "tables/acl/tuple_space_layout.h"
#include "tables/acl/work.h"
#include "tables/reseal.h"

namespace sluice {
namespace {

TEST(AclImage, CarriesActionsAndSources) {
  acl_test::Random random(11);
  RuleSet set = acl_test::random_set(random, 50);
  set.files = {"a.acl", "dir/b.acl"};
  set.rules[7].file = 1;
  for (size_t r = 0; r < 50; r += 3) set.rules[r].keep = set.rules[r].verb != AclVerb::kDeny;
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
      EXPECT_EQ(actions->action(r).keep, set.rules[r - 1].keep);
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

// Every generation opens all tables again. What was found good is not read again; what was not, is, and is refused.
TEST(AclImage, IsCheckedOnceWhereItIsGood) {
  acl_test::Random random(13);
  const RuleSet set = acl_test::random_set(random, 50);
  const auto opens = [](const Image& image) { return AclView::open(image).ok(); };
  for (const std::string& name : acl_algorithm_names()) {
    const auto image = build_acl(set, name);
    ASSERT_TRUE(image.ok());
    for (const SectionTag tag : {SectionTag::kAclRules, SectionTag::kAclActions, SectionTag::kAclLookup})
      EXPECT_FALSE(image->checked(tag)) << name;
    ASSERT_TRUE(AclActionsView::open(*image).ok());
    EXPECT_TRUE(image->checked(SectionTag::kAclActions));
    EXPECT_FALSE(image->checked(SectionTag::kAclRules)) << "one section says nothing of another";
    ASSERT_TRUE(opens(*image));
    EXPECT_TRUE(image->checked(SectionTag::kAclRules)) << name;
    // The rules themselves are all that linear looks at.
    EXPECT_EQ(image->checked(SectionTag::kAclLookup), name != LinearAcl::kName) << name;
    EXPECT_TRUE(opens(*image)) << name;

    for (const SectionTag tag : {SectionTag::kAclActions, SectionTag::kAclLookup}) {
      std::vector<std::byte> bytes(image->bytes().begin(), image->bytes().end());
      const ImageSection* const section = image->find(tag);
      if (tag == SectionTag::kAclActions) {
        std::memset(bytes.data() + section->offset + sizeof(AclCountHeader) + sizeof(AclAction), 0xff,
                    sizeof(AclAction));
      } else {
        if (name == LinearAcl::kName) continue;
        // All but what says where things are.
        std::memset(bytes.data() + section->offset + section->bytes / 2, 0xff, section->bytes - section->bytes / 2);
      }
      reseal(bytes);
      const auto damaged = Image::from_bytes(bytes, ImageKind::kAcl);
      ASSERT_TRUE(damaged.ok()) << to_string(damaged.error());
      for (int i = 0; i < 2; ++i) {
        EXPECT_FALSE(tag == SectionTag::kAclActions ? AclActionsView::open(*damaged).ok() : opens(*damaged)) << name;
        EXPECT_FALSE(damaged->checked(tag)) << name;
      }
    }
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
  const auto damage = [&]<typename A>() {
    auto image = A::build(set);
    ASSERT_TRUE(image.ok());
    // Each round reads the whole image: fewer where it is large.
    const size_t rounds = std::min<size_t>(1500, (size_t{1} << 27) / image->bytes().size());
    for (size_t round = 0; round < rounds; ++round) {
      std::vector<std::byte> bytes(image->bytes().begin(), image->bytes().end());
      for (uint64_t n = acl_test::below(random, 3) + 1; n > 0; --n) {
        const size_t at =
            acl_test::chance(random, 50) ? acl_test::below(random, bytes.size()) : 64 + acl_test::below(random, 512);
        bytes[at] = static_cast<std::byte>(acl_test::chance(random, 30) ? 0xff : random());
      }
      if (acl_test::chance(random, 5)) bytes.resize(acl_test::below(random, bytes.size()));
      using View = std::conditional_t<detail::AclOffered<A>, AclView, typename A::View>;
      refused += !acl_test::answers_within_bounds<View>(std::move(bytes), keys);
    }
  };
  [&]<typename... A>(AclAlgorithmList<A...>) { (damage.template operator()<A>(), ...); }(AllAcl{});
  EXPECT_GT(refused, 100u);
}

// The parts that only larger lists have: tuple_space's sets of tables by field, tuple_merge's bitmap.
TEST(AclImage, DamagedSetsOfTablesAndBitmapsAreRefusedOrAnswerWithinBounds) {
  acl_test::Random random(13);
  const RuleSet set = acl_test::random_set(random, 700, 4);
  const auto keys = acl_test::keys_for(set, 64, random);
  size_t refused = 0;
  for (const auto& [name, target] : {std::pair<std::string, TableTarget>{TupleSpaceAcl::kName, TableTarget::kCpu},
                                     {TupleMergeAcl::kName, TableTarget::kCpu},
                                     {TupleMergeAcl::kName, TableTarget::kGpu}}) {
    auto image = build_acl(set, name, target);
    ASSERT_TRUE(image.ok());
    const auto section = image->section(SectionTag::kAclLookup);
    const auto begin = static_cast<size_t>(section.data() - image->bytes().data());
    uint64_t offset = 0;
    if (name == TupleSpaceAcl::kName) {
      tuple_space_detail::Header header;
      std::memcpy(&header, section.data(), sizeof header);
      offset = header.prune_offset;
    } else {
      tuple_merge_detail::Header header;
      std::memcpy(&header, section.data(), sizeof header);
      offset = header.bitmap_offset;
    }
    ASSERT_NE(offset, 0u) << name;
    for (int round = 0; round < 120; ++round) {
      std::vector<std::byte> bytes(image->bytes().begin(), image->bytes().end());
      const size_t places[] = {begin + acl_test::below(random, 128), begin + offset + acl_test::below(random, 2048),
                               begin + offset + acl_test::below(random, section.size() - offset),
                               begin + section.size() - 1 - acl_test::below(random, 2048)};
      bytes[places[round % 4]] = static_cast<std::byte>(acl_test::chance(random, 30) ? 0xff : random());
      refused += !acl_test::answers_within_bounds(std::move(bytes), keys);
    }
  }
  EXPECT_GT(refused, 90u);
}

TEST(AclImage, AutoGoesByTheCostOfTheTarget) {
  acl_test::Random random(15);
  // More rules than one part of a bitmap holds, few enough for one chunk of bit vectors, and five fields alone.
  RuleSet some = acl_test::random_set(random, 400, 4);
  for (AclRule& rule : some.rules) {
    rule.flags = rule.flags_mask = rule.icmp = rule.icmp_mask = 0;
    rule.bits = rule.bits_mask = 0;
    rule.dscp = AclRule::kAnyDscp;
    rule.needs_ports = false;
  }
  EXPECT_EQ(choose_acl(some, TableTarget::kCpu)->algorithm, BitvecAcl::kName);
  EXPECT_NE(choose_acl(some, TableTarget::kGpu)->algorithm, BitvecAcl::kName);
  EXPECT_EQ(choose_acl(acl_test::random_set(random, 40, 4), TableTarget::kCpu)->algorithm, TupleMergeAcl::kName);
  EXPECT_EQ(choose_acl(acl_test::random_set(random, 6000, 4), TableTarget::kCpu)->algorithm, TupleMergeAcl::kName);
}

TEST(AclImage, WorkIsCounted) {
  acl_test::Random random(16);
  const RuleSet set = acl_test::random_set(random, 600, 4);
  for (const char* name : {TupleSpaceAcl::kName, TupleMergeAcl::kName, BitvecAcl::kName}) {
    const auto image = build_acl(set, name);
    const auto work = acl_work(*image);
    ASSERT_TRUE(work.ok());
    EXPECT_GT(work->reads, 0) << name;
  }
  EXPECT_FALSE(acl_work(*LinearAcl::build(set)).ok());
  EXPECT_FALSE(BitvecAcl::build({std::vector<AclRule>(BitvecAcl::kMaxRules + 1), {}}).ok());
}

TEST(AclImage, AutoBuildsWhatItSays) {
  acl_test::Random random(14);
  for (const RuleSet& set : {RuleSet(), acl_test::random_set(random, 30), acl_test::random_set(random, 900, 4)}) {
    const auto keys = acl_test::keys_for(set, 300, random);
    const auto want = acl_test::oracle(set, keys);
    for (TableTarget target : {TableTarget::kCpu, TableTarget::kGpu}) {
      const auto chosen = choose_acl(set, target), again = choose_acl(set, target);
      ASSERT_TRUE(chosen.ok() && again.ok());
      EXPECT_EQ(acl_image_algorithm(chosen->image), chosen->algorithm);
      EXPECT_FALSE(chosen->why.empty());
      EXPECT_EQ(chosen->why, again->why);
      const auto image = target == TableTarget::kGpu ? build_acl(set, kAclAutoGpu) : build_acl(set, kAclAuto);
      ASSERT_TRUE(image.ok());
      EXPECT_EQ(acl_image_algorithm(*image), chosen->algorithm);
      const auto view = AclView::open(*image);
      ASSERT_TRUE(view.ok());
      for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(view->lookup(keys[i]), want[i]);
    }
  }
  RuleSet bad;
  bad.rules.resize(1);
  bad.rules[0].dscp = 64;
  EXPECT_FALSE(choose_acl(bad, TableTarget::kGpu).ok());
}

}  // namespace
}  // namespace sluice

// A patched access list at the end of its room: blocks, slots, tables and loose rules run out, in both families, and
// every rule is found all the same; a change that no image can hold is refused whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>

#include "tables/acl/acl_test_support.h"
#include "tables/acl/linear.h"
#include "tables/acl/patch.h"
#include "tables/acl/tuple_merge.h"
#include "tables/acl/tuple_merge_layout.h"

namespace sluice {
namespace {

using acl_test::below;
using acl_test::chance;
using acl_test::Random;

size_t room_scale() {
  const char* text = std::getenv("SLUICE_TEST_SCALE");
  return text == nullptr ? 1 : static_cast<size_t>(std::max(1, std::atoi(text)));
}

// Nothing but what the rules take, and of each kind of table and loose rule hardly any.
constexpr PatchedAclRoom kTight = {.tables = 2, .slots = 2, .blocks4 = 0, .blocks6 = 0, .loose4 = 2, .loose6 = 2};

// A list and what it is to be, told by the reference lookup.
class Twin {
 public:
  explicit Twin(PatchedAclOptions options, std::map<uint64_t, AclRule> rules = {}) : rules_(std::move(rules)) {
    std::vector<OrderedRule> ordered;
    for (const auto& [priority, rule] : rules_) ordered.push_back({priority, rule});
    auto made = PatchedAcl::create(ordered, options);
    EXPECT_TRUE(made.ok()) << to_string(made.error());
    table_ = std::move(*made);
  }

  PatchedAcl& table() { return *table_; }
  const std::map<uint64_t, AclRule>& rules() const { return rules_; }

  Result<void> apply(const AclChange& change) {
    auto done = table_->apply(change);
    if (!done) return done;
    for (const AclChange::Operation& each : change.operations()) {
      if (each.kind == AclChange::Kind::kAdd) {
        rules_[each.priority] = change.rule(each);
      } else {
        rules_.erase(each.priority);
      }
    }
    return done;
  }
  void add(uint64_t priority, const AclRule& rule) {
    AclChange change;
    change.add(priority, rule);
    const auto done = apply(change);
    ASSERT_TRUE(done.ok()) << to_string(done.error());
  }
  void remove(uint64_t priority) {
    AclChange change;
    change.remove(priority);
    const auto done = apply(change);
    ASSERT_TRUE(done.ok()) << to_string(done.error());
  }

  // What is published gives a key of each rule, and some others, what the reference gives them.
  void look(Random& random) {
    auto image = table_->publish();
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    look(**image, random);
  }
  void look(const Image& image, Random& random) {
    RuleSet set;
    std::vector<uint64_t> priorities = {0};
    for (const auto& [priority, rule] : rules_) {
      set.rules.push_back(rule);
      priorities.push_back(priority);
    }
    const auto reference = LinearAcl::build(set);
    ASSERT_TRUE(reference.ok());
    const auto linear = LinearView::open(*reference);
    const auto view = TupleMergeView::open(image);
    ASSERT_TRUE(linear.ok() && view.ok());
    std::vector<FlowKey> keys;
    for (const AclRule& rule : set.rules) keys.push_back(acl_test::key_in(rule, random));
    for (int i = 0; i < 16; ++i) keys.push_back(acl_test::random_key(random));
    for (size_t at = 0; at < keys.size(); at += 32) {
      const size_t n = std::min<size_t>(32, keys.size() - at);
      const FlowKey* pointers[32];
      uint32_t found[32], want[32];
      for (size_t i = 0; i < n; ++i) pointers[i] = &keys[at + i];
      view->lookup_burst(pointers, found, n);
      linear->lookup_burst(pointers, want, n);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(view->lookup(keys[at + i]), found[i]);
        ASSERT_EQ(found[i] == 0, want[i] == 0) << "of " << set.rules.size() << " rules";
        if (found[i] != 0) {
          ASSERT_EQ(table_->priority_of(found[i]), priorities[want[i]]);
        }
      }
    }
  }

 private:
  std::unique_ptr<PatchedAcl> table_;
  std::map<uint64_t, AclRule> rules_;
};

// One of many rules of the same tuple, in 32nds of the family's address.
AclRule rule_of(uint8_t family, unsigned src, unsigned dst, uint32_t n) {
  AclRule rule;
  rule.family = family;
  rule.verb = AclVerb::kDeny;
  const uint64_t spread = n * 0x9e3779b97f4a7c15ull;
  const auto prefix = [&](unsigned length, uint32_t bits) {
    if (family == 4) {
      const auto own = static_cast<uint8_t>(length);
      return IpPrefix{{0, bits & high_mask32(own), 4}, own};
    }
    const auto own = static_cast<uint8_t>(4 * length);
    const uint64_t half = bits * uint64_t{0x100000001} * 0x9e3779b97f4a7c15ull;
    return IpPrefix{{(uint64_t{bits} << 32 | half >> 32) & high_mask64(std::min<unsigned>(own, 64)),
                     half & high_mask64(own > 64 ? own - 64u : 0), 6},
                    own};
  };
  rule.src = prefix(src, static_cast<uint32_t>(spread >> 32));
  rule.dst = prefix(dst, static_cast<uint32_t>(spread));
  return rule;
}

// Told apart by ranges alone: of one bucket, whatever the table.
AclRule range_of(uint8_t family, uint32_t n) {
  AclRule rule = rule_of(family, 16, 16, 1);
  rule.dst_port_low = static_cast<uint16_t>(n % 60000);
  rule.dst_port_high = static_cast<uint16_t>(rule.dst_port_low + 1 + n % 7);
  return rule;
}

// Rules of one tuple come until `enough`, go, and those of the next come: the room that is left is that of other
// tables.
void one_tuple_after_another(Twin& twin, uint8_t family, size_t each, Random& random) {
  const unsigned tuples[][2] = {{28, 4}, {24, 8}, {20, 12}, {16, 16}, {12, 20}, {8, 24}, {4, 28}, {32, 32}, {0, 32}};
  uint64_t priority = 1'000'000;
  std::vector<uint64_t> before;
  for (const auto& [src, dst] : tuples) {
    std::vector<uint64_t> mine;
    for (uint32_t n = 1; n <= each; ++n) {
      twin.add(priority += 1000, rule_of(family, src, dst, n));
      mine.push_back(priority);
      if (n % 4 == 0) twin.look(random);
      if (testing::Test::HasFailure()) FAIL() << "tuple " << src << "," << dst << ", rule " << n;
    }
    // A few stay, so that every table is in use.
    for (size_t i = 3; i < mine.size(); ++i) twin.remove(mine[i]);
    twin.look(random);
    ASSERT_FALSE(testing::Test::HasFailure()) << "tuple " << src << "," << dst;
  }
}

TEST(PatchedAclRoom, RunsOutOfBlocksTableByTable) {
  for (const uint8_t family : {uint8_t{4}, uint8_t{6}}) {
    SCOPED_TRACE(int{family});
    Random random(family);
    Twin twin({.beside = {.blocks4 = 0, .blocks6 = 0}});
    one_tuple_after_another(twin, family, 150, random);
    EXPECT_GT(twin.table().rebuilds(), 2u);
  }
}

TEST(PatchedAclRoom, RunsOutOfTablesSlotsAndLooseRules) {
  for (const uint8_t family : {uint8_t{4}, uint8_t{6}}) {
    SCOPED_TRACE(int{family});
    Random random(family);
    Twin twin({.beside = kTight});
    one_tuple_after_another(twin, family, 150, random);
    PatchedAclRoom slots = kTight;
    slots.tables = 96;
    slots.slots = 1 << 12;
    Twin more({.beside = slots});
    one_tuple_after_another(more, family, 150, random);
    EXPECT_GT(more.table().rebuilds(), 0u);
  }
}

// Long buckets: chains of blocks that grow past every length at which they are made anew, and shrink again.
TEST(PatchedAclRoom, GrowsAndShrinksLongBuckets) {
  for (const uint8_t family : {uint8_t{4}, uint8_t{6}}) {
    SCOPED_TRACE(int{family});
    Random random(family);
    Twin twin({.beside = kTight});
    const uint32_t n = 1400;
    for (uint32_t i = 0; i < n; ++i) {
      twin.add(uint64_t{i * 7919 % n + 1} * 1000, range_of(family, i));
      if (i % 128 == 0 || (i > 500 && i < 520)) twin.look(random);
      ASSERT_FALSE(testing::Test::HasFailure()) << "rule " << i;
    }
    EXPECT_GT(twin.table().rebuilds(), 2u);
    for (uint32_t i = 0; i < n; ++i) {
      twin.remove(uint64_t{i * 6007 % n + 1} * 1000);
      if (i % 128 == 0) twin.look(random);
      ASSERT_FALSE(testing::Test::HasFailure()) << "without rule " << i;
    }
    twin.look(random);
  }
}

// With the room that lists have: the last blocks are gone when a rule asks for a table of its own, and the loose rules,
// which that table covers, would take what the rule needs.
TEST(PatchedAclRoom, ATableIsMadeWithTheLastBlocks) {
  Random random(1);
  std::map<uint64_t, AclRule> first;
  uint64_t priority = 1000;
  for (uint32_t i = 0; i < 1000; ++i) first.emplace(priority += 1000, rule_of(4, 32, 0, i + 1));
  Twin twin({}, first);
  for (const auto& [at, rule] : first) twin.remove(at);
  const auto left = [&] {
    const auto image = *twin.table().publish();
    const auto section = image->section(SectionTag::kAclLookup);
    const auto* header = reinterpret_cast<const tuple_merge_detail::Header*>(section.data());
    return (header->wide_offset - header->narrow_offset) / sizeof(TupleMergeBlock4) - header->narrow_blocks;
  };
  // Rules of one tuple after another, until hardly a block is left: those that are free again are of other tables.
  const unsigned tuples[][2] = {{28, 4}, {24, 8}, {20, 12}, {16, 16}, {12, 20}, {8, 24}, {4, 28}, {0, 32}};
  size_t tuple = 0;
  for (bool near = false; !near; ++tuple) {
    ASSERT_LT(tuple, 7u);
    std::vector<uint64_t> mine;
    for (uint32_t n = 1; n <= 1100 && !near; ++n) {
      near = left() <= 6;
      if (near) break;
      twin.add(priority += 1000, rule_of(4, tuples[tuple][0], tuples[tuple][1], n));
      mine.push_back(priority);
      ASSERT_EQ(twin.table().rebuilds(), 0u);
    }
    for (uint64_t at : mine) twin.remove(at);
  }
  // Those of the next are loose, as many as may be, and then there is a table for them.
  for (uint32_t n = 1; n <= 400; ++n) {
    twin.add(priority += 1000, rule_of(4, tuples[tuple][0], tuples[tuple][1], n));
    if (n > 120 && n < 140) twin.look(random);
    ASSERT_FALSE(testing::Test::HasFailure()) << "rule " << n;
  }
  twin.look(random);
}

// Changes of any shape and size in little room, with lists that are as large as they may be: what is refused is refused
// whole, and the list goes on.
TEST(PatchedAclRoom, AChangeThatNoImageHoldsChangesNothing) {
  for (const uint8_t family : {uint8_t{0}, uint8_t{4}, uint8_t{6}}) {
    SCOPED_TRACE(int{family});
    Random random(10 + family);
    std::map<uint64_t, AclRule> first;
    for (uint64_t i = 1; i <= 120; ++i) first.emplace(i << 20, acl_test::random_rule(random, family));
    size_t bytes = 0;
    {
      Twin probe({.beside = kTight}, first);
      bytes = probe.table().replicas().size();
    }
    Twin twin({.max_bytes = bytes + bytes / 64, .beside = kTight}, first);
    std::shared_ptr<const Image> published = *twin.table().publish();
    size_t taken = 0, refused = 0, late = 0;
    for (size_t step = 0; step < 240 * room_scale(); ++step) {
      AclChange change;
      auto at = twin.rules().begin();
      const size_t n = chance(random, 70) ? 1 + below(random, 3) : 1 + below(random, 60);
      for (size_t i = 0; i < n && at != twin.rules().end(); ++i) {
        std::advance(at, below(random, std::max<size_t>(1, twin.rules().size() / n)));
        if (at == twin.rules().end()) break;
        const uint64_t there = at->first;
        ++at;
        if (chance(random, 40)) {
          change.replace(there, acl_test::random_rule(random, family));
        } else if (chance(random, twin.rules().size() > 228 ? 70 : 20)) {
          change.remove(there);
        } else if (!twin.rules().contains(there + 1 + step)) {
          change.add(there + 1 + step, chance(random, 50) ? acl_test::random_rule(random, family)
                                                          : range_of(family == 0 ? 4 : family, step % 4000));
        }
      }
      const auto done = twin.apply(change);
      if (done.ok()) {
        ++taken;
      } else {
        ++refused;
        EXPECT_THAT(to_string(done.error()), testing::HasSubstr("are allowed"));
      }
      ASSERT_EQ(twin.table().size(), twin.rules().size());
      // Where not even the list of before fits, what is published stays, and the next change may make room.
      auto image = twin.table().publish();
      if (image.ok()) {
        published = *image;
        twin.look(*published, random);
      } else {
        EXPECT_THAT(to_string(image.error()), testing::HasSubstr("are allowed"));
        ++late;
      }
      ASSERT_FALSE(testing::Test::HasFailure()) << "step " << step;
    }
    EXPECT_GT(taken, 60u);
    EXPECT_GT(refused, 0u);
    EXPECT_LT(late, refused + taken / 4);
    const auto rules = twin.table().rules();
    ASSERT_EQ(rules.size(), twin.rules().size());
    auto want = twin.rules().begin();
    for (const OrderedRule& rule : rules) {
      EXPECT_EQ(rule.priority, want->first);
      EXPECT_EQ(rule.rule, want->second);
      ++want;
    }
  }
}

// A builder may leave more loose rules of other families than an image that changes has room for.
TEST(PatchedAclRoom, TakesMoreLooseRulesThanItHasRoomFor) {
  Random random(5);
  std::map<uint64_t, AclRule> rules;
  for (uint32_t i = 0; i < 120; ++i) {
    // For both families, with every byte of a key asked for by one of them, so that the bitmap is as large as it gets.
    AclRule rule;
    rule.verb = AclVerb::kDeny;
    rule.src_port_low = static_cast<uint16_t>(i * 3);
    rule.src_port_high = static_cast<uint16_t>(i * 3 + 2000);
    rule.dst_port_low = static_cast<uint16_t>(60000 - i * 5);
    rule.dst_port_high = static_cast<uint16_t>(60000 - i * 5 + 800);
    rules.emplace(1000 * (i + 1), rule);
  }
  for (uint32_t i = 0; i < 8; ++i) {
    AclRule rule = rule_of(4, 32, 32, i);
    rule.src_port_high = 2000;
    rule.dst_port_high = 2000;
    rule.flags_mask = 0xffff;
    rule.flags = static_cast<uint16_t>(i << 8);
    rule.dscp = 1;
    rule.protocol = 6;
    rule.protocol_mask = 0x3f;
    rules.emplace(500'000 + i, rule);
  }
  Twin twin({}, rules);
  twin.look(random);
  const auto shape = TupleMergeView::open(**twin.table().publish())->shape();
  EXPECT_LE(shape.narrow_loose, PatchedAclRoom{}.loose4);
  EXPECT_LE(shape.wide_loose, PatchedAclRoom{}.loose6);
  const auto sealed = twin.table().replicas().seal();
  ASSERT_TRUE(sealed.ok());
  auto image = Image::from_bytes(sealed->bytes(), ImageKind::kAcl);
  ASSERT_TRUE(image.ok());
  const auto view = TupleMergeView::open(*image);
  EXPECT_TRUE(view.ok()) << to_string(view.error());
}

}  // namespace
}  // namespace sluice

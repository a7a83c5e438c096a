#include "control/rule_list.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

namespace sluice {
namespace {

AclRule port(uint32_t n) {
  AclRule rule;
  rule.dst_port_low = rule.dst_port_high = static_cast<uint16_t>(n);
  rule.mark = n >> 16;
  rule.verb = AclVerb::kMark;
  return rule;
}
RuleSet ports(size_t count) {
  RuleSet set;
  for (uint32_t i = 0; i < count; ++i) set.rules.push_back(port(i));
  return set;
}

// Against a vector, with changes that are taken back; and what change() says, played on a map by priority.
TEST(RuleList, IsAVectorThatCanGoBack) {
  const bool holds = rc::check([] {
    RuleSet start = ports(*rc::gen::inRange<size_t>(0, 40));
    RuleList list(start);
    std::vector<AclRule> want = start.rules;
    std::map<uint64_t, AclRule> by_priority;
    for (const OrderedRule& r : list.ordered()) by_priority[r.priority] = r.rule;
    for (int transaction = 0; transaction < 12; ++transaction) {
      const std::vector<AclRule> before = want;
      list.begin();
      const uint64_t numbering = list.numbering();
      for (int step = *rc::gen::inRange(0, 20); step > 0; --step) {
        const size_t at = *rc::gen::inRange<size_t>(0, want.size() + 1);
        const AclRule rule = port(*rc::gen::inRange<uint32_t>(0, 60));
        const auto place = want.begin() + static_cast<ptrdiff_t>(at);
        switch (at == want.size() ? 0 : *rc::gen::inRange(0, 3)) {
          case 0:
            list.insert(at + 1, rule);
            want.insert(place, rule);
            break;
          case 1:
            list.replace(at + 1, rule);
            *place = rule;
            break;
          default:
            list.erase(at + 1);
            want.erase(place);
        }
        RC_ASSERT(list.size() == want.size());
        const auto first = std::find(want.begin(), want.end(), rule);
        RC_ASSERT(list.find(rule) == (first == want.end() ? 0u : static_cast<uint32_t>(first - want.begin()) + 1));
      }
      if (*rc::gen::inRange(0, 3) == 0) {
        list.undo();
        want = before;
      } else {
        RC_ASSERT(list.numbering() == numbering);
        for (const auto& [kind, each] : list.change().operations()) {
          if (kind == AclChange::Kind::kRemove) {
            RC_ASSERT(by_priority.erase(each.priority) == 1);
          } else {
            RC_ASSERT(by_priority.emplace(each.priority, each.rule).second);
          }
        }
      }
      RC_ASSERT(list.set().rules == want);
      std::vector<AclRule> ordered;
      for (const auto& [priority, rule] : by_priority) ordered.push_back(rule);
      RC_ASSERT(ordered == want);
      for (size_t i = want.size(); i > 0; --i) RC_ASSERT(list.at(i) == want[i - 1]);
    }
  });
  EXPECT_TRUE(holds);
}

TEST(RuleList, AStepCostsAChunkAndNotTheList) {
  RuleList list(ports(20'000));
  const auto cost = [&](auto&& step) {
    const uint64_t before = list.work();
    step();
    return list.work() - before;
  };
  EXPECT_LE(cost([&] { list.insert(10'000, port(7)); }), 1024u);
  EXPECT_LE(cost([&] { list.erase(3); }), 1024u);
  EXPECT_LE(cost([&] { list.replace(19'000, port(9)); }), 2u);
  EXPECT_GE(cost([&] { (void)list.find(port(7000)); }), 20'000u) << "the first search looks at all";
  EXPECT_LE(cost([&] { (void)list.find(port(7100)); }), 2u);
  EXPECT_EQ(list.find(port(19'999)), 20'000u);
  EXPECT_EQ(list.find(port(200'000)), 0u);
}

// Priorities last where rules come one after another, at an end or between two others.
TEST(RuleList, ManyInOnePlaceKeepTheNumbering) {
  for (const size_t at : {size_t{1}, size_t{3}, size_t{5}}) {
    for (const bool upwards : {false, true}) {
      RuleList list(ports(4));
      const uint64_t numbering = list.numbering();
      for (uint32_t i = 0; i < 5000; ++i) list.insert(at + (upwards ? i : 0), port(100 + i));
      EXPECT_EQ(list.numbering(), numbering);
      EXPECT_EQ(list.at(at), port(upwards ? 100 : 5099));
    }
  }
}

// Where they do not, they are given anew, and going back gives them anew again: nobody takes one for another.
TEST(RuleList, NumbersAnewWhereNoneIsLeft) {
  RuleList list(ports(2));
  const RuleSet before = list.set();
  const uint64_t numbering = list.numbering();
  list.begin();
  // Each between the last two, now above and now below.
  for (uint32_t i = 0; i < 80; ++i) list.insert(2 + i / 2, port(10 + i));
  EXPECT_NE(list.numbering(), numbering);
  const uint64_t then = list.numbering();
  list.undo();
  EXPECT_NE(list.numbering(), then);
  EXPECT_EQ(list.set().rules, before.rules);
  uint64_t last = 0;
  for (const OrderedRule& r : list.ordered()) {
    EXPECT_GT(r.priority, last);
    last = r.priority;
  }
}

}  // namespace
}  // namespace sluice

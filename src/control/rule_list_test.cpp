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

void play(const AclChange& change, std::map<uint64_t, AclRule>& by_priority) {
  for (const AclChange::Operation& each : change.operations()) {
    switch (each.kind) {
      case AclChange::Kind::kRemove:
        RC_ASSERT(by_priority.erase(each.priority) == 1);
        break;
      case AclChange::Kind::kPlace: {
        AclRule& rule = by_priority.at(each.priority);
        rule.file = each.file;
        rule.line = each.line;
        break;
      }
      case AclChange::Kind::kAdd:
        RC_ASSERT(by_priority.emplace(each.priority, change.rule(each)).second);
    }
  }
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
        play(list.change(), by_priority);
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

// The length of the longest common subsequence, by the table of all pairs.
size_t common(const std::vector<AclRule>& a, const std::vector<AclRule>& b) {
  std::vector<std::vector<size_t>> most(a.size() + 1, std::vector<size_t>(b.size() + 1, 0));
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      most[i][j] =
          a[i].dst_port_low == b[j].dst_port_low ? most[i + 1][j + 1] + 1 : std::max(most[i + 1][j], most[i][j + 1]);
    }
  }
  return most[0][0];
}

// Any list becomes any other by as few steps as there are, or by none; and goes back.
TEST(RuleList, BecomesAnotherByTheRulesThatDiffer) {
  EXPECT_TRUE(rc::check([] {
    const uint32_t kinds = *rc::gen::element(3u, 12u, 60u);
    const auto draw = [&](size_t most) {
      RuleSet set;
      set.files = {"a", "b"};
      for (size_t n = *rc::gen::inRange<size_t>(0, most); n > 0; --n) {
        set.rules.push_back(port(*rc::gen::inRange<uint32_t>(0, kinds)));
        set.rules.back().file = *rc::gen::inRange<uint32_t>(0, 2);
        set.rules.back().line = *rc::gen::inRange<uint32_t>(0, 4);
      }
      return set;
    };
    const RuleSet from = draw(30);
    RuleSet to = draw(30);
    if (*rc::gen::inRange(0, 2) == 0) {  // like the one before
      to.rules = from.rules;
      for (int edits = *rc::gen::inRange(0, 4); edits > 0 && !to.rules.empty(); --edits) {
        const auto at = to.rules.begin() + *rc::gen::inRange<ptrdiff_t>(0, static_cast<ptrdiff_t>(to.rules.size()));
        *rc::gen::inRange(0, 2) == 0 ? void(to.rules.erase(at)) : void(to.rules.insert(at, port(7)));
      }
    }
    std::swap(to.files[0], to.files[1]);
    std::vector<AclRule> want = to.rules;
    for (AclRule& rule : want) rule.file = 1 - rule.file;
    const size_t steps = from.rules.size() + want.size() - 2 * common(from.rules, want);
    const size_t most = *rc::gen::inRange<size_t>(0, 60);

    RuleList list(from);
    std::map<uint64_t, AclRule> by_priority;
    for (const OrderedRule& r : list.ordered()) by_priority[r.priority] = r.rule;
    list.begin();
    RC_ASSERT(list.become(to, most) == (steps <= most));
    RC_ASSERT(list.set().rules == (steps <= most ? want : from.rules));
    play(list.change(), by_priority);
    std::vector<AclRule> ordered;
    for (const auto& [priority, rule] : by_priority) ordered.push_back(rule);
    RC_ASSERT(ordered == list.set().rules);
    size_t did = 0;
    for (const AclChange::Operation& each : list.change().operations())
      did += each.kind != AclChange::Kind::kPlace ? 1 : 0;
    RC_ASSERT(did == (steps <= most ? steps : 0));
    for (const AclRule& rule : want) {
      if (steps <= most) RC_ASSERT(list.find(rule) != 0u);
    }
    list.undo();
    RC_ASSERT(list.set().rules == from.rules);
  }));
}

TEST(RuleList, IsTheSameWhereRulesAndTheirPlacesAre) {
  RuleSet from = ports(600);
  from.files = {"a", "b"};
  for (uint32_t i = 0; i < 600; ++i) {
    from.rules[i].file = i % 2;
    from.rules[i].line = i + 1;
  }
  const RuleList list(from);
  EXPECT_TRUE(list.same_as(from));
  RuleSet other = from;
  other.files = {"c", "d", "a"};
  EXPECT_FALSE(list.same_as(other));
  EXPECT_TRUE(list.same_as(other, [](const std::string& mine, const std::string& its) {
    return mine == (its == "c" ? "a" : its == "d" ? "b" : "");
  }));
  other.files = {"b", "a"};
  EXPECT_FALSE(list.same_as(other));
  for (AclRule& rule : other.rules) rule.file = 1 - rule.file;
  EXPECT_TRUE(list.same_as(other));
  const auto differs = [&](auto&& edit) {
    RuleSet edited = from;
    edit(edited);
    return !list.same_as(edited);
  };
  for (const size_t at : {size_t{0}, size_t{256}, size_t{599}}) {
    EXPECT_TRUE(differs([&](RuleSet& s) { s.rules[at].line += 1; }));
    EXPECT_TRUE(differs([&](RuleSet& s) { s.rules[at].file = 1 - s.rules[at].file; }));
    EXPECT_TRUE(differs([&](RuleSet& s) { s.rules[at].log = true; }));
    EXPECT_TRUE(differs([&](RuleSet& s) { s.rules.erase(s.rules.begin() + static_cast<ptrdiff_t>(at)); }));
    EXPECT_TRUE(differs([&](RuleSet& s) { std::swap(s.rules[at], s.rules[at ^ 1]); }));
  }
  EXPECT_TRUE(differs([](RuleSet& s) { s.rules.push_back(s.rules.back()); }));
  EXPECT_TRUE(RuleList().same_as({}));
}

TEST(RuleList, BecomesNoListOfUnknownFiles) {
  RuleSet from = ports(8), to = ports(8);
  from.files = {"a"};
  to.files = {"a", "b"};
  RuleList list(from);
  list.begin();
  EXPECT_FALSE(list.become(to, 100));
  to.files = {"a"};
  to.rules[3].file = 1;
  EXPECT_FALSE(list.become(to, 100));
  EXPECT_EQ(list.set().rules, from.rules);
  to.rules[3].file = 0;
  to.rules[3].line = 9;
  EXPECT_TRUE(list.become(to, 0)) << "no rule differs";
  EXPECT_EQ(list.at(4).line, 9u);
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

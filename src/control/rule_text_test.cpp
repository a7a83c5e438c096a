// A text that is much like the one before it gives what it gives by itself.
#include "control/rule_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "formats/native_rules.h"

namespace sluice {
namespace {

const char* const kLines[] = {"permit tcp from any to any port 80",
                              "deny udp from 10.0.0.0/8 to any # a comment",
                              "deny   udp from 10.0.0.0/8 to any",
                              "  mark(7) ip from 2001:db8::/32 to any log\r",
                              "permit tcp from 10.0.0.1,10.0.0.2 to any port 1,2",
                              "# only a comment",
                              "",
                              "define web = 80,443",
                              "permit tcp from any to any port web",
                              "deny tcp frm any to any"};
constexpr size_t kGood = 7;  // of them stand by themselves and are right

std::string text_of(const std::vector<size_t>& lines, bool ended) {
  std::string text;
  for (const size_t line : lines) text += fmt::format("{}\n", kLines[line]);
  if (!ended && !text.empty()) text.pop_back();
  return text;
}

void expect_same(const Result<RuleSet>& got, const Result<RuleSet>& want) {
  RC_ASSERT(got.ok() == want.ok());
  if (!got.ok()) {
    RC_ASSERT(to_string(got.error()) == to_string(want.error()));
    return;
  }
  RC_ASSERT(got->files == want->files);
  RC_ASSERT(got->rules == want->rules);
}

TEST(RuleText, GivesWhatTheWholeGives) {
  EXPECT_TRUE(rc::check([] {
    const auto draw = [](size_t most, size_t kinds) {
      return *rc::gen::container<std::vector<size_t>>(*rc::gen::inRange<size_t>(0, most),
                                                      rc::gen::inRange<size_t>(0, kinds));
    };
    std::vector<size_t> lines = draw(12, kGood);
    lines.push_back(0);
    RuleText before;
    for (int version = 0; version < 6; ++version) {
      const std::string text = text_of(lines, *rc::gen::inRange(0, 2) == 0), name = fmt::format("f{}", version);
      const auto got = before.read(text, name, {});
      const auto want = parse_rules(text, name);
      expect_same(got, want);
      if (got.ok()) {
        before.keep(text, *got, {});
        // What is kept is this text, or none.
        RC_ASSERT(before.text() == (std::ranges::find(lines, 7u) == lines.end() ? text : std::string()));
      }
      // Some lines go, and some come, in one place or in several; seldom one that means something by others, or wrong.
      for (int edits = *rc::gen::inRange(0, 3); edits > 0; --edits) {
        const size_t at = *rc::gen::inRange<size_t>(0, lines.size() + 1);
        const size_t gone = std::min(*rc::gen::inRange<size_t>(0, 4), lines.size() - at);
        const size_t kinds = *rc::gen::inRange(0, 6) == 0 ? std::size(kLines) : kGood;
        const std::vector<size_t> come = draw(4, kinds);
        lines.erase(lines.begin() + static_cast<ptrdiff_t>(at), lines.begin() + static_cast<ptrdiff_t>(at + gone));
        lines.insert(lines.begin() + static_cast<ptrdiff_t>(at), come.begin(), come.end());
      }
      lines.push_back(0);
      if (*rc::gen::inRange(0, 4) == 0) lines.pop_back();
    }
  }));
}

// The same text stands for other rules where another state is asked for.
TEST(RuleText, KnowsTheStateThatItsRulesAreFor) {
  const std::string text = "permit from any to any state new keep-state\ndeny from any to any state invalid\n";
  const std::string more = text + "deny udp from any to any\n";
  const RuleFormatChoice fresh{.state = ConnState::kNew}, invalid{.state = ConnState::kInvalid};
  RuleText before;
  auto rules = before.read(text, "a", fresh);
  ASSERT_TRUE(rules.ok());
  ASSERT_EQ(rules->rules.size(), 1u);
  before.keep(text, std::move(*rules), fresh);
  for (const RuleFormatChoice& choice : {fresh, invalid}) {
    const auto got = before.read(more, "b", choice);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->rules, parse_rules(more, "b", choice)->rules);
    EXPECT_EQ(got->rules.size(), 2u);
  }
  EXPECT_FALSE(before.read(more, "b", {}).ok());
  bool stateful = false;
  EXPECT_TRUE(before.read(more, "b", {.state = ConnState::kNew, .stateful = &stateful}).ok());
  EXPECT_TRUE(stateful);
}

// Long common parts are compared in pieces; the difference is at each place around their ends.
TEST(RuleText, FindsTheLineThatDiffersWhereverItIs) {
  std::string text;
  std::vector<size_t> starts;
  for (int i = 0; i < 120; ++i) {
    starts.push_back(text.size());
    text += fmt::format("deny tcp from 10.0.{}.0/24 to any port {}\n", i, i + 1);
  }
  RuleText before;
  auto rules = before.read(text, "a", {});
  ASSERT_TRUE(rules.ok());
  before.keep(text, std::move(*rules), {});
  ASSERT_EQ(before.text(), text);
  for (const size_t at : starts) {
    std::string other = text;
    other.replace(at, 4, "permit");
    const auto got = before.read(other, "b", {});
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->rules, parse_native_rules(other, "b")->rules) << at;
    other = text;
    other.insert(at, "permit icmp from any to any\n# twice\n");
    EXPECT_EQ(before.read(other, "b", {})->rules, parse_native_rules(other, "b")->rules) << at;
    other = text;
    other.erase(at, text.find('\n', at) + 1 - at);
    EXPECT_EQ(before.read(other, "b", {})->rules, parse_native_rules(other, "b")->rules) << at;
  }
}

// A word that two texts spell together is found when the second is kept.
TEST(RuleText, KeepsNoTextWhoseLinesMeanSomethingToOthers) {
  RuleText text;
  const auto keep = [&](const std::string& all) {
    const auto rules = parse_rules(all, "f");
    ASSERT_TRUE(rules.ok());
    text.keep(all, *rules, {});
  };
  keep("permit ip from any to any\n# defin\n");
  EXPECT_EQ(text.text(), "permit ip from any to any\n# defin\n");
  keep("permit ip from any to any\n# define\n");
  EXPECT_EQ(text.text(), "");
  keep("permit ip from any to any\n# nclude\n");
  keep("permit ip from any to any\n# include\n");
  EXPECT_EQ(text.text(), "");
  keep("DEFINE web = 80\npermit ip from any to any\n");
  EXPECT_EQ(text.text(), "");
  const std::string bench = "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n";
  keep(bench);
  EXPECT_EQ(text.text(), "") << "another format";
}

}  // namespace
}  // namespace sluice

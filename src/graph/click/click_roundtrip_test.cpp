// parse(print(g)) == g, for random graphs and for random texts that happen to parse.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fmt/format.h>

#include <string>
#include <vector>

#include "graph/click/config_text.h"
#include "graph/click/print.h"
#include "graph/click/syntax.h"

namespace sluice {
namespace {

TEST(ClickRoundTrip, RandomGraphsSurvivePrinting) {
  const bool held = rc::check([] {
    ClickGraph graph;
    const int count = *rc::gen::inRange(1, 30);
    const std::vector<std::string> classes = {"Idle", "Queue", "Tee", "Discard", "Foo_1"};
    const std::vector<std::string> configs = {"", "1, 2", "\"a)b\", (x)", "'$v', // c\n x", "\\<48 65>", "x /* , */ y"};
    for (int i = 0; i < count; ++i) {
      ClickElement e;
      const std::vector<std::string> shapes = {"e{}", "Idle@{}", "a/b{}", "@{}/x"};
      e.name = fmt::format(fmt::runtime(*rc::gen::elementOf(shapes)), i + 1);
      e.class_name = *rc::gen::elementOf(classes);
      e.configuration = *rc::gen::elementOf(configs);
      graph.elements.push_back(e);
    }
    const int edges = *rc::gen::inRange(0, 60);
    for (int i = 0; i < edges; ++i) {
      ClickConnection c;
      c.from = *rc::gen::inRange<uint32_t>(0, static_cast<uint32_t>(count));
      c.to = *rc::gen::inRange<uint32_t>(0, static_cast<uint32_t>(count));
      c.from_port = *rc::gen::inRange<uint32_t>(0, 4);
      c.to_port = *rc::gen::inRange<uint32_t>(0, 4);
      graph.connections.push_back(c);
    }
    if (*rc::gen::arbitrary<bool>()) graph.requirements = {"package sluice"};
    graph.normalize();
    const std::string text = print_click(graph);
    const auto again = parse_click(text, "printed");
    if (!again.ok()) RC_FAIL(to_string(again.error()) + text);
    RC_ASSERT(*again == graph);
  });
  EXPECT_TRUE(held);
}

TEST(ClickRoundTrip, RandomTextsParseOrAreRefusedWithPlaces) {
  const std::vector<std::string> tokens = {"a",
                                           "b",
                                           "Idle",
                                           "Tee",
                                           " -> ",
                                           " => ",
                                           " :: ",
                                           ";",
                                           ",",
                                           "{ ",
                                           " }",
                                           "( ",
                                           " )",
                                           "[1]",
                                           "[0,1]",
                                           "[]",
                                           "|",
                                           "||",
                                           "$x",
                                           "(",
                                           ")",
                                           "(1, $x)",
                                           "\n",
                                           "input",
                                           "output",
                                           "elementclass ",
                                           "C ",
                                           "define($x 3)",
                                           "// c\n",
                                           "/* */",
                                           "\"",
                                           "'",
                                           "a :: Idle;",
                                           "{ input -> output }",
                                           "{ $x | -> Queue($x) -> }",
                                           "C(5)",
                                           "Idle -> ",
                                           " -> Discard",
                                           "require(ip6)",
                                           "require(p)"};
  int parsed = 0;
  const bool held = rc::check([&] {
    const auto picked = *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(tokens));
    std::string text;
    for (const std::string& t : picked) text += t;
    const auto graph = parse_click(text, "random");
    if (!graph.ok()) {
      RC_ASSERT(!graph.error().diagnostics.empty());
      for (const Diagnostic& d : graph.error().diagnostics) RC_ASSERT(d.line > 0 && d.column > 0);
      return;
    }
    ++parsed;
    const auto again = parse_click(print_click(*graph), "printed");
    if (!again.ok()) RC_FAIL(to_string(again.error()));
    RC_ASSERT(*again == *graph);
  });
  EXPECT_TRUE(held);
  EXPECT_GT(parsed, 0);
}

TEST(ConfigText, QuotedTextReadsBack) {
  EXPECT_TRUE(rc::check([](const std::string& text) { RC_ASSERT(unquote(quote(text)) == text); }));
}

TEST(ConfigText, QuotedArgumentsSplitBack) {
  EXPECT_TRUE(rc::check([](const std::vector<std::string>& values) {
    std::string joined;
    for (const std::string& v : values) joined += (joined.empty() ? "" : ", ") + quote(v);
    const auto slices = split_arguments(joined);
    RC_ASSERT(slices.size() == values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      RC_ASSERT(unquote(std::string_view(joined).substr(slices[i].offset, slices[i].length)) == values[i]);
    }
    RC_ASSERT(is_closed_config(joined));
  }));
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  for (const ConfigSlice& s : split_arguments(text)) out.emplace_back(text.substr(s.offset, s.length));
  return out;
}

TEST(ConfigText, ArgumentsSplitAtTopLevelCommas) {
  EXPECT_EQ(split("a, b c ,d"), (std::vector<std::string>{"a", "b c", "d"}));
  EXPECT_EQ(split("a, (b, c), \"d, e\", 'f, g', h /* , */ i // , \n"),
            (std::vector<std::string>{"a", "(b, c)", "\"d, e\"", "'f, g'", "h /* , */ i"}));
  EXPECT_EQ(split("a,"), (std::vector<std::string>{"a"}));
  EXPECT_EQ(split(",a"), (std::vector<std::string>{"", "a"}));
  EXPECT_EQ(split("  // nothing\n"), (std::vector<std::string>{}));
}

TEST(ConfigText, EscapesWorkBetweenDoubleQuotesAndHexEverywhere) {
  EXPECT_EQ(unquote("\"a\\tb\\x41\\101\\\"\\\\\\q\""), "a\tbAA\"\\q");
  EXPECT_EQ(unquote("a\\tb"), "a\\tb");
  EXPECT_EQ(unquote("\\<48 45 4c>\\<4C4f>"), "HELLO");
  EXPECT_EQ(unquote("\"x\\<41>\"'\\n'y"), "xA\\ny");
  EXPECT_EQ(unquote("\"a\\\nb\""), "ab");
  EXPECT_EQ(unquote(std::string_view("\\<00>", 5)), std::string(1, '\0'));
  UnquoteFault fault;
  EXPECT_FALSE(unquote("ab\\<4x>", &fault));
  EXPECT_EQ(fault.offset, 5u);
  EXPECT_FALSE(unquote("\\<484>", &fault));
  EXPECT_EQ(fault.message, "the hex data has an odd number of digits");
  EXPECT_FALSE(unquote("x \"abc", &fault));
  EXPECT_EQ(fault.offset, 2u);
}

}  // namespace
}  // namespace sluice

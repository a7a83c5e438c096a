// No input makes the parser hang, overflow the stack or grow without bound: a limit ends it with an error that names
// it.
#include <gtest/gtest.h>

#include <string>

#include "graph/click/syntax.h"

namespace sluice {
namespace {

std::string repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string first_message(std::string_view text, const ParseOptions& options = {}) {
  const auto graph = parse_click(text, "big.click", options);
  if (graph.ok()) return "ok";
  return graph.error().diagnostics.empty() ? graph.error().message : graph.error().diagnostics[0].message;
}

TEST(ClickLimits, DeepNestingIsRefused) {
  for (const char* open : {"{", "(", "x :: {", "( ", "{ ( "}) {
    EXPECT_EQ(first_message("Idle -> " + repeat(open, 200000)), "nested deeper than 64 levels") << open;
  }
}

TEST(ClickLimits, LongChainsAndListsAreFine) {
  EXPECT_EQ(first_message("Idle" + repeat(" -> Null", 50000)), "ok");
  EXPECT_EQ(first_message("a :: Tee; a -> " + repeat("Discard, ", 20000) + "Discard"), "ok");
}

TEST(ClickLimits, ExponentialCompoundsAreRefused) {
  std::string text = "elementclass A0 { Idle -> Null -> Null -> Discard }\n";
  std::string empty = "elementclass A0 { }\n";
  for (int i = 1; i < 20; ++i) {
    const std::string line =
        "elementclass A" + std::to_string(i) + " { A" + std::to_string(i - 1) + " ; A" + std::to_string(i - 1) + " }\n";
    text += line;
    empty += line;
  }
  EXPECT_EQ(first_message(text + "A19"), "more than 100000 compound elements");
  EXPECT_EQ(first_message(empty + "A19"), "more than 100000 compound elements");
}

TEST(ClickLimits, DeepInstancesAreRefused) {
  std::string text = "elementclass A0 { Idle }\n";
  for (int i = 1; i < 500; ++i) text += "elementclass A" + std::to_string(i) + " { A" + std::to_string(i - 1) + " }\n";
  EXPECT_EQ(first_message(text + "A499"), "compound elements nest deeper than 64");
}

TEST(ClickLimits, ExponentialVariablesAreRefused) {
  std::string text = "define($a0 0123456789)\n";
  for (int i = 1; i < 60; ++i) {
    const std::string before = "$a" + std::to_string(i - 1);
    text += "define($a" + std::to_string(i) + " " + before + before + ")\n";
  }
  EXPECT_EQ(first_message(text + "Print($a59)"), "expansion writes more than 33554432 bytes of text");
}

TEST(ClickLimits, LongChainsOfVariablesAreRefused) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "define($a" + std::to_string(i) + " $a" + std::to_string(i + 1) + ")\n";
  EXPECT_EQ(first_message(text + "Print($a0)"), "variables are defined through more than 100 others");
}

TEST(ClickLimits, ConnectionsThatMultiplyInTunnelsAreRefused) {
  // 1000 x 1000 edges out of 2000.
  const std::string text =
      "x :: { input -> output };\n" + repeat("Idle -> x;\n", 1000) + repeat("x -> Discard;\n", 1000);
  EXPECT_EQ(first_message(text), "more than 400000 connections");
}

TEST(ClickLimits, PortListsAreRefusedWhenTheyMultiply) {
  EXPECT_EQ(first_message("a :: Tee; " + repeat("a [0-4095], ", 10000) + "a -> Discard"),
            "more than 800000 ports in lists");
}

TEST(ClickLimits, ManyFaultsCostLinearTime) {
  for (const char* fault :
       {"a(\n", "/*\n", "Print(\"\n", "Print(${a-\n", "${a ", "Print($a)\n", "]\n", "x :: \n", "\x01\n"}) {
    const auto graph = parse_click(repeat(fault, 100000), "big.click");
    ASSERT_FALSE(graph.ok()) << fault;
    EXPECT_LE(graph.error().diagnostics.size(), Diagnostics::kLimit) << fault;
  }
}

TEST(ClickLimits, SourcesPastTheLimitAreRefused) {
  ParseOptions options;
  options.max_source_bytes = 10;
  EXPECT_EQ(first_message("a :: Idle; ", options), "big.click has 11 bytes; the limit is 10");
}

TEST(ClickLimits, ArchivesAreNamed) {
  EXPECT_EQ(first_message("!<arch>\nconfig"), "big.click is an archive; archives are not supported");
}

// Found by click_fuzz: a landmark of line 0 gave a finding without a line.
TEST(ClickRegression, ALandmarkOfLineZeroStillCountsFromOne) {
  const auto graph = parse_click("# 0 \"built-in\"\n40 -> Discard;\n", "f.click");
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().diagnostics[0].file, "built-in");
  EXPECT_EQ(graph.error().diagnostics[0].line, 1u);
}

}  // namespace
}  // namespace sluice

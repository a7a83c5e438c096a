// What the language means: each configuration expands to exactly this flat graph.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "graph/click/print.h"
#include "graph/click/syntax.h"

namespace sluice {
namespace {

// The canonical text of a configuration, or its rendered error.
std::string flat(std::string_view text, const ParseOptions& options = {}) {
  const Result<ClickGraph> graph = parse_click(text, "test.click", options);
  return graph.ok() ? print_click(*graph) : to_string(graph.error());
}

TEST(ClickLanguage, AChainNamesItsAnonymousElementsByPosition) {
  EXPECT_EQ(flat("InfiniteSource(LIMIT 5) -> c :: Counter -> Discard;"),
            "InfiniteSource@1 :: InfiniteSource(LIMIT 5);\nc :: Counter;\nDiscard@3 :: Discard;\n\n"
            "InfiniteSource@1 -> c\n    -> Discard@3;\n");
}

TEST(ClickLanguage, AnonymousNamesAvoidDeclaredOnes) {
  EXPECT_EQ(flat("Idle -> d :: Discard; Idle@1 :: Idle; Idle@1 -> d"),
            "Idle@2 :: Idle;\nd :: Discard;\nIdle@1 :: Idle;\n\nIdle@2 -> d;\nIdle@1 -> d;\n");
}

TEST(ClickLanguage, OneDeclarationDeclaresAListOfNames) {
  EXPECT_EQ(flat("a, b :: Queue(10);"), "a :: Queue(10);\nb :: Queue(10);\n");
}

TEST(ClickLanguage, InsideAConnectionADeclarationBindsTheLastName) {
  EXPECT_EQ(flat("a :: Idle; a, b :: Idle -> Discard"),
            "a :: Idle;\nb :: Idle;\nDiscard@3 :: Discard;\n\na -> Discard@3;\nb -> Discard@3;\n");
}

TEST(ClickLanguage, SemicolonsAreOptionalBetweenStatements) {
  EXPECT_EQ(flat("a :: Idle d :: Discard a -> d"), "a :: Idle;\nd :: Discard;\n\na -> d;\n");
}

TEST(ClickLanguage, PlainArrowsBroadcast) {
  EXPECT_EQ(flat("t :: Tee(2); a, b :: Discard; t [1] -> a, b; x, y :: Idle; x, y -> [3] t"),
            "t :: Tee(2);\na :: Discard;\nb :: Discard;\nx :: Idle;\ny :: Idle;\n\n"
            "x -> [3] t;\ny -> [3] t;\nt [1] -> a;\nt [1] -> b;\n");
}

TEST(ClickLanguage, DoubleArrowsJoinPortsOneByOne) {
  EXPECT_EQ(flat("t :: Tee(3); s :: Sched; t [0-2] => [2,0,1] s"),
            "t :: Tee(3);\ns :: Sched;\n\nt -> [2] s;\nt [1] -> s;\nt [2] -> [1] s;\n");
  EXPECT_EQ(flat("t :: Tee(3); a, b :: Discard; t => a, b"),
            "t :: Tee(3);\na :: Discard;\nb :: Discard;\n\nt -> a;\nt [1] -> b;\n");
  EXPECT_EQ(flat("t :: Tee(3); s :: Sched; t [1-3] => [4,] s"),
            "t :: Tee(3);\ns :: Sched;\n\nt [1] -> [4] s;\nt [2] -> [5] s;\nt [3] -> [6] s;\n");
}

TEST(ClickLanguage, CompoundsAreFlattenedWithTheirNameAsPrefix) {
  EXPECT_EQ(flat("elementclass Q { $cap | input -> q :: Queue($cap) -> Unqueue -> output }\n"
                 "Idle -> x :: Q(7) -> Discard"),
            "Idle@1 :: Idle;\nDiscard@3 :: Discard;\nx/q :: Queue(7);\nx/Unqueue@2 :: Unqueue;\n\n"
            "Idle@1 -> x/q\n    -> x/Unqueue@2\n    -> Discard@3;\n");
}

TEST(ClickLanguage, PassThroughCompoundsLeaveNoTrace) {
  EXPECT_EQ(flat("a :: Idle; a -> { -> { input -> output } -> { -> { -> output } -> } -> } -> d :: Discard"),
            "a :: Idle;\nd :: Discard;\n\na -> d;\n");
  EXPECT_EQ(
      flat("a :: Idle; a -> x :: { input -> output; input [1] -> [1] output } -> d :: Discard; b :: Idle -> [1] x "
           "[1] -> e :: Discard"),
      "a :: Idle;\nd :: Discard;\nb :: Idle;\ne :: Discard;\n\na -> d;\nb -> e;\n");
}

TEST(ClickLanguage, UnconnectedEndsOfACompoundAreDropped) {
  EXPECT_EQ(flat("{ input -> Counter -> output } -> Discard"),
            "Discard@2 :: Discard;\n@1/Counter@1 :: Counter;\n\n@1/Counter@1 -> Discard@2;\n");
}

TEST(ClickLanguage, UnusedCompoundsAreDropped) {
  EXPECT_EQ(flat("elementclass Unused { input -> Counter -> output } Idle -> Discard"),
            "Idle@1 :: Idle;\nDiscard@2 :: Discard;\n\nIdle@1 -> Discard@2;\n");
}

TEST(ClickLanguage, OverloadsAreChosenByTheirArguments) {
  const std::string head =
      "elementclass P { $a | -> One($a) -> || $a, $b | -> Two($b, $a) -> || $a, CAP $c, __REST__ $r "
      "| -> Many($a, $c, $r) -> }\n";
  EXPECT_NE(flat(head + "Idle -> P(1) -> Discard").find(":: One(1)"), std::string::npos);
  EXPECT_NE(flat(head + "Idle -> P(1, 2) -> Discard").find(":: Two(2, 1)"), std::string::npos);
  EXPECT_NE(flat(head + "Idle -> P(1, x, CAP 9, y) -> Discard").find(":: Many(1, 9, x, y)"), std::string::npos);
}

TEST(ClickLanguage, OverloadsOfEqualArgumentsAreChosenByTheirPorts) {
  const std::string head = "elementclass P { -> One -> || input -> Two -> output; input [1] -> [1] output }\n";
  EXPECT_NE(flat(head + "Idle -> P -> Discard").find(":: One"), std::string::npos);
  EXPECT_NE(flat(head + "Idle -> p :: P -> Discard; Idle -> [1] p [1] -> Discard").find(":: Two"), std::string::npos);
}

TEST(ClickLanguage, ClassesAreLexicallyScopedAndNotRecursive) {
  // The Queue inside is the primitive one; A keeps the B it saw.
  EXPECT_EQ(flat("elementclass Queue { -> q :: Queue -> Shaper(1) -> }\nIdle -> x :: Queue -> Discard"),
            "Idle@1 :: Idle;\nDiscard@3 :: Discard;\nx/q :: Queue;\nx/Shaper@2 :: Shaper(1);\n\n"
            "Idle@1 -> x/q\n    -> x/Shaper@2\n    -> Discard@3;\n");
  EXPECT_EQ(flat("elementclass A { -> b :: B -> } elementclass B { -> C -> } Idle -> a :: A -> Discard"),
            "Idle@1 :: Idle;\nDiscard@3 :: Discard;\na/b :: B;\n\nIdle@1 -> a/b\n    -> Discard@3;\n");
}

TEST(ClickLanguage, ASynonymStandsForItsClass) {
  EXPECT_EQ(flat("elementclass Sink Discard; a :: Idle -> s :: Sink"), "a :: Idle;\ns :: Discard;\n\na -> s;\n");
}

TEST(ClickLanguage, GroupsShareTheScopeAndImplyTheirPorts) {
  EXPECT_EQ(flat("t :: Tee(2) => ( [0] -> c :: Counter -> [0]; [1] -> p :: Paint(1) -> [1] ) => d :: Discard, e :: "
                 "Discard; c -> f :: Discard"),
            "t :: Tee(2);\nc :: Counter;\np :: Paint(1);\nd :: Discard;\ne :: Discard;\nf :: Discard;\n\n"
            "t -> c\n    -> d;\nt [1] -> p\n    -> e;\nc -> f;\n");
}

TEST(ClickLanguage, DefinesDoNotDependOnTheirOrder) {
  EXPECT_EQ(flat("q :: Queue($size); define($size $base); define($base 12);"), "q :: Queue(12);\n");
}

TEST(ClickLanguage, TheCommandLineOverridesGlobalDefinesOnly) {
  ParseOptions options;
  options.defines = {{"size", "99"}};
  EXPECT_EQ(flat("define($size 1); q :: Queue($size);", options), "q :: Queue(99);\n");
  EXPECT_EQ(flat("x :: { define($size 1); q :: Queue($size) }", options), "x/q :: Queue(1);\n");
}

TEST(ClickLanguage, VariablesAreLexicallyScoped) {
  EXPECT_EQ(
      flat("define($v outer); elementclass C { p :: Print($v) } x :: { define($v inner); c :: C; p :: Print($v) }"),
      "x/p :: Print(inner);\nx/c/p :: Print(outer);\n");
}

TEST(ClickLanguage, SubstitutionHonoursQuotes) {
  EXPECT_EQ(flat("define($v \"a\\\"b\", $w 3); p :: Print($v, \"x $v ${w}s\", '$v', ${u-7}, $w$w, $)"),
            "p :: Print(\"a\\\"b\", \"x a\\\"b 3s\", '$v', 7, 33, $);\n");
}

TEST(ClickLanguage, ScriptsKeepTheirOwnVariables) {
  EXPECT_EQ(flat("define($n 3); s :: Script(set i 0, print $i $n)"), "s :: Script(set i 0, print $i 3);\n");
}

TEST(ClickLanguage, ParenthesesNameAVariableOrElseAHandler) {
  EXPECT_EQ(flat("define($n 3); p :: Print($(n), \"$(n)s\"); s :: Script(print $(c.count), print $(now), print $(n))"),
            "p :: Print(3, \"3s\");\ns :: Script(print $(c.count), print $(now), print 3);\n");
}

TEST(ClickLanguage, ConfigurationsEndAtTheUnbalancedParenthesis) {
  EXPECT_EQ(flat("p :: Print(a (b) ')' \"\\\")\" /* ) */ c)"), "p :: Print(a (b) ')' \"\\\")\" /* ) */ c);\n");
  EXPECT_EQ(flat("p :: Print(// )\n x // last\n);"), "p :: Print(// )\n x // last\n);\n");
}

TEST(ClickLanguage, CommentsEndIdentifiers) {
  EXPECT_EQ(flat("a/b//c\n :: /* d */ Idle"), "a/b :: Idle;\n");
}

TEST(ClickLanguage, RequirementsAreRecorded) {
  EXPECT_EQ(flat("require(package sluice, /* c */ ip6); require(package \"batch\"); a :: Idle"),
            "require(package sluice);\nrequire(ip6);\nrequire(package \"batch\");\na :: Idle;\n");
}

TEST(ClickLanguage, CyclesOfTunnelsCarryNothing) {
  EXPECT_EQ(flat("x :: { input -> output }; x -> x; a :: Idle -> x"), "a :: Idle;\n");
}

TEST(ClickLanguage, PositionsPointIntoTheSource) {
  const auto graph = parse_click("a :: Idle;\n  b ::\n   Queue( 17 );\n", "f.click");
  ASSERT_TRUE(graph.ok());
  const ClickElement& b = graph->elements[1];
  EXPECT_EQ(b.name_position.line(), 2u);
  EXPECT_EQ(b.name_position.column(), 3u);
  EXPECT_EQ(b.class_position.line(), 3u);
  EXPECT_EQ(b.class_position.column(), 4u);
  EXPECT_EQ(b.configuration, "17");
  EXPECT_EQ(b.configuration_origin.position(0).line(), 3u);
  EXPECT_EQ(b.configuration_origin.position(0).column(), 11u);
  EXPECT_EQ(b.configuration_origin.position(1).column(), 12u);
}

TEST(ClickLanguage, PositionsSurviveSubstitution) {
  const auto graph = parse_click("define($w wide);\np :: Print( $w, \"$w\",\n  tail);\n", "f.click");
  ASSERT_TRUE(graph.ok());
  const ClickElement& p = graph->elements[0];
  ASSERT_EQ(p.configuration, "wide, \"wide\",\n  tail");
  EXPECT_EQ(p.configuration_origin.position(2).column(), 13u);  // inside the value: the '$'
  EXPECT_EQ(p.configuration_origin.position(4).column(), 15u);  // the comma
  const size_t tail = p.configuration.find("tail");
  EXPECT_EQ(p.configuration_origin.position(tail).line(), 3u);
  EXPECT_EQ(p.configuration_origin.position(tail).column(), 3u);
}

TEST(ClickLanguage, LandmarksRenameFileAndLine) {
  const auto graph = parse_click("a :: Idle;\n#line 7 \"x.click\"\nb :: Idle;\n# 30\nc :: Idle;", "f.click");
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->elements[0].name_position.file(), "f.click");
  EXPECT_EQ(graph->elements[1].name_position.file(), "x.click");
  EXPECT_EQ(graph->elements[1].name_position.line(), 7u);
  EXPECT_EQ(graph->elements[2].name_position.file(), "x.click");
  EXPECT_EQ(graph->elements[2].name_position.line(), 30u);
}

// A router of the kind that Click's manuals show, in our own words.
TEST(ClickLanguage, AnIpRouterExpands) {
  const auto graph = parse_click(R"(
// Two ports, ARP answered elsewhere.
define($MAC0 02:00:00:00:00:01, $MAC1 02:00:00:00:00:02)
elementclass In { PORT $p, $mac |
  FromDevice($p) -> c :: Classifier(12/0800, -)
  c [0] -> Strip(14) -> chk :: CheckIPHeader -> output
  chk [1], c [1] -> Discard
}
elementclass Out { $p, $src | input -> EtherEncap(0x0800, $src, ff:ff:ff:ff:ff:ff) -> Queue(1000) -> ToDevice($p) }
in0 :: In(PORT eth0, $MAC0); in1 :: In($MAC1, PORT eth1)
rt :: RadixIPLookup(10.0.0.0/8 0, 0.0.0.0/0 192.0.2.1 1)
in0, in1 -> rt => ( [0] -> t0 :: DecIPTTL -> [0]; [1] -> t1 :: DecIPTTL -> [1]; t0 [1], t1 [1] -> Discard )
  => Out(eth0, $MAC0), Out(eth1, $MAC1);
)",
                                 "router.click");
  ASSERT_TRUE(graph.ok()) << to_string(graph.error());
  EXPECT_EQ(graph->elements.size(), 20u);
  EXPECT_EQ(graph->elements[static_cast<size_t>(graph->find("in1/FromDevice@1"))].configuration, "eth1");
  const int rt = graph->find("rt");
  const int t1 = graph->find("t1");
  ASSERT_GE(rt, 0);
  ASSERT_GE(t1, 0);
  EXPECT_NE(std::find(graph->connections.begin(), graph->connections.end(),
                      ClickConnection{static_cast<uint32_t>(rt), 1, static_cast<uint32_t>(t1), 0, {}}),
            graph->connections.end());
}

TEST(ClickLanguage, AClassExtendsOneOfItsName) {
  const char* const text =
      "elementclass F { $a, $b | input -> Print(1) -> output || $a, __REST__ $b | input -> Print(2) -> output }\n"
      "Idle -> F(A) -> f :: F(A, B);\n"
      "elementclass F { $a, $b | input -> Print(3) -> output || ... }\n"
      "f -> F(A) -> g :: F(A, B) -> Discard;";
  const auto graph = parse_click(text, "test.click");
  ASSERT_TRUE(graph.ok()) << to_string(graph.error());
  auto configuration = [&](const char* name) {
    return graph->elements.at(static_cast<size_t>(graph->find(name))).configuration;
  };
  EXPECT_EQ(configuration("F@2/Print@1"), "2");
  EXPECT_EQ(configuration("f/Print@1"), "1");
  EXPECT_EQ(configuration("F@4/Print@1"), "2");
  EXPECT_EQ(configuration("g/Print@1"), "3");
  // A class that is none of ours is what is left.
  EXPECT_EQ(flat("elementclass Queue { $a, $b | input -> Counter -> output || ... }\n"
                 "Idle -> Queue(10) -> Discard;"),
            "Idle@1 :: Idle;\nQueue@2 :: Queue(10);\nDiscard@3 :: Discard;\n\nIdle@1 -> Queue@2\n    -> Discard@3;\n");
}

TEST(ClickLanguage, WordsOfValuesByTheirNumbers) {
  EXPECT_EQ(flat("define($a 10 'two words' 30, $n 2);\n"
                 "Message(${a[0]}, \"${a[1]}\", ${a[$n]}, ${a[${n}]}, -${a[9]}-, ${a[9]-none}, ${a[ 0 ]});"),
            "Message@1 :: Message(10, \"two words\", 30, 30, --, none, 10);\n");
}

TEST(ClickLanguage, LibrariesAreReadOnceInTheirPlaces) {
  ParseOptions options;
  options.library = [](const std::string& name, const std::string&) -> Result<ClickLibrary> {
    return ClickLibrary{name, name == "outer" ? "require(library inner)\nelementclass A { -> B -> }"
                                              : "elementclass B { -> Counter -> }"};
  };
  const auto graph = parse_click(
      "require(library outer, library inner) require(library inner)\nIdle -> a :: A -> Discard;", "f.click", options);
  ASSERT_TRUE(graph.ok()) << to_string(graph.error());
  EXPECT_EQ(print_click(*graph),
            "Idle@1 :: Idle;\nDiscard@3 :: Discard;\na/B@1/Counter@1 :: Counter;\n\n"
            "Idle@1 -> a/B@1/Counter@1\n    -> Discard@3;\n");
  EXPECT_EQ(graph->elements[0].name_position.file(), "f.click");
  EXPECT_EQ(graph->elements[0].name_position.line(), 2u);
  EXPECT_EQ(graph->elements[2].name_position.file(), "inner");
}

}  // namespace
}  // namespace sluice

// The graph checks over classes made for the purpose; elements/arguments_test.cpp has the product's own.
#include "graph/router.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

class Plain : public Element {
 public:
  Plain(ElementKind kind, StageTraits traits) : kind_(kind), traits_(traits) {}
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    if (arguments.has("PORTS")) ports_ = static_cast<unsigned>(arguments.get_uint("PORTS"));
    if (ports_ == 13u) diagnostics.add(arguments.error_at("PORTS", "no thirteen here"));
  }
  ElementKind kind() const override { return kind_; }
  StageTraits stage_traits() const override { return traits_; }
  std::optional<unsigned> output_count() const override { return ports_; }

 private:
  ElementKind kind_;
  StageTraits traits_;
  std::optional<unsigned> ports_;
};

Registry registry() {
  Registry made;
  auto add = [&](const char* name, ElementKind kind, PortRange inputs, PortRange outputs, StageTraits traits = {}) {
    ElementClass c;
    c.name = name;
    c.inputs = inputs;
    c.outputs = outputs;
    c.arguments = {{.name = "PORTS", .kind = ArgumentKind::kUint, .positional = true, .help = "outputs"}};
    c.make = [=](std::string_view) { return std::make_unique<Plain>(kind, traits); };
    if (c.name == "Parse") c.aliases = {"OldParse"};
    made.add(std::move(c));
  };
  add("Source", ElementKind::kSource, {0, 0}, {1, 1});
  add("Sink", ElementKind::kSink, {1, 1}, {0, 0});
  add("Parse", ElementKind::kStage, {1, 1}, {1, 2}, {kFieldFrame, kFieldKey | kFieldDestination});
  add("Use", ElementKind::kStage, {1, 1}, {1, kAnyPorts}, {kFieldKey, 0});
  add("Join", ElementKind::kHost, {2, 2}, {1, 1});
  add("Info", ElementKind::kInfo, {0, 0}, {0, 0});
  return made;
}

std::string findings(const std::string& text) {
  auto graph = parse_click(text, "g");
  if (!graph) return to_string(graph.error());
  auto router = build_router(*graph, registry(), text);
  std::string out;
  if (router) return out;
  for (const Diagnostic& d : router.error().diagnostics)
    out += fmt::format("{}:{}: {} [{}]\n", d.line, d.column, d.message, d.expected);
  return out;
}

TEST(Router, ElementsKnowThemselvesAndTheirPorts) {
  const std::string text = "s :: Source -> p :: OldParse(2) -> u :: Use -> k :: Sink;\np[1] -> k;";
  auto graph = parse_click(text, "g");
  ASSERT_TRUE(graph.ok());
  const Registry classes = registry();
  auto router = build_router(*graph, classes, text);
  ASSERT_TRUE(router.ok()) << to_string(router.error());
  const Element* p = router->find("p");
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(p->class_name, "OldParse");
  EXPECT_EQ(p->element_class, classes.find("Parse"));
  EXPECT_EQ(p->configuration, "2");
  EXPECT_EQ(p->inputs, 1u);
  EXPECT_EQ(p->outputs, 2u);
  EXPECT_EQ(p->position.line(), 1u);
  EXPECT_EQ(router->find("k")->inputs, 1u);
  EXPECT_EQ(router->elements[router->target(1, 1).element]->name, "k");
  EXPECT_EQ(router->target(1, 2).element, ~0u);
  EXPECT_EQ(router->target(3, 0).element, ~0u);
  EXPECT_EQ(router->find("nobody"), nullptr);
  const Diagnostic d = p->diagnostic("wrong");
  EXPECT_EQ(d.line, 1u);
  EXPECT_EQ(d.column, 16u);
}

TEST(Router, PortCountsOfTheClassAndOfTheElement) {
  EXPECT_EQ(findings("Source -> Parse -> Sink"), "");
  EXPECT_EQ(
      findings("Source -> p :: Parse; p[2] -> Sink;"),
      "1:11: output 0 of 'p' (Parse) is not connected []\n1:28: 'p' has no output 2 [Parse has 1 or 2 outputs]\n");
  EXPECT_EQ(findings("s :: Source -> p :: Parse(1) -> Sink; p[1] -> Sink;"),
            "1:44: 'p' has no output 1 [Parse(...) has 1 output]\n");
  EXPECT_EQ(findings("Source -> [1] j :: Join -> Sink"), "1:15: input 0 of 'j' (Join) is not connected []\n");
  EXPECT_EQ(findings("Source -> i :: Info"), "1:8: 'i' has no input 0 [Info has no inputs]\n");
}

TEST(Router, WrongArgumentsDoNotRaiseWrongPortErrors) {
  EXPECT_EQ(findings("Source -> p :: Parse(13); p[12] -> Sink;"), "1:22: no thirteen here []\n");
  EXPECT_EQ(findings("Source -> p :: Parse(x); p[12] -> Sink;").substr(0, 4), "1:22");
}

TEST(Router, FieldsFlowThroughHostElementsAndRoundCycles) {
  EXPECT_EQ(findings("a :: Source -> Parse -> j :: Join -> Use -> Sink; b :: Source -> Parse -> [1] j;"), "");
  EXPECT_EQ(findings("a :: Source -> Parse -> j :: Join -> Use -> Sink; b :: Source -> [1] j;"),
            "1:38: Use reads the packet's key, which nothing before it writes on the way from 'b' []\n");
  EXPECT_EQ(findings("Source -> j :: Join -> p :: Parse -> u :: Use -> Sink; u[1] -> [1] j;"), "");
}

TEST(Router, LargeGraphsTakeLinearTimeAndBoundedMemory) {
  // A chain that is written backwards, so that every pass over its connections would move a field by one element only;
  // and as many errors as elements.
  constexpr int kElements = 30000;
  std::string text = fmt::format("u{} :: Sink;", kElements);
  for (int i = 0; i < kElements; ++i) text += fmt::format("u{} :: Use;\n", i);
  for (int i = kElements; i-- > 0;) text += fmt::format("u{} -> u{};\n", i, i + 1);
  text += "Source -> p :: Parse -> u0;";
  EXPECT_EQ(findings(text), "");
  text.replace(text.find("Source -> p :: Parse"), 20, "Source");
  auto graph = parse_click(text, "g");
  ASSERT_TRUE(graph.ok());
  auto router = build_router(*graph, registry(), text);
  ASSERT_FALSE(router.ok());
  EXPECT_EQ(router.error().diagnostics.size(), Diagnostics::kLimit);
  EXPECT_EQ(router.error().message, "30000 errors in g");
}

TEST(Router, WithoutASourceTextTheNameSaysWhere) {
  ClickGraph graph;
  graph.elements.resize(2);
  graph.elements[0].name = "s";
  graph.elements[0].class_name = "Source";
  graph.elements[1].name = "u";
  graph.elements[1].class_name = "Usee";
  graph.connections.push_back({0, 0, 1, 0, {}});
  auto router = build_router(graph, registry(), "");
  ASSERT_FALSE(router.ok());
  EXPECT_EQ(to_string(router.error()),
            "configuration: error: unknown element class 'Usee'\n  help: did you mean Use?\nerror: 1 error in "
            "configuration\n");
}

}  // namespace
}  // namespace sluice

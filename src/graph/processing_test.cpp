#include "graph/processing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "graph/router.h"

namespace sluice {
namespace {

class Port final : public Element {
 public:
  explicit Port(ElementKind kind) : kind_(kind) {}
  ElementKind kind() const override { return kind_; }

 private:
  ElementKind kind_;
};

Registry port_classes() {
  Registry made;
  auto add = [&](const char* name, ElementKind kind, PortRange inputs, PortRange outputs, const char* code) {
    ElementClass c;
    c.name = name;
    c.inputs = inputs;
    c.outputs = outputs;
    c.processing = code;
    c.make = [=](std::string_view) { return std::make_unique<Port>(kind); };
    made.add(std::move(c));
  };
  add("Source", ElementKind::kSource, {0, 0}, {1, 1}, "");
  add("Pusher", ElementKind::kFlow, {0, 0}, {1, 1}, "/h");
  add("Queue", ElementKind::kFlow, {1, 1}, {1, 2}, "h/lh");
  add("Unqueue", ElementKind::kFlow, {1, 1}, {1, 1}, "l/h");
  add("Pass", ElementKind::kStage, {1, 1}, {1, 2}, "");
  add("Choose", ElementKind::kStage, {1, 1}, {1, 8}, "");
  add("Idle", ElementKind::kHost, {0, kAnyPorts}, {0, kAnyPorts}, "a/a#");
  add("Sched", ElementKind::kFlow, {1, kAnyPorts}, {1, 1}, "l/l");
  add("Sink", ElementKind::kSink, {1, 1}, {0, 0}, "");
  return made;
}

// What is wrong, a line each; or "1 2 ...": the connections that pull, and why the scheduler is needed.
std::string outcome(const std::string& text) {
  auto graph = parse_click(text, "g");
  if (!graph) return to_string(graph.error());
  const Registry classes = port_classes();
  auto router = build_router(*graph, classes, text);
  std::string out;
  if (!router) {
    for (const Diagnostic& d : router.error().diagnostics)
      out += fmt::format("{}:{}: {} [{}]\n", d.line, d.column, d.message, d.suggestion);
    return out;
  }
  for (size_t c = 0; c < router->connections.size(); ++c) {
    if (router->connections[c].pull)
      out += fmt::format("{}->{} ", router->elements[router->connections[c].from]->name,
                         router->elements[router->connections[c].to]->name);
  }
  return out + "| " + router->scheduled;
}

TEST(Processing, AgnosticPortsFollowWhatTheyAreConnectedTo) {
  EXPECT_EQ(outcome("s :: Source -> p :: Pass -> k :: Sink;"), "| ");
  EXPECT_EQ(outcome("s :: Source -> p :: Pass -> q :: Queue -> r :: Pass -> k :: Sink;"),
            "q->r r->k | 'r' pulls packets from 'q'");
  EXPECT_EQ(outcome("s :: Source -> p :: Pass -> u :: Unqueue -> k :: Sink;"),
            "s->p p->u | 'p' pulls packets from 's'");
  EXPECT_EQ(outcome("p :: Pusher -> k :: Sink;"), "| 'p' (Pusher) handles one packet at a time");
  // What is wrong with a packet is pushed away, wherever the packet comes from.
  EXPECT_EQ(outcome("q :: Queue -> p :: Pass -> u :: Unqueue -> k :: Sink; Idle -> q; p[1] -> k2 :: Sink;"),
            "q->p p->u | 'p' pulls packets from 'q'");
  // Ports of an Idle are each for themselves.
  EXPECT_EQ(outcome("p :: Pusher -> i :: Idle; i -> u :: Unqueue -> k :: Sink;"), "i->u | 'u' pulls packets from 'i'");
}

TEST(Processing, PushMeetsPull) {
  EXPECT_EQ(outcome("p :: Pusher -> u :: Unqueue -> k :: Sink;"),
            "1:13: push output 0 of 'p' and pull input 0 of 'u' meet [put a Queue between them]\n");
  EXPECT_EQ(outcome("i :: Idle -> q :: Queue -> r :: Queue -> k :: Sink;"),
            "1:25: push input 0 of 'r' and pull output 0 of 'q' meet [put an Unqueue between them]\n");
  EXPECT_EQ(outcome("p :: Pusher -> a :: Pass -> b :: Pass -> u :: Unqueue -> k :: Sink;"),
            "1:26: push output 0 of 'p' and pull input 0 of 'u' meet [put a Queue between them]\n");
  EXPECT_EQ(outcome("p :: Pusher -> a :: Pass -> u :: Unqueue -> k :: Sink;"),
            "1:16: push output 0 of 'p' and pull input 0 of 'u' meet at 'a' (Pass) [put a Queue between them]\n");
  // Which of many outputs a packet leaves by is not for those who ask to say.
  EXPECT_EQ(outcome("i :: Idle -> c :: Choose -> u :: Unqueue -> k :: Sink;"),
            "1:26: push output 0 of 'c' and pull input 0 of 'u' meet [put a Queue between them]\n");
}

TEST(Processing, PortsThatMayBeUsedOnce) {
  EXPECT_EQ(outcome("p :: Pusher -> a :: Sink; p -> b :: Sink;"),
            "1:29: output 0 of 'p' is connected twice: to 'a' and to 'b' [put a Tee between them to send each packet "
            "both ways, or a Classifier to choose]\n");
  EXPECT_EQ(outcome("i :: Idle -> q :: Queue -> u :: Unqueue -> a :: Sink; i[1] -> r :: Queue -> u;"),
            "1:74: pull input 0 of 'u' is connected twice: to 'q' and to 'r' [put a RoundRobinSched or PrioSched "
            "between them to choose the input]\n");
  // Whoever asks first gets it.
  EXPECT_EQ(outcome("i :: Idle -> q :: Queue -> u :: Unqueue -> a :: Sink; q -> v :: Unqueue -> b :: Sink;"),
            "q->u q->v | 'u' pulls packets from 'q'");
}

TEST(Processing, Codes) {
  for (const char* good : {"h/h", "a/ah", "/", "h/", "/l", "a/a#", "hl/lh"})
    EXPECT_TRUE(is_processing_code(good)) << good;
  for (const char* bad : {"", "h", "x/h", "h/h/h", "a/a##", "#/a"}) EXPECT_FALSE(is_processing_code(bad)) << bad;
  EXPECT_EQ(port_processing("h/lh", true, 0), Processing::kPull);
  EXPECT_EQ(port_processing("h/lh", true, 5), Processing::kPush);
  EXPECT_EQ(port_processing("a/a#", true, 1), Processing::kAgnostic);
}

}  // namespace
}  // namespace sluice

// host only
// The graph of a run: what it is, another one in its place, its handlers.
#include <fmt/format.h>

#include <utility>

#include "base/cancel.h"
#include "base/clock.h"
#include "control/answer_text.h"
#include "control/command.h"
#include "control/control.h"
#include "control/sent_file.h"
#include "exec/engine/generation.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

constexpr uint64_t kMaxGraphBytes = uint64_t{64} << 20;

// The new graph is read and its tables are built on this thread; packets wait only while it takes over.
Result<Json> swap_graph(Control& c, Asked& asked) {
  auto file = read_sent_file(asked.value("file"));
  if (!file) return std::move(file).error();
  const uint64_t begun = now_ns();
  auto text = file->input.text(kMaxGraphBytes);
  if (!text) return std::move(text).error();
  auto graph = c.graph.load(*text, file->name, file->folder);
  if (!graph) return std::move(graph).error();
  const bool dry_run = asked.flag("dry_run");
  Json json{{"configuration", file->name}, {"elements", (*graph)->router.elements.size()}, {"committed", !dry_run}};
  json["load_seconds"] = static_cast<double>(now_ns() - begun) / 1e9;
  if (c.graph.fits) {
    if (auto ok = c.graph.fits(**graph); !ok) return std::move(ok).error();
  }
  if (dry_run) return json;
  const uint64_t changing = now_ns();
  if (changes_are_unwanted()) return cancelled_error();
  if (auto ok = c.engine.swap(std::move(*graph)); !ok) return std::move(ok).error();
  json["swap_seconds"] = static_cast<double>(now_ns() - changing) / 1e9;
  if (c.graph.swapped) c.graph.swapped(file->name);
  return json;
}

std::string swap_text(const Json& r, Rates*) {
  const std::string elements = counted(count_of(r, "elements"), "element");
  return r.at("committed").get<bool>()
             ? fmt::format("{}: {} live after {}\n", word_of(r, "configuration"), elements,
                           human_seconds(r.at("load_seconds").get<double>() + r.at("swap_seconds").get<double>()))
             : fmt::format("{}: {}, no errors\n", word_of(r, "configuration"), elements);
}

Result<std::string> read_handler(Control& c, const std::string& handler, const std::string& argument) {
  Result<std::string> value = std::string();
  if (auto ok = c.engine.ask([&] { value = c.engine.read(handler, argument); }); !ok) return std::move(ok).error();
  return value;
}

Result<Json> show_graph(Control& c, Asked&) {
  auto text = read_handler(c, "flatconfig", {});
  if (!text) return std::move(text).error();
  return Json{{"configuration", c.facts.configuration}, {"graph", *text}};
}
Result<Json> read_graph(Control& c, Asked& asked) {
  auto value = read_handler(c, asked.text("handler"), asked.text("argument"));
  if (!value) return std::move(value).error();
  return Json{{"value", *value}};
}
std::string value_text(const Json& r, Rates*) {
  const std::string text = word_of(r, "value");
  return text.ends_with('\n') ? text : text + "\n";
}
Result<Json> write_graph(Control& c, Asked& asked) {
  if (changes_are_unwanted()) return cancelled_error();
  Result<void> written;
  auto done = c.engine.ask([&] { written = c.engine.write(asked.text("handler"), asked.text("value")); });
  if (!done) return std::move(done).error();
  if (!written) return std::move(written).error();
  return Json::object();
}

bool has_graph(const Control& c) {
  return static_cast<bool>(c.graph.load);
}

}  // namespace

std::vector<CommandRow> graph_commands() {
  using namespace fields;
  return {
      {.name = "graph",
       .help =
           "Shows and replaces the graph of a running process, and calls its handlers. Handlers are those of graphs "
           "with queues, timers or scripts, and of any with --packet-scheduler.",
       .examples = "sluice graph swap edge2.click\nsluice graph read q.length"},
      {.name = "graph swap",
       .help =
           "Replaces the graph. Elements with the same name, class, configuration and ports are kept; for others of "
           "the same name and class, counters and other state that fits are taken over. Each packet meets one of "
           "the two graphs, and none is lost; what a queue held that is gone is dropped as graph-changed. A graph "
           "with errors changes nothing.",
       .examples = "sluice graph swap edge2.click\nsluice graph swap edge2.click --dry-run",
       .fields = {typed(CommandField::Type::kFile, "file").as("file", "FILE", "A Click file ('-': stdin)"),
                  flag("dry_run").as("--dry-run", "Only check it for errors")},
       .run = swap_graph,
       .text = swap_text,
       .changes = true,
       .there = has_graph},
      {.name = "graph show",
       .help = "Prints the running graph.",
       .examples = "sluice graph show",
       .run = show_graph,
       .text = [](const Json& r, Rates*) { return word_of(r, "graph"); },
       .path = "graph",
       .there = has_graph},
      {.name = "graph read",
       .help = "Prints the value of a read handler.",
       .examples = "sluice graph read q.length\nsluice graph read list",
       .fields = {text("handler").as("handler", "HANDLER", "ELEMENT.HANDLER"),
                  text("argument", "").as("argument", "TEXT", "Argument of the handler")},
       .run = read_graph,
       .text = value_text,
       .there = has_graph},
      {.name = "graph write",
       .help = "Writes a value to a write handler.",
       .examples = "sluice graph write s.rate 1000",
       .fields = {text("handler").as("handler", "HANDLER", "ELEMENT.HANDLER"),
                  text("value", "").as("value", "TEXT", "Value to write")},
       .run = write_graph,
       .changes = true,
       .there = has_graph},
  };
}

}  // namespace sluice

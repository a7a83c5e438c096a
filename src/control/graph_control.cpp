// host only
#include "control/graph_control.h"

#include "base/clock.h"
#include "control/json.h"
#include "control/report.h"
#include "control/request.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {
constexpr uint64_t kMaxGraphBytes = uint64_t{64} << 20;
}  // namespace

std::string GraphControl::answer(std::string_view line) {
  return answer_request(line, [this](Json& request) { return run(request); });
}

Result<void> GraphControl::ask(const std::function<void()>& what) {
  if (scheduler_.ask(what)) return {};
  return Error("the run is over");
}

Result<Json> GraphControl::run(Json& request) {
  RequestFields fields(request);
  const std::string command = fields.text("command");
  if (command == "graph swap") {
    const Json* const sent = fields.value("file");
    const bool dry_run = fields.flag("dry_run");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    auto file = read_sent_file(*sent);
    if (!file.ok()) return std::move(file).error();
    return swap(std::move(*file), dry_run);
  }
  if (command == "graph read" || command == "graph write") {
    const bool writes = command == "graph write";
    const std::string handler = fields.text("handler");
    const std::string value = fields.text(writes ? "value" : "argument", "");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    Result<std::string> read = std::string();
    Result<void> written;
    auto asked = ask([&] {
      if (writes)
        written = scheduler_.write(handler, value);
      else
        read = scheduler_.read(handler, value);
    });
    if (!asked.ok()) return std::move(asked).error();
    if (!written.ok()) return std::move(written).error();
    if (!read.ok()) return std::move(read).error();
    return writes ? Json::object() : Json{{"value", *read}};
  }
  if (command == "show runtime" || command == "graph show") {
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    if (command == "show runtime") return show_runtime();
    Result<std::string> text = std::string();
    if (auto asked = ask([&] { text = scheduler_.read("flatconfig"); }); !asked.ok()) return std::move(asked).error();
    if (!text.ok()) return std::move(text).error();
    return Json{{"configuration", configuration_}, {"graph", *text}};
  }
  static const std::vector<std::string> kCommands = {"graph show", "graph swap", "graph read", "graph write",
                                                     "show runtime"};
  const std::string near = closest_match(command, kCommands);
  return Error(fmt::format("a graph of the packet scheduler has no command '{}'", command),
               near.empty() ? std::string("it has graph show, graph swap, graph read, graph write, show runtime")
                            : fmt::format("did you mean '{}'?", near));
}

// The new graph is read and its tables are built on this thread; packets wait only while it takes over.
Result<Json> GraphControl::swap(SentFile file, bool dry_run) {
  const uint64_t begun = now_ns();
  auto text = file.input.text(kMaxGraphBytes);
  if (!text.ok()) return std::move(text).error();
  auto graph = load_(*text, file.name, file.folder);
  if (!graph.ok()) return std::move(graph).error();
  const size_t elements = (*graph)->router.elements.size();
  Json json{{"configuration", file.name}, {"elements", elements}, {"committed", !dry_run}};
  json["load_seconds"] = static_cast<double>(now_ns() - begun) / 1e9;
  if (dry_run) return json;
  Result<void> swapped;
  uint64_t changing = 0;
  auto asked = ask([&] {
    changing = now_ns();
    swapped = scheduler_.swap(std::move(*graph));
  });
  if (asked.ok() && swapped.ok()) asked = ask([&] { changing = now_ns() - changing; });  // it has taken over
  if (!asked.ok()) return std::move(asked).error();
  if (!swapped.ok()) return std::move(swapped).error();
  configuration_ = file.name;
  json["swap_seconds"] = static_cast<double>(changing) / 1e9;
  return json;
}

Result<Json> GraphControl::show_runtime() {
  RunReport report;
  Json elements = Json::array();
  uint64_t swaps = 0;
  auto asked = ask([&] {
    report = scheduler_.report();
    swaps = scheduler_.swaps();
    const Router& router = scheduler_.router();
    for (size_t e = 0; e < router.elements.size(); ++e) {
      const ElementCounters& c = report.totals.elements[e];
      uint64_t drops = 0;
      for (const uint64_t n : c.drops) drops += n;
      elements.push_back({{"name", router.elements[e]->name},
                          {"class", router.elements[e]->class_name},
                          {"packets", c.packets},
                          {"bytes", c.bytes},
                          {"dropped", drops}});
    }
  });
  if (!asked.ok()) return std::move(asked).error();
  return Json{{"configuration", configuration_},   {"swaps", swaps},
              {"packets_in", report.packets_in},   {"generated", report.generated},
              {"packets_out", report.packets_out}, {"dropped", report.dropped},
              {"queued", report.queued},           {"elements", elements}};
}

}  // namespace sluice

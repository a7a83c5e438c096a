// host only
#include "control/graph_control.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "control/json.h"
#include "control/report.h"
#include "control/request.h"
#include "exec/engine/generation.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {
constexpr uint64_t kMaxGraphBytes = uint64_t{64} << 20;
}  // namespace

bool GraphControl::answers(std::string_view command) const {
  return command.starts_with("graph ") || (command == "show runtime" && engine_.by_packets());
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
    if (writes && changes_are_unwanted()) return cancelled_error();
    auto asked = engine_.ask([&] {
      if (writes)
        written = engine_.write(handler, value);
      else
        read = engine_.read(handler, value);
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
    if (auto asked = engine_.ask([&] { text = engine_.read("flatconfig"); }); !asked.ok())
      return std::move(asked).error();
    if (!text.ok()) return std::move(text).error();
    return Json{{"configuration", configuration_}, {"graph", *text}};
  }
  static const std::vector<std::string> kCommands = {"graph show", "graph swap", "graph read", "graph write"};
  const std::string near = closest_match(command, kCommands);
  return Error(
      fmt::format("'{}' is not a command", command),
      near.empty() ? fmt::format("commands: {}", fmt::join(kCommands, ", ")) : fmt::format("did you mean '{}'?", near));
}

// The new graph is read and its tables are built on this thread; packets wait only while it takes over.
Result<Json> GraphControl::swap(SentFile file, bool dry_run) {
  const uint64_t begun = now_ns();
  auto text = file.input.text(kMaxGraphBytes);
  if (!text.ok()) return std::move(text).error();
  auto graph = hooks_.load(*text, file.name, file.folder);
  if (!graph.ok()) return std::move(graph).error();
  const size_t elements = (*graph)->router.elements.size();
  Json json{{"configuration", file.name}, {"elements", elements}, {"committed", !dry_run}};
  json["load_seconds"] = static_cast<double>(now_ns() - begun) / 1e9;
  if (hooks_.fits) {
    if (auto ok = hooks_.fits(**graph); !ok.ok()) return std::move(ok).error();
  }
  if (dry_run) return json;
  const uint64_t changing = now_ns();
  if (changes_are_unwanted()) return cancelled_error();
  if (auto ok = engine_.swap(std::move(*graph)); !ok.ok()) return std::move(ok).error();
  json["swap_seconds"] = static_cast<double>(now_ns() - changing) / 1e9;
  configuration_ = file.name;
  if (hooks_.swapped) hooks_.swapped(configuration_);
  return json;
}

Result<Json> GraphControl::show_runtime() {
  RunReport report;
  Json elements = Json::array();
  if (auto ok = engine_.look(report); !ok.ok()) return std::move(ok).error();
  uint64_t swaps = 0;
  auto asked = engine_.ask([&] {
    swaps = engine_.swaps();
    const Router& router = engine_.router();
    if (cleared_ != nullptr) cleared_->subtract(ClearedCounters::Window::kRuntime, report, router);
    // It may have been replaced since.
    for (size_t e = 0; e < router.elements.size() && e < report.totals.elements.size(); ++e) {
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
  Json json{{"configuration", configuration_},   {"swaps", swaps},
            {"packets_in", report.packets_in},   {"generated", report.generated},
            {"packets_out", report.packets_out}, {"dropped", report.dropped},
            {"queued", report.queued},           {"elements", elements}};
  if (!report.totals.dscp.empty()) json["dscp_bytes"] = dscp_json(report.totals);
  if (cleared_ == nullptr) return json;
  if (const auto age = cleared_->age(ClearedCounters::Window::kRuntime)) json["cleared_seconds_ago"] = *age;
  return json;
}

}  // namespace sluice

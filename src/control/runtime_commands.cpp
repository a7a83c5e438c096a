// host only
// What a run counts: `show runtime`, `drops`, `ports`, `report`, `clear counters`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

#include "base/clock.h"
#include "batch/drop_kind.h"
#include "control/answer_text.h"
#include "control/command.h"
#include "control/control.h"
#include "control/machine.h"
#include "control/report.h"
#include "exec/engine/live_ports.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

using Window = ClearedCounters::Window;

void note_cleared(Json& answer, Control& c, Window window) {
  if (const auto age = c.cleared.age(window)) answer["cleared_seconds_ago"] = *age;
}

// Of a graph that the packet scheduler runs, whose elements scripts may replace.
Result<Json> scheduled_runtime(Control& c) {
  RunReport report;
  Json elements = Json::array();
  uint64_t swaps = 0;
  const auto list = [&](const Router& router) {
    swaps = c.engine.swaps();
    c.cleared.subtract(Window::kRuntime, report, router);
    // It may have been replaced since.
    for (size_t e = 0; e < router.elements.size() && e < report.totals.elements.size(); ++e) {
      const ElementCounters& counters = report.totals.elements[e];
      uint64_t drops = 0;
      for (const uint64_t n : counters.drops) drops += n;
      elements.push_back({{"name", router.elements[e]->name},
                          {"class", router.elements[e]->class_name},
                          {"packets", counters.packets},
                          {"bytes", counters.bytes},
                          {"dropped", drops}});
    }
  };
  if (auto ok = c.look(report, list); !ok) return std::move(ok).error();
  Json json{{"configuration", c.facts.configuration},
            {"swaps", swaps},
            {"packets_in", report.packets_in},
            {"generated", report.generated},
            {"packets_out", report.packets_out},
            {"dropped", report.dropped},
            {"queued", report.queued},
            {"elements", elements}};
  if (!report.totals.dscp.empty()) json["dscp_bytes"] = dscp_json(report.totals);
  note_cleared(json, c, Window::kRuntime);
  return json;
}

Result<Json> whole_runtime(Control& c) {
  if (c.graph.load && c.engine.by_packets()) return scheduled_runtime(c);
  RunReport report;
  const auto since = [&](const Router& router) {
    c.cleared.subtract(Window::kRuntime, report, router);
    c.cleared.subtract(Window::kLatency, report, router);
  };
  if (auto ok = c.look(report, since); !ok) return std::move(ok).error();
  Json json{{"configuration", c.facts.configuration}, {"device", c.facts.device}};
  json["generation"] = c.engine.publisher().generation();
  // Of a run that goes on the counters are of many moments: what is said of the whole is not.
  Json counters = sluice::to_json(report, c.engine.router(), TableReport{c.tables->loads(), {}}, c.facts.device);
  for (const char* field : {"conserved", "out", "batch", "tables", "generation", "device"}) counters.erase(field);
  json["tables_bytes"] = c.tables->bytes();
  if (c.tables->max_bytes() != 0) json["max_memory"] = c.tables->max_bytes();
  json.update(counters);
  note_cleared(json, c, Window::kRuntime);
  return json;
}

Result<Json> show_runtime(Control& c, Asked& asked) {
  auto whole = whole_runtime(c);
  if (!whole || !asked.flag("dscp")) return whole;
  if (!whole->contains("dscp_bytes")) return Error("bytes are not counted by DSCP", "start the run with --dscp");
  Json part = Json::object();
  for (const char* field : {"packets_in", "dscp_bytes", "cleared_seconds_ago"})
    if (whole->contains(field)) part[field] = (*whole)[field];
  return part;
}

// A run's elements, with what they drop.
std::string elements_text(const Json& r, Rates* rates) {
  std::vector<std::string> heads = {"element", "class", "packets", "bytes", "dropped"};
  if (rates != nullptr) heads.insert(heads.end(), {"pps", "dropped/s"});
  TextTable table(heads);
  for (const Json& e : r.at("elements")) {
    uint64_t dropped = 0;
    if (e.contains("drops")) {
      for (const auto& [reason, n] : e.at("drops").items()) dropped += n.get<uint64_t>();
    } else {
      dropped = count_of(e, "dropped");
    }
    std::vector<std::string> row = {word_of(e, "name"), word_of(e, "class"), with_commas(count_of(e, "packets")),
                                    with_commas(count_of(e, "bytes")), dropped == 0 ? "-" : with_commas(dropped)};
    if (rates != nullptr) {
      row.push_back(rates->cell("element " + row[0], count_of(e, "packets")));
      row.push_back(rates->cell("element drops " + row[0], dropped));
    }
    table.add(row);
  }
  return table.str();
}
// "now 1,000 pps in, 900 out, 100 dropped\n"
std::string now_text(const Json& r, Rates* rates) {
  if (rates == nullptr) return {};
  const auto cell = [&](const char* field) { return rates->cell(field, count_of(r, field)); };
  return fmt::format("now {} pps in, {} out, {} dropped\n", cell("packets_in"), cell("packets_out"), cell("dropped"));
}

// What a run of the packet scheduler says of itself.
std::string scheduled_text(const Json& r, Rates* rates) {
  std::string t = fmt::format("{} by the packet scheduler, graph {} of this run{}\n", word_of(r, "configuration"),
                              count_of(r, "swaps") + 1, cleared_text(r));
  t += fmt::format("in {}, out {}, dropped {}, queued {}\n", counted(count_of(r, "packets_in"), "packet"),
                   with_commas(count_of(r, "packets_out")), with_commas(count_of(r, "dropped")),
                   with_commas(count_of(r, "queued")));
  return t + now_text(r, rates) + "\n" + elements_text(r, rates);
}

std::string dscp_text(const Json& r, Rates* rates) {
  std::vector<std::string> heads = {"dscp", "bytes"};
  if (rates != nullptr) heads.push_back("bytes/s");
  TextTable table(heads);
  for (const auto& [dscp, bytes] : r.at("dscp_bytes").items()) {
    std::vector<std::string> row = {dscp, with_commas(bytes.get<uint64_t>())};
    if (rates != nullptr) row.push_back(rates->cell("dscp " + dscp, bytes.get<uint64_t>()));
    table.add(row);
  }
  return fmt::format("{} in{}\n{}", counted(count_of(r, "packets_in"), "packet"), cleared_text(r),
                     table.empty() ? "" : table.str());
}

std::string runtime_text(const Json& r, Rates* rates) {
  if (!r.contains("elements")) return dscp_text(r, rates);
  if (r.contains("swaps")) return scheduled_text(r, rates);
  std::string t = fmt::format("{} on {} x{}, generation {}, {} of packets{}\n", word_of(r, "configuration"),
                              word_of(r, "device"), count_of(r, "workers"), count_of(r, "generation"),
                              human_seconds(r.at("seconds").get<double>()), cleared_text(r));
  t += fmt::format("in {}, out {}, dropped {}; {}; p50 {:.1f} us, p99 {:.1f} us; tables {}\n",
                   counted(count_of(r, "packets_in"), "packet"), with_commas(count_of(r, "packets_out")),
                   with_commas(count_of(r, "dropped")), human_rate(r.at("packets_per_second").get<double>(), "packets"),
                   static_cast<double>(count_of(r.at("latency_ns"), "p50")) * 1e-3,
                   static_cast<double>(count_of(r.at("latency_ns"), "p99")) * 1e-3,
                   human_bytes(static_cast<double>(count_of(r, "tables_bytes"))));
  return t + now_text(r, rates) + "\n" + elements_text(r, rates);
}

Result<Json> show_drops(Control& c, Asked&) {
  RunReport report;
  Json drops = Json::array();
  const auto list = [&](const Router& router) {
    c.cleared.subtract(Window::kDrops, report, router);
    // The router may be another one since.
    for (size_t e = 0; e < std::min(router.elements.size(), report.totals.elements.size()); ++e) {
      for (size_t r = 0; r < kDropReasons; ++r) {
        if (const uint64_t n = report.totals.elements[e].drops[r]; n != 0) {
          drops.push_back({{"element", router.elements[e]->name},
                           {"reason", to_string(static_cast<DropReason>(r))},
                           {"packets", n}});
        }
      }
    }
  };
  if (auto ok = c.look(report, list); !ok) return std::move(ok).error();
  Json json{{"packets_in", report.packets_in}, {"dropped", report.dropped}, {"drops", std::move(drops)}};
  note_cleared(json, c, Window::kDrops);
  std::stable_sort(json["drops"].begin(), json["drops"].end(), [](const Json& a, const Json& b) {
    return a["packets"].get<uint64_t>() > b["packets"].get<uint64_t>();
  });
  return json;
}

std::string drops_text(const Json& r, Rates* rates) {
  std::vector<std::string> heads = {"packets", "reason", "element"};
  if (rates != nullptr) heads.insert(heads.begin() + 1, "pps");
  TextTable table(heads);
  for (const Json& d : r.at("drops")) {
    std::vector<std::string> row = {with_commas(count_of(d, "packets")), word_of(d, "reason"), word_of(d, "element")};
    if (rates != nullptr) row.insert(row.begin() + 1, rates->cell(row[1] + " at " + row[2], count_of(d, "packets")));
    table.add(row);
  }
  return fmt::format("{} of {} dropped{}\n{}", with_commas(count_of(r, "dropped")),
                     counted(count_of(r, "packets_in"), "packet"), cleared_text(r), table.empty() ? "" : table.str());
}

Result<Json> show_ports(Control& c, Asked&) {
  RunReport report;
  const auto since = [&](const Router& router) { c.cleared.subtract(Window::kPorts, report, router); };
  if (auto ok = c.look(report, since); !ok) return std::move(ok).error();
  Json json{{"interfaces", Json::array()}, {"outputs", Json::array()}};
  for (const LivePortReport& port : report.live_ports) json["interfaces"].push_back(sluice::to_json(port));
  for (const RunReport::Sink& sink : report.sinks) {
    json["outputs"].push_back(
        {{"element", sink.element}, {"path", sink.path}, {"packets", sink.packets}, {"bytes", sink.bytes}});
  }
  note_cleared(json, c, Window::kPorts);
  return json;
}

std::string ports_text(const Json& r, Rates* rates) {
  std::vector<std::string> heads = {"port",     "method",     "link",     "rx packets",
                                    "rx bytes", "tx packets", "tx bytes", "lost"};
  if (rates != nullptr) heads.insert(heads.end(), {"rx pps", "tx pps", "lost/s"});
  TextTable ports(heads);
  for (const Json& p : r.at("interfaces")) {
    const auto sum = [&](const char* side, std::initializer_list<const char*> fields) {
      uint64_t all = 0;
      for (const Json& queue : p.at(side)) {
        for (const char* field : fields) all += count_of(queue, field);
      }
      return all;
    };
    const std::string name = word_of(p, "name");
    const uint64_t rx = sum("rx", {"packets"}), tx = sum("tx", {"packets"}),
                   lost = sum("rx", {"missed", "too_long", "invalid"}) + sum("tx", {"full", "failed"});
    std::vector<std::string> row = {name,
                                    word_of(p, "method"),
                                    p.at("closed").get<bool>() ? "closed" : word_of(p, "link"),
                                    with_commas(rx),
                                    with_commas(sum("rx", {"bytes"})),
                                    with_commas(tx),
                                    with_commas(sum("tx", {"bytes"})),
                                    lost == 0 ? "-" : with_commas(lost)};
    if (rates != nullptr) {
      row.insert(row.end(),
                 {rates->cell("rx " + name, rx), rates->cell("tx " + name, tx), rates->cell("lost " + name, lost)});
    }
    ports.add(row);
  }
  heads = {"output", "packets", "bytes"};
  if (rates != nullptr) heads.push_back("pps");
  heads.push_back("to");
  TextTable outputs(heads);
  for (const Json& o : r.at("outputs")) {
    const std::string element = word_of(o, "element"), path = word_of(o, "path");
    std::vector<std::string> row = {element, with_commas(count_of(o, "packets")), with_commas(count_of(o, "bytes"))};
    if (rates != nullptr) row.push_back(rates->cell("output " + element + " " + path, count_of(o, "packets")));
    row.push_back(path.empty() ? "-" : path);
    outputs.add(row);
  }
  std::string t;
  if (!ports.empty()) t += ports.str() + (outputs.empty() ? "" : "\n");
  if (!outputs.empty()) t += outputs.str();
  if (t.empty()) t = "no port is open\n";
  const std::string cleared = cleared_text(r);
  return cleared.empty() ? t : t + cleared.substr(2) + "\n";
}

Json process_json(const Control& c) {
  const ProcessUse::Now now = c.facts.process->now();
  return {{"host", c.facts.process->host()},
          {"socket", c.facts.socket},
          {"start_unix_seconds", c.facts.process->start_unix_seconds()},
          {"cpu_seconds", now.cpu_seconds},
          {"resident_bytes", now.resident_bytes},
          {"virtual_bytes", now.virtual_bytes},
          {"open_files", now.open_files},
          {"open_files_limit", now.open_files_limit}};
}

Json top_rules(Control& c, size_t count) {
  Json all = Json::array();
  for (const auto& [name, image] : c.tables->tables().acls) {
    auto list = list_rules(c, name, true, 1, count, true, false);
    if (!list) continue;  // a compiled image without its rules
    for (Json& rule : (*list)["rules"]) {
      Json one{{"table", name}};
      one.update(rule);
      all.push_back(std::move(one));
    }
  }
  return all;
}

Result<Json> show_report(Control& c, Asked& asked) {
  RunReport report;
  if (auto ok = c.engine.look(report); !ok) return std::move(ok).error();
  if (c.engine.live_ports() != nullptr) report.live_ports = c.engine.live_ports()->report();
  Json json{{"version", sluice_version()}, {"revision", sluice_revision()}, {"configuration", c.facts.configuration}};
  if (c.facts.process != nullptr) json["process"] = process_json(c);
  const auto write = [&] {
    const Router& router = c.engine.router();
    Json whole = sluice::to_json(report, router, TableReport{c.tables->loads(), {}}, c.facts.device);
    for (const char* field : {"conserved", "out", "partial"}) whole.erase(field);
    json.update(whole);
    json["edges"] = Json::array();
    for (const RouterConnection& edge : router.connections) {
      json["edges"].push_back({{"from", router.elements[edge.from]->name},
                               {"output", edge.from_port},
                               {"to", router.elements[edge.to]->name},
                               {"input", edge.to_port},
                               {"pull", edge.pull}});
    }
  };
  // Scripts replace their graph themselves.
  if (!c.engine.by_packets()) {
    write();
  } else if (auto ok = c.engine.ask(write); !ok) {
    return std::move(ok).error();
  }
  json["generation"] = c.engine.publisher().generation();
  for (size_t t = 0; t < json["tables"].size(); ++t)
    json["tables"][t]["changed_in_generation"] =
        c.tables->changed(c.tables->loads()[t].kind, c.tables->loads()[t].name);
  json["tables_bytes"] = c.tables->bytes();
  json["interfaces"] = Json::array();
  for (const LivePortReport& port : report.live_ports) json["interfaces"].push_back(sluice::to_json(port));
  json["drop_kinds"] = Json::object();
  for (size_t r = 0; r < kDropReasons; ++r) {
    const auto reason = static_cast<DropReason>(r);
    if (report.drops[r] != 0) json["drop_kinds"][to_string(reason)] = to_string(kind_of(reason));
  }
  if (asked.flag("buckets")) {
    json["latency_ns"].update(buckets_json(report.totals.latency));
    json["wait_ns"].update(buckets_json(report.totals.wait));
    json["through_ns"].update(buckets_json(report.totals.through));
  }
  if (const uint64_t top = asked.number("rules"); top != 0) json["rules"] = top_rules(c, top);
  return json;
}

Result<Json> clear_counters(Control& c, Asked& asked) {
  const std::string& what = asked.text("what");
  constexpr std::array<std::pair<const char*, std::optional<Window>>, 5> kWhat = {{{"runtime", Window::kRuntime},
                                                                                   {"drops", Window::kDrops},
                                                                                   {"rules", std::nullopt},
                                                                                   {"ports", Window::kPorts},
                                                                                   {"latency", Window::kLatency}}};
  Json names = Json::array();
  std::vector<Window> windows;
  bool rules = false;
  for (const auto& [name, window] : kWhat) {
    if (!what.empty() && what != name) continue;
    names.push_back(name);
    if (window) {
      windows.push_back(*window);
    } else {
      rules = true;
    }
  }
  if (names.empty())
    return Error(fmt::format("'{}' cannot be cleared", what), "runtime, drops, rules, ports or latency; nothing: all");
  if (!windows.empty()) {
    RunReport report;
    if (auto ok = c.look(report, [&](const Router& router) { c.cleared.clear(windows, report, router); }); !ok)
      return std::move(ok).error();
  }
  if (rules) {
    c.engine.hits().clear();
    c.rules_cleared_ns = now_ns();
  }
  return Json{{"cleared", names}};
}

std::string cleared_names_text(const Json& r, Rates*) {
  std::vector<std::string> names;
  for (const Json& name : r.at("cleared")) names.push_back(printable(name.get_ref<const std::string&>()));
  return fmt::format("cleared: {}\n", fmt::join(names, ", "));
}

}  // namespace

std::vector<CommandRow> runtime_commands() {
  using namespace fields;
  constexpr uint64_t kMostRules = 1000;
  return {
      {.name = "show runtime",
       .help = "Packets, rates, latencies and counters of every element of a running process.",
       .examples = "sluice show runtime\nsluice show runtime --interval 1\n"
                   "sluice show runtime --socket /tmp/sluice.sock -o json",
       .fields = {flag("dscp").as("--dscp", "The bytes that came in, by DSCP, of a run with --dscp")},
       .run = show_runtime,
       .text = runtime_text,
       .watched = true,
       .path = "runtime"},
      {.name = "show drops",
       .help = "The packets that a running process dropped, by reason and element.",
       .examples = "sluice show drops\nsluice show drops --interval 1 --times 10 -o json",
       .run = show_drops,
       .text = drops_text,
       .watched = true,
       .path = "drops"},
      {.name = "show ports",
       .help =
           "Packets that each interface and output of a running process received and sent. lost: missed, too long and "
           "invalid when received, full and failed when sent; -o json has each, by queue.",
       .examples = "sluice show ports\nsluice show ports --interval 1",
       .run = show_ports,
       .text = ports_text,
       .watched = true,
       .path = "ports"},
      {.name = "show report",
       .help = "The report of the run so far, with rules of each list, most packets of the whole run first.",
       .fields = {number("rules", 0, kMostRules, 0).means("so many rules of each list, by hits of the whole run"),
                  flag("buckets").means("with histograms of times")},
       .run = show_report,
       .path = "report",
       .on_command_line = false},
      {.name = "clear",
       .help = "Resets the counters that 'show' displays of a running process.",
       .examples = "sluice clear counters\nsluice clear counters rules"},
      {.name = "clear counters",
       .help = "Resets the counters of 'sluice show' for all its users: packets, rates and drops of 'show runtime' "
               "(runtime), 'show drops' (drops), 'show rules --hits' (rules), 'show ports' (ports), and the times of "
               "'show runtime' (latency). The report at the end, --hits, --top-rules and /metrics still count the "
               "whole run.",
       .examples = "sluice clear counters\nsluice clear counters rules --control /run/sluice/control",
       .fields = {text("what", "")
                      .as("what", "WHAT", "runtime, drops, rules, ports or latency (default: all)")
                      .one_of({"runtime", "drops", "rules", "ports", "latency"})},
       .run = clear_counters,
       .text = cleared_names_text},
  };
}

}  // namespace sluice

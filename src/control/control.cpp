// host only
#include "control/control.h"

#include <fmt/format.h>
#include <linux/neighbour.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/cancel.h"
#include "base/clock.h"
#include "batch/drop_kind.h"
#include "control/command_text.h"
#include "control/json.h"
#include "control/machine.h"
#include "control/report.h"
#include "control/request.h"
#include "control/route_report.h"
#include "control/table_text.h"
#include "control/why.h"
#include "exec/engine/live_ports.h"
#include "formats/native_rules.h"
#include "formats/qos_text.h"
#include "formats/route_files.h"
#include "formats/rule_files.h"
#include "net/text.h"
#include "ports/netlink/link_watch.h"
#include "ports/netlink/neighbour_watch.h"
#include "tables/acl/sections.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

Json to_json(const TableChange& c) {
  Json json{{"table", c.table}, {"kind", c.kind}, {"algorithm", c.algorithm}, {"committed", c.generation != 0}};
  json["differs"] = c.differs;
  if (c.rules) json["rules"] = {{"added", c.rules->added}, {"deleted", c.rules->deleted}};
  if (c.generation != 0) json["generation"] = c.generation;
  json["entries"] = {{"before", c.entries_before}, {"after", c.entries_after}};
  json["bytes"] = {{"before", c.bytes_before}, {"after", c.bytes_after}, {"peak", c.bytes_peak}};
  json["parse_seconds"] = c.parse_seconds;
  json["build_seconds"] = c.build_seconds;
  if (c.refusing_devices != 0) json["refusing_devices"] = c.refusing_devices;
  json["publish_seconds"] = c.publish_seconds;
  json["seconds"] = c.parse_seconds + c.build_seconds + c.publish_seconds;
  return json;
}

Json to_json(const HitCount& count) {
  return {{"packets", count.packets}, {"bytes", count.bytes}};
}

// An image that is patched has places between its rules where none is: there the range of ports is empty.
HitLedger::Counts hits_by_position(HitLedger::Counts counts) {
  if (counts.image == nullptr) return counts;
  const auto rules = AclRulesView::open(*counts.image);
  if (!rules) return {};
  uint32_t position = 0;
  for (uint32_t r = 1; r <= rules->size(); ++r) {
    if (rules->rule(r).src_port_low <= rules->rule(r).src_port_high) counts.rules[++position] = counts.rules[r];
  }
  counts.rules.resize(position + size_t{1});
  return counts;
}

// Lines of a list that a request may begin with.
constexpr uint64_t kMostListed = uint64_t{1} << 28;

// As `ip neigh` writes it.
const char* state_text(uint16_t state) {
  constexpr std::pair<uint16_t, const char*> kStates[] = {
      {NUD_PERMANENT, "permanent"}, {NUD_NOARP, "noarp"}, {NUD_REACHABLE, "reachable"},   {NUD_STALE, "stale"},
      {NUD_DELAY, "delay"},         {NUD_PROBE, "probe"}, {NUD_INCOMPLETE, "incomplete"}, {NUD_FAILED, "failed"}};
  for (const auto& [bit, name] : kStates)
    if ((state & bit) != 0) return name;
  return "none";
}

const char* action_of(const AclRule& rule) {
  return rule.verb == AclVerb::kDeny ? "deny" : rule.verb == AclVerb::kMark ? "mark" : "permit";
}

// A list's only name, where a request names none.
Result<std::string> only(const std::map<std::string, std::shared_ptr<const Image>, std::less<>>& tables,
                         const char* kind, std::string name) {
  if (!name.empty()) return name;
  if (tables.size() == 1) return tables.begin()->first;
  if (tables.empty()) return Error(fmt::format("this run has no {}", kind));
  std::vector<std::string> names;
  for (const auto& [table, image] : tables) names.push_back(table);
  return Error(fmt::format("there are several: {}", fmt::join(names, ", ")), "choose one with --table NAME");
}

std::string text_in(const Json& request, const char* field) {
  const auto found = request.find(field);
  return found != request.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Unless its client has gone: before it waits for packets, and after.
Result<void> change_classes(Engine& runtime, const std::function<Result<void>(EgressQos&)>& change) {
  if (changes_are_unwanted()) return cancelled_error();
  return runtime.change_qos([&change](EgressQos& qos) -> Result<void> {
    if (changes_are_unwanted()) return cancelled_error();
    return change(qos);
  });
}

}  // namespace

bool Control::may_change(const Json& request) {
  const std::string command = text_in(request, "command");
  return command.ends_with(" change") || command.ends_with(" replace") || command.starts_with("qos ") ||
         command == "reload" || command == "save" || command == "graph swap" || command == "graph write";
}

bool Control::is_short(const Json& request) const {
  constexpr size_t kShort = 16384;
  const std::string command = text_in(request, "command");
  if (!command.ends_with(" change") || request.contains("dry_run")) return false;
  const auto changes = request.find("changes");
  if (changes == request.end() || !changes->is_string()) return true;  // which is an error
  if (changes->get_ref<const std::string&>().size() > kShort) return false;
  const std::string kind = command.substr(0, command.find(' '));
  return tables_->patches(kind == "adjacencies" ? "adjacency" : kind, text_in(request, "table"));
}

std::string Control::answer(std::string_view line) {
  auto request = read_request(line);
  return request.ok() ? answer(*request) : refusal(request.error());
}

std::string Control::answer(Json& read) {
  return answer_request(read, [this](Json& request) -> Result<std::string> {
    if (trace_ != nullptr) {
      trace_->digest(*tables_);
      if (const auto asked = request.find("command"); asked != request.end() && asked->is_string()) {
        if (trace_->answers(asked->get_ref<const std::string&>())) return trace_->run(request);
      }
    }
    const Result<Json> result = run(request);
    if (!result) return result.error();
    return result_text(*result);
  });
}

Result<Json> Control::run(Json& request) {
  if (capture_ != nullptr) {
    capture_->digest();
    if (const auto asked = request.find("command"); asked != request.end() && asked->is_string()) {
      if (capture_->answers(asked->get_ref<const std::string&>())) return capture_->run(request);
    }
  }
  if (log_ != nullptr) {
    if (const auto asked = request.find("command"); asked != request.end() && asked->is_string()) {
      if (RuleLogControl::answers(asked->get_ref<const std::string&>())) return log_->run(request);
    }
  }
  if (graph_ != nullptr) {
    if (const auto asked = request.find("command"); asked != request.end() && asked->is_string()) {
      if (graph_->answers(asked->get_ref<const std::string&>())) return graph_->run(request);
    }
  }
  RequestFields fields(request);
  const std::string command = fields.text("command");
  if (runtime_.by_packets() && (command.ends_with(" change") || command.ends_with(" replace")))
    return Error("the tables of this graph change with the graph", "replace it: sluice graph swap FILE");
  const auto changed = [&](Result<TableChange> change) -> Result<Json> {
    if (!change) return std::move(change).error();
    Json json = to_json(*change);
    json["device"] = facts_.device;
    return json;
  };
  if (command == "show runtime" || command == "show drops" || command == "show ports" || command == "show tables") {
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    return command == "show runtime" ? show_runtime()
           : command == "show drops" ? show_drops()
           : command == "show ports" ? show_ports()
                                     : show_tables();
  }
  if (command == "save") {
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    return save();
  }
  if (command == "show text") {
    const std::string kind = fields.text("kind"), asked = fields.text("table", "");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    if (kind == "qos") {
      auto text = qos_text();
      if (!text) return std::move(text).error();
      return Json{{"kind", kind}, {"table", ""}, {"text", std::move(*text)}};
    }
    const TableSet& set = tables_->tables();
    auto table = kind == "routes"      ? only(set.routes, "route table", asked)
                 : kind == "adjacency" ? only(set.adjacencies, "adjacency table", asked)
                                       : only(set.acls, "access list", asked);
    if (!table) return std::move(table).error();
    auto text = tables_->text(kind, *table);
    if (!text) return std::move(text).error();
    return Json{{"kind", kind}, {"table", *table}, {"text", std::move(*text)}};
  }
  if (command == "clear counters") {
    const std::string what = fields.text("what", "");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    return clear_counters(what);
  }
  if (command == "reload") {
    const bool all = fields.flag("all");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    if (!reload_) return Error("this process has no configuration to read again", "start it with --config FILE");
    return reload_(all);
  }
  if (command == "show report") {
    constexpr uint64_t kMostRules = 1000;
    const size_t count = fields.number("rules", 0, kMostRules, 0);
    const bool buckets = fields.flag("buckets");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    return show_report(count, buckets);
  }
  if (command == "show qos") {
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    return show_qos();
  }
  if (command == "qos set") {
    constexpr uint64_t kAllPorts = uint64_t{1} << 16;
    const std::string qos_class = fields.text("class");
    const std::string rate = fields.text("rate");
    const uint64_t port = fields.number("port", 0, kAllPorts - 1, kAllPorts);
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    return set_qos(qos_class, rate, port == kAllPorts ? -1 : static_cast<int64_t>(port));
  }
  if (command == "qos load") {
    const Json* const sent = fields.value("file");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    auto file = read_sent_file(*sent);
    if (!file) return std::move(file).error();
    return load_qos(std::move(*file));
  }
  if (command == "show rules") {
    const std::string table = fields.text("table", "");
    const bool hits = fields.flag("hits");
    const uint64_t from = fields.number("from", 1, RuleSet::kMaxRules, 1);
    const uint64_t count = fields.number("count", 1, 100'000, 100);
    const std::string order = fields.text("order", "list");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    return rules(table, hits, from, count, order, true);
  }
  if (command == "show routes") {
    const std::string what = fields.text("for", "");
    const RouteChoice choice{fields.text("prefix", ""), fields.text("next_hop", "")};
    const std::string table = fields.text("table", "");
    const uint64_t from = fields.number("from", 1, kMostListed, 1);
    const uint64_t count = fields.number("count", 1, 1000, 1000);
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    if (what.empty()) return list_routes(choice, table, from, count);
    if (!choice.within.empty() || !choice.next_hop.empty())
      return Error("an address is looked up alone", "leave the address out to list routes by prefix or next hop");
    return show_routes(what, table, from, count);
  }
  if (command == "show neighbours") {
    const uint64_t from = fields.number("from", 1, kMostListed, 1);
    const uint64_t count = fields.number("count", 1, 1000, 1000);
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    return show_neighbours(from, count);
  }
  if (command == "why") {
    const std::string frame = fields.text("frame"), input = fields.text("in", "");
    const uint64_t near = fields.number("near", 0, 100, 3);
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    return explain_packet(frame, input, near);
  }
  if (command == "show adjacencies") {
    const std::string table = fields.text("table", "");
    const uint64_t from = fields.number("from", 1, NextHopIds::kMost, 1);
    const uint64_t count = fields.number("count", 1, 1000, 1000);
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    return show_adjacencies(table, from, count);
  }
  if (command == "acl change" || command == "routes change" || command == "adjacencies change") {
    const std::string table = fields.text("table");
    const std::string changes = fields.text("changes");
    const std::string name = fields.text("name");
    const bool dry_run = fields.flag("dry_run");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    return changed(command == "acl change"      ? tables_->change_acl(table, changes, name, dry_run)
                   : command == "routes change" ? tables_->change_routes(table, changes, name, dry_run)
                                                : tables_->change_adjacencies(table, changes, name, dry_run));
  }
  if (command == "acl replace") {
    const std::string table = fields.text("table");
    const Json* const sent = fields.value("file");
    const std::string format = fields.text("format", "auto");
    const bool dry_run = fields.flag("dry_run");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    auto choice = parse_rule_format(format);
    if (!choice) return std::move(choice).error();
    auto file = read_sent_file(*sent);
    if (!file) return std::move(file).error();
    choice->folder = file->folder;
    return changed(tables_->replace_acl(table, file->input, *choice, dry_run));
  }
  if (command == "routes replace") {
    const std::string table = fields.text("table");
    const Json* const sent = fields.value("files");
    const bool dry_run = fields.flag("dry_run");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    if (!sent->is_array() || sent->empty()) return Error("the field 'files' is not a list of files");
    std::vector<std::string> files;
    InputSet inputs;
    for (const Json& one : *sent) {
      auto file = read_sent_file(one);
      if (!file) return std::move(file).error();
      const std::string path = path_of_route_file(file->name);
      file->input.set_name(path);
      files.push_back(std::move(file->name));
      inputs.put(path, std::move(file->input));
    }
    return changed(tables_->replace_routes(table, files, inputs, dry_run));
  }
  const std::vector<std::string> commands = {"show report",
                                             "show runtime",
                                             "show ports",
                                             "clear counters",
                                             "show rules",
                                             "show drops",
                                             "show tables",
                                             "show routes",
                                             "show text",
                                             "acl change",
                                             "acl replace",
                                             "routes change",
                                             "routes replace",
                                             "adjacencies change",
                                             "show qos",
                                             "qos set",
                                             "qos load",
                                             "graph show",
                                             "graph swap",
                                             "graph read",
                                             "graph write",
                                             "show adjacencies",
                                             "trace add",
                                             "trace clear",
                                             "show trace",
                                             "reload",
                                             "save",
                                             "capture start",
                                             "capture read",
                                             "capture stop",
                                             "show capture",
                                             "show neighbours",
                                             "why"};
  const std::string near = closest_match(command, commands);
  return Error(
      fmt::format("'{}' is not a command", command),
      near.empty() ? fmt::format("commands: {}", fmt::join(commands, ", ")) : fmt::format("did you mean '{}'?", near));
}

Result<void> Control::look(RunReport& report, const std::function<void(const Router&)>& use) {
  if (auto ok = runtime_.look(report); !ok) return ok;
  // Scripts replace their graph themselves.
  if (runtime_.by_packets()) return runtime_.ask([&] { use(runtime_.router()); });
  use(runtime_.router());
  return {};
}

Result<Json> Control::clear_counters(const std::string& what) {
  using Window = ClearedCounters::Window;
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
    if (auto ok = look(report, [&](const Router& router) { cleared_.clear(windows, report, router); }); !ok)
      return std::move(ok).error();
  }
  if (rules) {
    runtime_.hits().clear();
    rules_cleared_ns_ = now_ns();
  }
  return Json{{"cleared", names}};
}

Result<Json> Control::save() {
  if (runtime_.by_packets()) return Error("the tables of this graph change with the graph: there is nothing to save");
  if (runtime_.swaps() != 0) {
    return Error(
        "another graph has taken the place of the one that was started: its tables have no files to go back to",
        "sluice save --to DIRECTORY writes them into files of their own");
  }
  std::optional<LiveTables::AlsoSaved> classes;
  if (qos_changed_) classes.emplace(LiveTables::AlsoSaved{"qos", qos_file_.path, qos_file_.stamp, qos_text()});
  auto saved = tables_->save(classes);
  if (!saved) return std::move(saved).error();
  if (classes) {
    qos_changed_ = false;
    qos_file_.text = std::move(*classes->text);
  }
  Json json{{"saved", Json::array()}};
  for (const LiveTables::Saved& one : *saved) {
    Json said{{"table", one.table}, {"kind", one.kind}, {"file", one.path}, {"entries", one.entries}};
    if (one.in_place) said["in_place"] = true;
    if (one.table.empty()) {
      said.erase("table");
      said.erase("entries");
    }
    json["saved"].push_back(std::move(said));
  }
  return json;
}

Result<Json> Control::show_runtime() {
  using Window = ClearedCounters::Window;
  RunReport report;
  const auto since = [&](const Router& router) {
    cleared_.subtract(Window::kRuntime, report, router);
    cleared_.subtract(Window::kLatency, report, router);
  };
  if (auto ok = look(report, since); !ok) return std::move(ok).error();
  Json json{{"configuration", facts_.configuration}, {"device", facts_.device}};
  json["generation"] = runtime_.publisher().generation();
  // Of a run that goes on the counters are of many moments: what is said of the whole is not.
  Json counters = sluice::to_json(report, runtime_.router(), TableReport{tables_->loads(), {}}, facts_.device);
  for (const char* field : {"conserved", "out", "batch", "tables", "generation", "device"}) counters.erase(field);
  json["tables_bytes"] = tables_->bytes();
  if (tables_->max_bytes() != 0) json["max_memory"] = tables_->max_bytes();
  json.update(counters);
  if (const auto age = cleared_.age(Window::kRuntime)) json["cleared_seconds_ago"] = *age;
  return json;
}

Result<Json> Control::show_ports() {
  RunReport report;
  const auto since = [&](const Router& router) { cleared_.subtract(ClearedCounters::Window::kPorts, report, router); };
  if (auto ok = look(report, since); !ok) return std::move(ok).error();
  Json json{{"interfaces", Json::array()}, {"outputs", Json::array()}};
  for (const LivePortReport& port : report.live_ports) json["interfaces"].push_back(sluice::to_json(port));
  for (const RunReport::Sink& sink : report.sinks) {
    json["outputs"].push_back(
        {{"element", sink.element}, {"path", sink.path}, {"packets", sink.packets}, {"bytes", sink.bytes}});
  }
  if (const auto age = cleared_.age(ClearedCounters::Window::kPorts)) json["cleared_seconds_ago"] = *age;
  return json;
}

Json Control::process_json() const {
  const ProcessUse::Now now = facts_.process->now();
  return {{"host", facts_.process->host()},
          {"socket", facts_.socket},
          {"start_unix_seconds", facts_.process->start_unix_seconds()},
          {"cpu_seconds", now.cpu_seconds},
          {"resident_bytes", now.resident_bytes},
          {"virtual_bytes", now.virtual_bytes},
          {"open_files", now.open_files},
          {"open_files_limit", now.open_files_limit}};
}

Json Control::top_rules(size_t count) {
  Json all = Json::array();
  for (const auto& [name, image] : tables_->tables().acls) {
    auto list = rules(name, true, 1, count, "hits", false);
    if (!list) continue;  // a compiled image without its rules
    for (Json& rule : (*list)["rules"]) {
      Json one{{"table", name}};
      one.update(rule);
      all.push_back(std::move(one));
    }
  }
  return all;
}

Result<Json> Control::show_report(size_t top, bool buckets) {
  RunReport report;
  if (auto ok = runtime_.look(report); !ok) return std::move(ok).error();
  if (runtime_.live_ports() != nullptr) report.live_ports = runtime_.live_ports()->report();
  Json json{{"version", sluice_version()}, {"revision", sluice_revision()}, {"configuration", facts_.configuration}};
  if (facts_.process != nullptr) json["process"] = process_json();
  const auto write = [&] {
    const Router& router = runtime_.router();
    Json whole = sluice::to_json(report, router, TableReport{tables_->loads(), {}}, facts_.device);
    for (const char* field : {"conserved", "out", "partial"}) whole.erase(field);
    json.update(whole);
    json["edges"] = Json::array();
    for (const RouterConnection& c : router.connections) {
      json["edges"].push_back({{"from", router.elements[c.from]->name},
                               {"output", c.from_port},
                               {"to", router.elements[c.to]->name},
                               {"input", c.to_port},
                               {"pull", c.pull}});
    }
  };
  // Scripts replace their graph themselves.
  if (!runtime_.by_packets()) {
    write();
  } else if (auto asked = runtime_.ask(write); !asked) {
    return std::move(asked).error();
  }
  json["generation"] = runtime_.publisher().generation();
  for (size_t t = 0; t < json["tables"].size(); ++t)
    json["tables"][t]["changed_in_generation"] = tables_->changed(tables_->loads()[t].kind, tables_->loads()[t].name);
  json["tables_bytes"] = tables_->bytes();
  json["interfaces"] = Json::array();
  for (const LivePortReport& port : report.live_ports) json["interfaces"].push_back(sluice::to_json(port));
  json["drop_kinds"] = Json::object();
  for (size_t r = 0; r < kDropReasons; ++r) {
    const auto reason = static_cast<DropReason>(r);
    if (report.drops[r] != 0) json["drop_kinds"][to_string(reason)] = to_string(kind_of(reason));
  }
  if (buckets) {
    json["latency_ns"].update(buckets_json(report.totals.latency));
    json["wait_ns"].update(buckets_json(report.totals.wait));
    json["through_ns"].update(buckets_json(report.totals.through));
  }
  if (top != 0) json["rules"] = top_rules(top);
  return json;
}

Result<Json> Control::show_qos() {
  RunReport report;
  if (auto ok = runtime_.look(report); !ok) return std::move(ok).error();
  if (!report.has_classes) return Error("this run has no classes of service", "start it with --qos FILE");
  return Json{{"ports", sluice::to_json(report.qos)}};
}

Result<Json> Control::set_qos(const std::string& qos_class, const std::string& rate, int64_t port) {
  uint64_t bps = 0;
  if (rate != "unlimited" && (!parse_rate_bps(rate, &bps) || bps < DepartureRate::kLeastBps))
    return Error(fmt::format("'{}' is not a rate", rate), "such as 20Mbps, from 1kbps to 400Gbps; or unlimited");
  auto done = change_classes(runtime_, [qos_class, bps, port](EgressQos& qos) -> Result<void> {
    if (qos_class != "port") return qos.set_rate(qos_class, bps, port);
    qos.set_port_rate(bps, port);
    return {};
  });
  if (!done) return std::move(done).error();
  qos_changed_ = true;
  Json json{{"class", qos_class}, {"rate_bps", bps}};
  if (port >= 0) json["port"] = port;
  return json;
}

Result<std::string> Control::qos_text() {
  QosModel model;
  bool one_port = false;
  auto done = runtime_.change_qos([&](EgressQos& qos) -> Result<void> {
    model = qos.model();
    one_port = qos.has_rates_of_one_port();
    return {};
  });
  if (!done) return std::move(done).error();
  if (one_port)
    return Error("a rate was set for one port alone, which a file of classes cannot say",
                 "set the rate for all ports: sluice qos set CLASS rate RATE");
  return edit_qos(qos_file_.text, qos_file_.path, model);
}

Result<Json> Control::load_qos(SentFile file) {
  auto text = file.input.table();
  if (!text) return std::move(text).error();
  auto model = parse_qos(*text, file.name);
  if (!model) return std::move(model).error();
  if (auto ok = EgressQos::check(*model, runtime_.at_sinks()); !ok) return std::move(ok).error();
  auto done = change_classes(runtime_, [model = *model](EgressQos& qos) -> Result<void> {
    qos.load(model);
    return {};
  });
  if (!done) return std::move(done).error();
  qos_file_.text = std::move(*text);
  qos_changed_ = true;
  return Json{{"file", file.name}, {"classes", model->classes.size()}};
}

Result<Json> Control::show_drops() {
  RunReport report;
  Json drops = Json::array();
  const auto list = [&](const Router& router) {
    cleared_.subtract(ClearedCounters::Window::kDrops, report, router);
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
  if (auto ok = look(report, list); !ok) return std::move(ok).error();
  Json json{{"packets_in", report.packets_in}, {"dropped", report.dropped}, {"drops", std::move(drops)}};
  if (const auto age = cleared_.age(ClearedCounters::Window::kDrops)) json["cleared_seconds_ago"] = *age;
  std::stable_sort(json["drops"].begin(), json["drops"].end(), [](const Json& a, const Json& b) {
    return a["packets"].get<uint64_t>() > b["packets"].get<uint64_t>();
  });
  return json;
}

Json Control::show_tables() {
  Json json{{"generation", runtime_.publisher().generation()}, {"bytes", tables_->bytes()}};
  if (tables_->max_bytes() != 0) json["max_memory"] = tables_->max_bytes();
  json["tables"] = Json::array();
  for (const TableLoad& load : tables_->loads()) {
    Json one = sluice::to_json(load);
    one["changed_in_generation"] = tables_->changed(load.kind, load.name);
    one["unsaved"] = tables_->unsaved(load.kind, load.name);
    json["tables"].push_back(std::move(one));
  }
  if (!qos_file_.path.empty()) json["qos"] = {{"unsaved", qos_changed_}};
  return json;
}

Result<Json> Control::show_adjacencies(const std::string& asked, size_t from, size_t count) {
  auto table = only(tables_->tables().adjacencies, "adjacency table", asked);
  if (!table) return std::move(table).error();
  auto hops = tables_->next_hops(*table);
  if (!hops) return std::move(hops).error();
  return list_next_hops({*table, *hops}, from, count);
}

Result<Json> Control::rules(const std::string& asked, bool with_hits, size_t from, size_t count,
                            const std::string& order, bool since_clear) {
  auto table = only(tables_->tables().acls, "access list", asked);
  if (!table) return std::move(table).error();
  if (order != "list" && order != "hits") return Error(fmt::format("'{}' is not an order", order), "list or hits");
  auto set = tables_->rules(*table);
  if (!set) return std::move(set).error();
  const RuleList& all = **set;
  HitLedger::Counts counts;
  if (with_hits || order == "hits") {
    HitLedger& ledger = runtime_.hits();
    counts = hits_by_position(since_clear ? ledger.read_since_clear(*table) : ledger.read(*table));
  }
  // A list that no element uses was never counted.
  counts.rules.resize(all.size() + 1);
  std::vector<uint32_t> shown;
  if (order == "hits") {
    for (uint32_t r = 1; r <= all.size(); ++r) {
      if (counts.rules[r].packets != 0) shown.push_back(r);
    }
    std::stable_sort(shown.begin(), shown.end(),
                     [&](uint32_t a, uint32_t b) { return counts.rules[a].packets > counts.rules[b].packets; });
  } else {
    shown.resize(all.size());
    std::iota(shown.begin(), shown.end(), 1u);
  }
  Json json{{"table", *table}, {"total", shown.size()}, {"from", from}, {"rules", Json::array()}};
  for (size_t i = from - 1; i < shown.size() && i - (from - 1) < count; ++i) {
    const AclRule& rule = all.at(shown[i]);
    Json one{{"rule", shown[i]}, {"action", action_of(rule)}, {"text", to_native(rule)}};
    if (rule.line != 0 && rule.file < all.files().size()) {
      one["file"] = all.files()[rule.file];
      one["line"] = rule.line;
    }
    if (with_hits) one.update(to_json(counts.rules[shown[i]]));
    json["rules"].push_back(std::move(one));
  }
  if (with_hits) {
    json["no_match"] = to_json(counts.rules[0]);
    json["removed"] = to_json(counts.removed);
    if (since_clear && rules_cleared_ns_ != 0)
      json["cleared_seconds_ago"] = static_cast<double>(now_ns() - rules_cleared_ns_) * 1e-9;
  }
  return json;
}

// One packet, as hexadecimal bytes.
Result<Json> Control::explain_packet(const std::string& frame, const std::string& input, size_t near) {
  constexpr size_t kMostBytes = 16384;
  auto bytes = parse_hex_bytes(frame, "frame");
  if (!bytes) return std::move(bytes).error();
  if (bytes->empty() || bytes->size() > kMostBytes) return Error(fmt::format("a packet has 1 to {} bytes", kMostBytes));
  Result<Json> said = Error();
  const auto explain = [&] { said = why(runtime_.router(), *tables_, runtime_.neighbours(), *bytes, input, near); };
  if (runtime_.by_packets()) {
    // Its elements carry state from packet to packet.
    if (auto asked = runtime_.ask(explain); !asked) return std::move(asked).error();
  } else {
    explain();
  }
  if (said.ok()) (*said)["generation"] = runtime_.publisher().generation();
  return said;
}

// What `say` says of the routes of the table that is meant, and its name.
Result<Json> Control::of_routes(std::string asked,
                                const std::function<Result<Json>(const SourcedRib&, const std::string& table)>& say) {
  auto table = only(tables_->tables().routes, "route table", std::move(asked));
  if (!table) return std::move(table).error();
  auto rib = tables_->routes(*table);
  if (!rib) return std::move(rib).error();
  if (*rib == nullptr) {
    return Error(fmt::format("the route table '{}' is a compiled image: its routes are not known", *table),
                 "run with the route files");
  }
  auto said = say(**rib, *table);
  if (!said) return said;
  Json json{{"table", *table}};
  json.update(*said);
  return json;
}

Result<Json> Control::list_routes(const RouteChoice& choice, std::string asked, size_t from, size_t count) {
  return of_routes(std::move(asked), [&](const SourcedRib& rib, const std::string&) {
    return sluice::list_routes(rib, choice.within, choice.next_hop, from, count);
  });
}

// As the kernel has them at the interfaces of the run's live ports.
Result<Json> Control::show_neighbours(size_t from, size_t count) {
  if (runtime_.live_ports() == nullptr)
    return Error("this run has no live port: its neighbours stand in its adjacency file", "sluice show adjacencies");
  auto links = LinkWatch::create();
  if (!links) return std::move(links).error();
  std::vector<int> indexes;
  for (const auto& [index, link] : (*links)->links()) {
    if (!runtime_.live_ports()->name_of(index).empty()) indexes.push_back(index);
  }
  std::vector<Neighbour> all;
  if (!indexes.empty()) {
    auto watch = NeighbourWatch::create(indexes);
    if (!watch) return std::move(watch).error();
    (*watch)->for_each([&all](const Neighbour& n) { all.push_back(n); });
  }
  std::sort(all.begin(), all.end(), [](const Neighbour& a, const Neighbour& b) {
    return std::tuple(a.ifindex, a.address.family, a.address.hi, a.address.lo) <
           std::tuple(b.ifindex, b.address.family, b.address.hi, b.address.lo);
  });
  Json json{{"total", all.size()}, {"from", from}, {"neighbours", Json::array()}};
  for (size_t i = from - 1; i < all.size() && i - (from - 1) < count; ++i) {
    const Neighbour& n = all[i];
    const KernelLink* const link = (*links)->find(n.ifindex);
    json["neighbours"].push_back({{"address", to_string(n.address)},
                                  {"mac", n.usable() ? Json(to_string(n.mac)) : Json(nullptr)},
                                  {"interface", link == nullptr ? std::string() : link->name},
                                  {"state", state_text(n.state)}});
  }
  return json;
}

Result<Json> Control::show_routes(const std::string& text, std::string asked, size_t from, size_t count) {
  return of_routes(std::move(asked), [&](const SourcedRib& rib, const std::string& table) {
    return explain_routes(rib, tables_->next_hops_of(table), text, from, count);
  });
}

}  // namespace sluice

// host only
#include "control/report.h"

#include "control/json.h"

namespace sluice {

using Json = nlohmann::ordered_json;

Json to_json(const TableLoad& load) {
  return {{"name", load.name},
          {"kind", load.kind},
          {"algorithm", load.algorithm},
          {"entries", load.entries},
          {"bytes", load.bytes},
          {"parse_seconds", load.parse_seconds},
          {"build_seconds", load.build_seconds},
          {"compiled", load.compiled}};
}

Json buckets_json(const Histogram& times) {
  const uint64_t count = times.count();
  Json json{{"count", count}, {"sum", times.mean() * static_cast<double>(count)}, {"buckets", Json::array()}};
  for (unsigned octave = 10; octave < 32; ++octave) {
    for (uint64_t step = 0; step < 4; ++step) {
      const uint64_t highest = (uint64_t{1} << octave) + (step << (octave - 2)) - 1;
      json["buckets"].push_back({highest, times.count_up_to(highest)});
    }
  }
  return json;
}

Json dscp_json(const WorkerStats& totals) {
  Json json = Json::object();
  for (size_t d = 0; d < totals.dscp.size(); ++d)
    if (totals.dscp[d] != 0) json[d == kNoDscp ? "none" : std::to_string(d)] = totals.dscp[d];
  return json;
}

Json to_json(const RunReport& report, const Router& router, const TableReport& tables, const std::string& device) {
  auto drops = [](const auto& counts) {
    Json json = Json::object();
    for (size_t r = 0; r < counts.size(); ++r) {
      if (counts[r] != 0) json[to_string(static_cast<DropReason>(r))] = counts[r];
    }
    return json;
  };
  Json json{{"packets_in", report.packets_in}, {"bytes_in", report.bytes_in},    {"packets_out", report.packets_out},
            {"bytes_out", report.bytes_out},   {"generated", report.generated},  {"dropped", report.dropped},
            {"fast_path", report.totals.fast}, {"conserved", report.conserved()}};
  if (report.queued != 0) json["queued"] = report.queued;
  json["out"] = Json::object();
  for (const auto& [port, counters] : report.ports)
    json["out"][std::to_string(port)] = {{"packets", counters.packets}, {"bytes", counters.bytes}};
  json["sinks"] = Json::array();
  for (const RunReport::Sink& sink : report.sinks) {
    json["sinks"].push_back(
        {{"element", sink.element}, {"path", sink.path}, {"packets", sink.packets}, {"bytes", sink.bytes}});
  }
  if (report.has_classes) json["qos"] = to_json(report.qos);
  json["drops"] = drops(report.drops);
  if (!report.totals.dscp.empty()) json["dscp_bytes"] = dscp_json(report.totals);
  json["elements"] = Json::array();
  for (size_t e = 0; e < router.elements.size(); ++e) {
    const Element& element = *router.elements[e];
    if (element.kind() == ElementKind::kInfo) continue;
    const ElementCounters counters = e < report.totals.elements.size() ? report.totals.elements[e] : ElementCounters{};
    json["elements"].push_back({{"name", element.name},
                                {"class", element.class_name},
                                {"packets", counters.packets},
                                {"bytes", counters.bytes},
                                {"drops", drops(counters.drops)}});
  }
  json["partial"] = report.partial;
  json["seconds"] = report.seconds;
  json["packets_per_second"] = report.seconds > 0 ? static_cast<double>(report.packets_in) / report.seconds : 0.0;
  json["generation"] = report.generation;
  json["workers"] = report.workers;
  json["device"] = device;
  json["batch"] = {{"limit", report.batch.limit},
                   {"latency_target_ns", report.batch.target_ns},
                   {"raised", report.batch.raised},
                   {"lowered", report.batch.lowered}};
  const auto& latency = report.totals.latency;
  json["latency_ns"] = {{"p50", latency.percentile(50)},
                        {"p99", latency.percentile(99)},
                        {"p999", latency.percentile(99.9)},
                        {"max", latency.max()}};
  for (const auto& [name, times] : {std::pair{"wait_ns", &report.totals.wait},
                                    {"egress_ns", &report.totals.egress},
                                    {"through_ns", &report.totals.through}}) {
    json[name] = {{"p50", times->percentile(50)}, {"p99", times->percentile(99)}, {"max", times->max()}};
  }
  json["tables"] = Json::array();
  for (const TableLoad& load : tables.loads) json["tables"].push_back(to_json(load));
  return json;
}

Json to_json(const std::vector<QosPortReport>& ports) {
  Json all = Json::array();
  for (const QosPortReport& port : ports) {
    Json classes = Json::array();
    for (const QosClassReport& c : port.classes) {
      const QosCounters& n = c.counters;
      Json drops = Json::object();
      for (const auto& [reason, count] : {std::pair{DropReason::kPoliced, n.policed},
                                          {DropReason::kShaperFull, n.shaper_full},
                                          {DropReason::kQueueFull, n.tail_drops},
                                          {DropReason::kEarlyDrop, n.early_drops}}) {
        if (count != 0) drops[to_string(reason)] = count;
      }
      classes.push_back({{"class", c.name},
                         {"rate_bps", c.rate_bps},
                         {"in", {{"packets", n.in_pkts}, {"bytes", n.in_bytes}}},
                         {"out", {{"packets", n.out_pkts}, {"bytes", n.out_bytes}}},
                         {"drops", drops},
                         {"waiting", n.waiting},
                         {"queued", n.queued},
                         {"queue_highest", n.highest_pkts},
                         {"latency_ns", {{"p50", c.p50_ns}, {"p99", c.p99_ns}}}});
    }
    all.push_back({{"element", port.element}, {"port", port.port}, {"rate_bps", port.rate_bps}, {"classes", classes}});
  }
  return all;
}

Json to_json(const LivePortReport& port) {
  Json json{{"name", port.facts.name}, {"method", port.facts.method}, {"mode", port.facts.mode},
            {"mtu", port.facts.mtu},   {"up", port.facts.up},         {"rx", Json::array()},
            {"tx", Json::array()}};
  json["closed"] = port.closed;
  json["link"] = to_string(port.link);
  json["link_changes"] = port.link_changes;
  for (const RxCounters& q : port.rx)
    json["rx"].push_back({{"packets", q.packets},
                          {"bytes", q.bytes},
                          {"missed", q.missed},
                          {"too_long", q.too_long},
                          {"invalid", q.invalid}});
  for (const TxCounters& q : port.tx)
    json["tx"].push_back({{"packets", q.packets}, {"bytes", q.bytes}, {"full", q.full}, {"failed", q.failed}});
  return json;
}

Json to_json(const Diagnostic& d) {
  Json json{{"severity", d.severity == Diagnostic::Severity::kError ? "error" : "warning"},
            {"file", d.file},
            {"line", d.line},
            {"column", d.column},
            {"length", d.length},
            {"source", d.source_line},
            {"message", d.message}};
  if (!d.expected.empty()) json["expected"] = d.expected;
  if (!d.suggestion.empty()) json["suggestion"] = d.suggestion;
  return json;
}

Json to_json(const Error& error) {
  Json json{{"message", error.message}};
  if (!error.hint.empty()) json["hint"] = error.hint;
  json["diagnostics"] = Json::array();
  for (const Diagnostic& d : error.diagnostics) json["diagnostics"].push_back(to_json(d));
  return json;
}

namespace {

std::string text_of(const Json& json, const char* field) {
  const auto it = json.find(field);
  return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
}
uint32_t number_of(const Json& json, const char* field) {
  const auto it = json.find(field);
  return it != json.end() && it->is_number_unsigned() ? static_cast<uint32_t>(it->get<uint64_t>()) : 0;
}

}  // namespace

Error error_of(const Json& json) {
  Error error(text_of(json, "message"), text_of(json, "hint"));
  const auto system = json.find("system");
  error.system = system != json.end() && system->is_boolean() && system->get<bool>();
  if (const auto all = json.find("diagnostics"); all != json.end() && all->is_array()) {
    for (const Json& one : *all) {
      if (!one.is_object()) continue;
      Diagnostic d;
      if (text_of(one, "severity") == "warning") d.severity = Diagnostic::Severity::kWarning;
      d.file = text_of(one, "file");
      d.line = number_of(one, "line");
      d.column = number_of(one, "column");
      d.length = number_of(one, "length");
      d.source_line = text_of(one, "source");
      d.message = text_of(one, "message");
      d.expected = text_of(one, "expected");
      d.suggestion = text_of(one, "suggestion");
      error.diagnostics.push_back(std::move(d));
    }
  }
  return error;
}

}  // namespace sluice

// host only
#include "control/report.h"

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
  json["out"] = Json::object();
  for (const auto& [port, counters] : report.ports)
    json["out"][std::to_string(port)] = {{"packets", counters.packets}, {"bytes", counters.bytes}};
  json["sinks"] = Json::array();
  for (const RunReport::Sink& sink : report.sinks) {
    json["sinks"].push_back(
        {{"element", sink.element}, {"path", sink.path}, {"packets", sink.packets}, {"bytes", sink.bytes}});
  }
  json["drops"] = drops(report.drops);
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
  json["tables"] = Json::array();
  for (const TableLoad& load : tables.loads) json["tables"].push_back(to_json(load));
  return json;
}

}  // namespace sluice

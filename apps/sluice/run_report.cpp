// host only
#include "run_report.h"

#include <utility>

#include "control/answer_text.h"
#include "control/json.h"
#include "control/report.h"
#include "devices.h"
#include "port_flags.h"
#include "priorities.h"

namespace sluice::app {
namespace {

Json run_json(const RunFlags& o, const Pipeline& pipeline, const PipelineRun& done, const LiveRun& live,
              const std::string& device) {
  const RunReport& report = done.report;
  Json json = to_json(report, done.router(), pipeline.table_report, device);
  if (o.live.top != 0) json["top_rules"] = live.top();
  if (o.priorities.on) json["classes"] = classes_json(report);
  json["interrupted"] = done.interrupted;
  for (const LivePortReport& port : report.live_ports) json["ports"].push_back(to_json(port));
  if (!report.devices.empty()) {
    json["offload"] = {{"offloaded", report.offload.offloaded},
                       {"on_host", report.offload.on_host},
                       {"redone", report.offload.redone},
                       {"rescued", report.offload.rescued},
                       {"set_aside_bytes", report.set_aside_bytes}};
    json["devices"] = Json::array();
    for (const DeviceReport& d : report.devices) json["devices"].push_back(to_json(d));
  }
  return json;
}

std::string run_text(const RunReport& report, const LiveRun& live, const std::string& device) {
  std::string text = summary(report, device) + port_lines(report) + class_lines(report) + device_lines(report);
  if (!report.qos.empty()) text += qos_text(to_json(report.qos));
  if (!live.top().empty()) text += "rules\n";
  for (const Json& rule : live.top()) {
    text += fmt::format("{:>10}  {}: {} (rule {})\n", with_commas(rule["packets"].get<uint64_t>()),
                        rule["at"].get<std::string>(), rule["action"].get<std::string>(), rule["rule"].get<uint32_t>());
  }
  return text;
}

}  // namespace

void print_run(const RunFlags& o, const Pipeline& pipeline, const PipelineRun& done, const LiveRun& live,
               const std::string& device, std::vector<std::string> outputs, const std::vector<std::string>& left) {
  if (json_output()) {
    print_json(run_json(o, pipeline, done, live, device));
    return;
  }
  outputs.insert(outputs.end(), left.begin(), left.end());
  print_report(run_text(done.report, live, device), outputs);
}

}  // namespace sluice::app

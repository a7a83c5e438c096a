// host only
// For the fuzz targets of the control layer: a small runtime with live tables, and no packets.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "control/control.h"
#include "control/live_tables.h"
#include "elements/register_all.h"
#include "formats/native_rules.h"
#include "graph/click/parser.h"

namespace sluice {

struct FuzzedRuntime {
  Registry registry;
  Router router;
  Plan plan;
  std::unique_ptr<Engine> runtime;
  std::unique_ptr<LiveTables> tables;
  std::shared_ptr<PacketTaps> taps = std::make_shared<PacketTaps>();
  std::shared_ptr<RuleLog> rule_log = std::make_shared<RuleLog>();
  std::unique_ptr<TraceControl> trace;
  std::unique_ptr<CaptureControl> capture;
  std::unique_ptr<RuleLogControl> log;
  std::unique_ptr<Control> control;

  FuzzedRuntime() {
    register_elements(registry);
    const std::string& text = graph();
    router = must(build_router(must(parse_click(text, "fuzz.click")), registry, text));
    plan = must(make_plan(router));
    TableReport report;
    TableModels models;
    TableSet loaded = must(load_tables(router, {}, &report, {}, &models));
    RunOptions options;
    options.live = options.count_hits = true;
    options.taps = taps;
    options.rule_log = rule_log;
    runtime = must(Engine::create(router, plan, options));
    runtime->publisher().publish(must(bind_plan(plan, router, loaded)));
    tables = std::make_unique<LiveTables>(router, plan, runtime->publisher(), std::move(loaded), std::move(models),
                                          report.loads, size_t{1} << 26);
    control = std::make_unique<Control>(*runtime, *tables, Control::Facts{"fuzz", "cpu"});
    trace = std::make_unique<TraceControl>(*runtime, taps);
    control->trace = trace.get();
    capture = std::make_unique<CaptureControl>(*runtime, taps);
    control->capture = capture.get();
    log = must(RuleLogControl::create(rule_log, [](const std::string&) {}));
    control->log = log.get();
  }

  // The list as text.
  std::string list() { return to_native((*must(tables->rules("edge"))).set()); }

 private:
  // The configuration; its tables' files are made once.
  static const std::string& graph() {
    static const std::string text = [] {
      std::string folder = (std::filesystem::temp_directory_path() / "sluice_fuzz_XXXXXX").string();
      if (mkdtemp(folder.data()) == nullptr) std::abort();
      std::ofstream(folder + "/acl") << "deny udp from any to any port 53\npermit tcp from any to any port 80\n"
                                        "permit ip from any to any\n";
      std::ofstream(folder + "/rib") << "8.0.0.0/8 a\n8.8.0.0/16 b\n2001:db8::/32 a\n";
      return "AclTable(edge, FILE " + folder + "/acl); RouteTable(fib, FILE " + folder +
             "/rib, ALGORITHM poptrie);\nInfiniteSource(LIMIT 0) -> IPInput -> ACL(edge) -> IPRoute(fib) -> "
             "ToMemory;\n";
    }();
    return text;
  }
  template <typename T>
  static T must(Result<T> result) {
    if (!result) std::abort();
    return std::move(*result);
  }
};

}  // namespace sluice

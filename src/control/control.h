// host only
// What a running Sluice answers: requests and answers are JSON objects.
//
//   {"v": 1, "command": "show rules", "table": "edge", "count": 20}
//   {"v": 1, "ok": true, "result": {...}}
//   {"v": 1, "ok": false, "error": {"message": ..., "hint": ..., "diagnostics": [{"file", "line", "column", ...}]}}
//
// docs/design/control.md lists the commands and their fields.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/capture_control.h"
#include "control/cleared_counters.h"
#include "control/graph_control.h"
#include "control/json.h"
#include "control/live_tables.h"
#include "control/process_use.h"
#include "control/request.h"
#include "control/rule_log_control.h"
#include "control/sent_file.h"
#include "control/trace_control.h"
#include "exec/engine/engine.h"

namespace sluice {

// One thread at a time asks: while a change reads or builds a table, another one that looks (LiveTables::set_lock).
class Control {
 public:
  static constexpr int kVersion = kControlVersion;

  struct Facts {
    std::string configuration;  // its name
    std::string device;
    std::string socket = {};                              // where commands reach it; empty: nowhere
    std::shared_ptr<const ProcessUse> process = nullptr;  // for `show report`; nullptr: it says nothing of the process
  };
  // All outlive this. The runtime's options are live and count_hits.
  Control(Engine& runtime, LiveTables& tables, Facts facts)
      : runtime_(runtime), tables_(&tables), facts_(std::move(facts)) {}
  // Where the graph may be replaced and asked: what answers that, before the first request.
  void use(GraphControl& graph) {
    graph_ = &graph;
    graph.use(cleared_);
  }
  // Where packets may be followed: what answers that, before the first request.
  void use(TraceControl& trace) { trace_ = &trace; }
  // Where packets may be captured: what answers that, before the first request.
  void use(CaptureControl& capture) { capture_ = &capture; }
  // Where packets that rules with `log` decided may be shown: what answers that, before the first request.
  void use(RuleLogControl& log) { log_ = &log; }
  // Reads the configuration of the run again: what answers `reload`, before the first request.
  // `all`: also files that have not changed.
  void use(std::function<Result<nlohmann::ordered_json>(bool all)> reload) { reload_ = std::move(reload); }
  // A file of classes of service as it was read.
  struct ClassesFile {
    std::string path;
    FileStamp stamp;
    std::string text;
  };
  // The run goes by the classes of this file.
  void classes_read(ClassesFile file) {
    qos_file_ = std::move(file);
    qos_changed_ = false;
  }
  // Whether this is the text of the classes that the run goes by.
  bool are_classes(const std::string& text) const { return !qos_changed_ && qos_file_.text == text; }
  // Whether a request has changed the classes of service since they were read.
  bool qos_changed() const { return qos_changed_; }
  // Another graph runs, with these tables.
  void use(LiveTables& tables, std::string configuration) {
    tables_ = &tables;
    facts_.configuration = std::move(configuration);
    cleared_.graph_changed(runtime_.router());
    if (trace_ != nullptr) trace_->graph_changed();
    if (capture_ != nullptr) capture_->graph_changed();
  }

  // The answer to one request, whatever its bytes are: an object without newlines.
  std::string answer(std::string_view line);
  // To one that was read (read_request).
  std::string answer(nlohmann::ordered_json& request);
  // Whether it may change tables, classes of service or the graph, which is done by one at a time and may take long.
  // All others are answered at once, from what is there.
  static bool may_change(const nlohmann::ordered_json& request);
  // Of one that may: whether it takes no longer than a look, as it is short and patches what there is.
  bool is_short(const nlohmann::ordered_json& request) const;

  // What `show rules` gives, also after the run: {"table", "rules": [{"rule", "action", "text", "file", "line",
  // "packets", "bytes"}], "total", "no_match": {...}, "removed": {...}}. `order`: "list", or "hits": those with most
  // packets first, and none without. `since_clear`: their packets since they were cleared, else of the whole run.
  Result<nlohmann::ordered_json> rules(const std::string& table, bool hits, size_t from, size_t count,
                                       const std::string& order, bool since_clear);

 private:
  Result<nlohmann::ordered_json> run(nlohmann::ordered_json& request);
  Result<nlohmann::ordered_json> show_runtime();
  // `top`: with so many rules of each access list, those with most packets, of the whole run. `buckets`: with the
  // histograms of times.
  Result<nlohmann::ordered_json> show_report(size_t top, bool buckets);
  nlohmann::ordered_json top_rules(size_t count);
  nlohmann::ordered_json process_json() const;
  Result<nlohmann::ordered_json> show_drops();
  Result<nlohmann::ordered_json> show_ports();
  Result<nlohmann::ordered_json> save();
  Result<nlohmann::ordered_json> clear_counters(const std::string& what);
  // The run's counters now, and in `use` with the elements that they are of.
  Result<void> look(RunReport& report, const std::function<void(const Router&)>& use);
  nlohmann::ordered_json show_tables();
  Result<nlohmann::ordered_json> show_adjacencies(const std::string& table, size_t from, size_t count);
  Result<nlohmann::ordered_json> show_qos();
  Result<nlohmann::ordered_json> set_qos(const std::string& qos_class, const std::string& rate, int64_t port);
  Result<nlohmann::ordered_json> load_qos(SentFile file);
  // The classes as a file of them. Errors: a rate that no file can say.
  Result<std::string> qos_text();
  Result<nlohmann::ordered_json> of_routes(
      std::string asked,
      const std::function<Result<nlohmann::ordered_json>(const SourcedRib&, const std::string& table)>& say);
  Result<nlohmann::ordered_json> show_routes(const std::string& text, std::string table, size_t from, size_t count);
  struct RouteChoice {
    std::string within, next_hop;  // those within a prefix; those by a next hop; "": all
  };
  Result<nlohmann::ordered_json> list_routes(const RouteChoice& choice, std::string table, size_t from, size_t count);
  Result<nlohmann::ordered_json> show_neighbours(size_t from, size_t count);
  Result<nlohmann::ordered_json> explain_packet(const std::string& frame, const std::string& input, size_t near);

  Engine& runtime_;
  LiveTables* tables_;
  GraphControl* graph_ = nullptr;                               // none: the graph stays
  std::function<Result<nlohmann::ordered_json>(bool)> reload_;  // none: there is no configuration
  TraceControl* trace_ = nullptr;                               // none: packets are not followed
  ClearedCounters cleared_;
  uint64_t rules_cleared_ns_ = 0;      // 0: never
  bool qos_changed_ = false;           // by a request, since they were read or saved
  ClassesFile qos_file_;               // the text is that of `qos load`, where there was one
  CaptureControl* capture_ = nullptr;  // none: packets are not captured
  RuleLogControl* log_ = nullptr;      // none: nothing is recorded
  Facts facts_;
};

}  // namespace sluice

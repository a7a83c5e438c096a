// host only
// What a running Sluice answers: requests and answers are JSON objects.
//
//   {"v": 1, "command": "show rules", "table": "edge", "count": 20}
//   {"v": 1, "ok": true, "result": {...}}
//   {"v": 1, "ok": false, "error": {"message": ..., "hint": ..., "diagnostics": [{"file", "line", "column", ...}]}}
//
// Commands and their fields are rows of command.h; docs/reference/requests.md lists them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/input_file.h"
#include "base/result.h"
#include "control/capture_control.h"
#include "control/cleared_counters.h"
#include "control/json.h"
#include "control/live_tables.h"
#include "control/process_use.h"
#include "control/rule_log_control.h"
#include "control/trace_control.h"
#include "exec/engine/engine.h"

namespace sluice {

// One thread at a time asks: while a change reads or builds a table, another one that looks (LiveTables::set_lock).
struct Control {
  struct Facts {
    std::string configuration;  // its name
    std::string device;
    std::string socket = {};                              // where commands reach it; empty: nowhere
    std::shared_ptr<const ProcessUse> process = nullptr;  // for `show report`; nullptr: it says nothing of the process
  };
  // What `graph` does; without `load` the graph stays.
  struct GraphHooks {
    // Reads a graph and its tables. `name`: of the text, for findings and for libraries beside it; `folder`: what it
    // begins in where it is relative; empty: this process's own.
    std::function<Result<std::unique_ptr<GraphGeneration>>(const std::string& text, const std::string& name,
                                                           const std::string& folder)>
        load;
    // Whether there is room for its tables beside those of the graph that runs. None: there is.
    std::function<Result<void>(const GraphGeneration& next)> fits;
    // It runs now.
    std::function<void(const std::string& configuration)> swapped;
  };
  // A file of classes of service as it was read.
  struct ClassesFile {
    std::string path;
    FileStamp stamp;
    std::string text;
  };

  // All outlive this. The runtime's options are live and count_hits.
  Control(Engine& runtime, LiveTables& live_tables, Facts its_facts)
      : engine(runtime), tables(&live_tables), facts(std::move(its_facts)) {}
  // Another graph runs, with these tables.
  void use(LiveTables& tables, std::string configuration);

  // The answer to one request, whatever its bytes are: an object without newlines.
  std::string answer(std::string_view line);
  // To one that was read (read_request).
  std::string answer(nlohmann::ordered_json& request);
  // Whether it is one of those that change (CommandRow::changes).
  static bool may_change(const nlohmann::ordered_json& request);
  // Of one that may: whether it takes no longer than a look, as it is short and patches what there is.
  bool is_short(const nlohmann::ordered_json& request) const;

  // The run's counters now, and in `use` with the elements that they are of.
  Result<void> look(RunReport& report, const std::function<void(const Router&)>& use);

  // What the handlers of commands answer from. All that is pointed at is set before the first request, and outlives
  // this; nullptr: this process does not do it.
  Engine& engine;
  LiveTables* tables;
  Facts facts;
  GraphHooks graph;
  TraceControl* trace = nullptr;
  CaptureControl* capture = nullptr;
  RuleLogControl* log = nullptr;
  // Reads the configuration of the run again; `all`: also files that have not changed. None: there is no configuration.
  std::function<Result<nlohmann::ordered_json>(bool all)> reload;
  ClearedCounters cleared;
  uint64_t rules_cleared_ns = 0;  // 0: never
  ClassesFile classes;            // the text is that of `qos load`, where there was one
  bool classes_changed = false;   // by a request, since they were read or saved

 private:
  Result<std::string> run(nlohmann::ordered_json& request);
};

// What `show rules` gives, also after the run: {"table", "rules": [{"rule", "action", "text", "file", "line",
// "packets", "bytes"}], "total", "no_match": {...}, "removed": {...}}. `by_hits`: those with most packets first, and
// none without. `since_clear`: their packets since they were cleared, else of the whole run.
Result<nlohmann::ordered_json> list_rules(Control& control, const std::string& table, bool hits, size_t from,
                                          size_t count, bool by_hits, bool since_clear);
// A list's only name, where a request names none. `kind`: in words.
Result<std::string> only_table(const NamedImages& tables, const char* kind, std::string name);
// The classes of service as a file of them. Errors: a rate that no file can say.
Result<std::string> classes_text(Control& control);

}  // namespace sluice

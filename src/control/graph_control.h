// host only
// What a run answers about its graph: what it is, another one in its place, its handlers. The protocol is that of
// Control.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/cleared_counters.h"
#include "control/request.h"
#include "control/sent_file.h"
#include "exec/engine/engine.h"

namespace sluice {

// One thread at a time asks, as Control has it, and it is none of the run.
class GraphControl {
 public:
  struct Hooks {
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
  // Outlived by `engine`. `configuration`: the name of the first graph.
  GraphControl(Engine& engine, Hooks hooks, std::string configuration)
      : engine_(engine), hooks_(std::move(hooks)), configuration_(std::move(configuration)) {}

  // What its windows count from; outlives this.
  void use(const ClearedCounters& cleared) { cleared_ = &cleared; }

  // Whether a command is one of these.
  bool answers(std::string_view command) const;
  Result<nlohmann::ordered_json> run(nlohmann::ordered_json& request);

 private:
  Result<nlohmann::ordered_json> swap(SentFile file, bool dry_run);
  Result<nlohmann::ordered_json> show_runtime();

  Engine& engine_;
  Hooks hooks_;
  std::string configuration_;
  const ClearedCounters* cleared_ = nullptr;  // none: nothing was cleared
};

}  // namespace sluice

// host only
// What a run of the packet scheduler answers: its handlers, its graph, and another graph in its place. The protocol is
// that of Control.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/request.h"
#include "control/sent_file.h"
#include "exec/scheduler/scheduler.h"

namespace sluice {

// One thread asks, and it is not that of the run.
class GraphControl {
 public:
  // Reads a graph and its tables. `name`: of the text, for findings and for libraries beside it; `folder`: what it
  // begins in where it is relative; empty: this process's own.
  using Load = std::function<Result<std::unique_ptr<SchedulerGraph>>(const std::string& text, const std::string& name,
                                                                     const std::string& folder)>;
  // Outlived by `scheduler`. `configuration`: the name of the first graph.
  GraphControl(Scheduler& scheduler, Load load, std::string configuration)
      : scheduler_(scheduler), load_(std::move(load)), configuration_(std::move(configuration)) {}

  std::string answer(std::string_view line);

 private:
  Result<nlohmann::ordered_json> run(nlohmann::ordered_json& request);
  Result<nlohmann::ordered_json> swap(SentFile file, bool dry_run);
  Result<nlohmann::ordered_json> show_runtime();
  Result<void> ask(const std::function<void()>& what);

  Scheduler& scheduler_;
  Load load_;
  std::string configuration_;
};

}  // namespace sluice

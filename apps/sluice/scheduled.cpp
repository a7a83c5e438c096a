// host only
#include "scheduled.h"

#include <cstdio>

namespace sluice::app {

SchedulerOptions scheduler_options(bool simulated) {
  SchedulerOptions options;
  options.simulated = simulated;
  options.stop = &interrupted();
  options.print = [line = std::string()](std::string_view text) mutable {
    line.assign(text).push_back('\n');
    std::fwrite(line.data(), 1, line.size(), stderr);
  };
  options.print_out = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  options.print_error = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  return options;
}

std::unique_ptr<Scheduler> make_scheduler(Pipeline& pipeline, const SchedulerOptions& options) {
  SchedulerOptions with_inputs = options;
  with_inputs.inputs = &pipeline.inputs;
  return need(Scheduler::create(pipeline.router, pipeline.tables, with_inputs));
}

PipelineRun run_scheduled(Scheduler& scheduler) {
  PipelineRun run;
  need(scheduler.run(run.report));
  run.interrupted = interrupted().load();
  check_conserved(run.report);
  return run;
}

}  // namespace sluice::app

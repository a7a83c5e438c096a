// host only
#include "scheduled.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "graph/graph_files.h"

namespace sluice::app {
namespace {

int g_output_failed = 0;  // errno, where elements could not print to standard output

}  // namespace

SchedulerOptions scheduler_options(bool simulated) {
  SchedulerOptions options;
  options.simulated = simulated;
  options.stop = &interrupted();
  options.print = [line = std::string()](std::string_view text) mutable {
    line.assign(text).push_back('\n');
    std::fwrite(line.data(), 1, line.size(), stderr);
  };
  options.print_out = [](std::string_view text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    if (!written && g_output_failed == 0) g_output_failed = errno;
  };
  options.print_error = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  return options;
}

namespace {

// Whether outputs are why a run cannot begin: its inputs are open by then.
Exit why_not(const Router& router) {
  RunFiles files;
  add_files(router, files);
  for (const RunFiles::File& file : files.files()) {
    if (file.path.empty() || file.use == RunFiles::File::Use::kInput) continue;
    const auto place = find_output(file.path);
    if (!place.ok() || (place->kind == OutputPlace::Kind::kFile && !AtomicFile::create(file.path).ok()))
      return Exit::kIo;
  }
  return Exit::kBadInput;
}

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(Pipeline& pipeline, const SchedulerOptions& options) {
  SchedulerOptions with_inputs = options;
  with_inputs.inputs = &pipeline.inputs;
  auto scheduler = Scheduler::create(pipeline.router, pipeline.tables, with_inputs);
  if (!scheduler.ok()) fail(why_not(pipeline.router), std::move(scheduler).error());
  return std::move(*scheduler);
}

PipelineRun run_scheduled(Scheduler& scheduler, std::optional<Error>* damage) {
  PipelineRun run;
  const auto done = scheduler.run(run.report);
  if (!done.ok()) fail_run(run.report, done.error(), damage);
  if (g_output_failed != 0) fail(Exit::kIo, system_error("standard output: cannot write", g_output_failed));
  run.interrupted = interrupted().load();
  check_conserved(run.report);
  return run;
}

}  // namespace sluice::app

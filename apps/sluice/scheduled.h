// Graphs that the packet scheduler runs: what `sluice run` and `click` share.
// host only
#pragma once

#include "exec/scheduler/scheduler.h"
#include "pipeline.h"

namespace sluice::app {

// Options that print where people look.
SchedulerOptions scheduler_options(bool simulated);
// Ends with kIo where a file cannot be opened, with kBadInput where an element cannot start.
std::unique_ptr<Scheduler> make_scheduler(Pipeline& pipeline, const SchedulerOptions& options);
// As run_pipeline: runs it once. Ends with kIo, kBadInput, or kCheckFailed when packets are not conserved.
PipelineRun run_scheduled(Scheduler& scheduler, std::optional<Error>* damage = nullptr);

// The program under the name of click.
int click_main(int argc, char** argv);

}  // namespace sluice::app

// Graphs that the packet scheduler runs: what `sluice run` and `click` share.
// host only
#pragma once

#include "exec/scheduler/scheduler.h"
#include "pipeline.h"

namespace sluice::app {

// Options that print where people look.
SchedulerOptions scheduler_options(bool simulated);
// Ends with kBadInput where a port cannot be opened or an element cannot start.
std::unique_ptr<Scheduler> make_scheduler(Pipeline& pipeline, const SchedulerOptions& options);
// Runs it once. Ends with kBadInput, or kCheckFailed when packets are not conserved.
PipelineRun run_scheduled(Scheduler& scheduler);

// The program under the name of click.
int click_main(int argc, char** argv);

}  // namespace sluice::app

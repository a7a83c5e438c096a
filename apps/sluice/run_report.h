// What a finished run prints.
// host only
#pragma once

#include <string>
#include <vector>

#include "live.h"
#include "pipeline.h"
#include "run_options.h"

namespace sluice::app {

// On stdout: for people, or one object with -o json. `outputs`: what the command line names as outputs; `left`: where
// the outputs are now.
void print_run(const RunFlags& o, const Pipeline& pipeline, const PipelineRun& done, const LiveRun& live,
               const std::string& device, std::vector<std::string> outputs, const std::vector<std::string>& left);

}  // namespace sluice::app

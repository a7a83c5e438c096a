// host only
#pragma once

#include "run_options.h"

namespace sluice::app {

// Runs packets through the graph that the options describe, or prints it, or its plan. Ends as the command line does.
Exit run_graph(const RunFlags& o);

}  // namespace sluice::app

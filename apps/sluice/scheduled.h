// What scripts of graphs print, for `sluice run` and `click`.
// host only
#pragma once

#include "pipeline.h"

namespace sluice::app {

// Lines of elements and scripts go where people look.
void print_lines(RunOptions& options);
// Ends with kIo where standard output could not be written.
void check_printed();

// The program under the name of click.
int click_main(int argc, char** argv);

}  // namespace sluice::app

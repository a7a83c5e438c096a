// What every program of this folder and of apps/bench is: the command line read, one command run, errors printed.
// host only
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "app.h"

namespace sluice::app {

// A command and what describes it.
struct Named {
  std::string_view name;
  void (*add)(Command root);
};

// Before anything else: standard descriptors that stay open, closed pipes as errors, an end without half-written files.
void prepare_process();
// What `work` says, or how it failed, as the exit code; failures are printed.
int guarded(const std::function<Exit()>& work);
// Looks for `-o json` before the rest is understood: it decides how a wrong command line is reported.
void output_format_of(int argc, char** argv);
// Reads the command line of `sluice` and runs the command that it names. `own`: commands that the program brings, in
// the place of the library's of the same name or after them; one is "bench".
int run_program(int argc, char** argv, std::span<const Named> own);
// The command that is this program once for many runs.
void add_worker(Command root);

}  // namespace sluice::app

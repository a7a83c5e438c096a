// What the command line says of its commands: for `help`, and for the reference that the program of the benchmarks
// prints. host only
#pragma once

#include <string>
#include <vector>

#include "command_line.h"

namespace sluice::app {

// The help of a command under its whole name, "sluice bench route".
std::string help_of(const CLI::App& app, const std::string& name);
// The subcommands that are shown, and their names.
std::vector<CLI::App*> commands_of(CLI::App& app);
std::vector<std::string> command_words(CLI::App& app);

}  // namespace sluice::app

// What the command line says of its commands: for `help`, and for the reference that the program of the benchmarks
// prints. host only
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command_line.h"

namespace CLI {
class FormatterBase;
}  // namespace CLI

namespace sluice::app {

// How help is written: lines of at most 110 columns, a line for each command. `first`: the sections of --help where it
// has some of the options alone, and in `rest` words for the others.
std::shared_ptr<CLI::FormatterBase> help_formatter(
    std::vector<std::pair<std::string, std::vector<std::string>>> first = {}, const std::string& rest = {});
// What an option takes, such as "FILE" or "N,...", and what it does, with the values that it takes and its default.
std::string value_text(const CLI::Option& option);
std::string description_text(const CLI::Option& option);
// A text up to the end of its first sentence, or of what stands before a colon, without that.
std::string first_sentence(const std::string& text);

// The help of a command under its whole name, "sluice bench route"; `all`: as --help-all.
std::string help_of(const CLI::App& app, const std::string& name, bool all = false);
// The subcommands that are shown, and their names.
std::vector<CLI::App*> commands_of(CLI::App& app);
std::vector<std::string> command_words(CLI::App& app);

}  // namespace sluice::app

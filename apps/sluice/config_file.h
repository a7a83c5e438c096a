// The options of `run` as a TOML file has them: `sluice run --config FILE.toml`, `sluice check FILE.toml`.
// host only
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.h"

namespace sluice::app {

inline bool is_config_file(std::string_view name) {
  return name.ends_with(".toml");
}

// Gives the options of `sub` what the file says, except those that stand on the command line, and `words` its graph and
// variables unless there are any. docs/install.md has the format. Ends with kBadInput, and everything that is wrong in
// it, or with kIo. Returns what it gave: options by name, "graph" for graph and variables.
using ConfiguredOptions = std::map<std::string, std::vector<std::string>>;
ConfiguredOptions apply_config(const std::string& file, Command sub, std::vector<std::string>& words);

}  // namespace sluice::app

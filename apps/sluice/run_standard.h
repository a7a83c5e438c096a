// The standard graph of `run`: what --in and --out name, its parts by the options, and what they cannot be.
// host only
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/standard_graph.h"
#include "elements/tables.h"
#include "inputs.h"
#include "port_flags.h"
#include "run_options.h"

namespace sluice::app {

inline constexpr const char* kStandardGraph = "standard graph";  // the name of its text

// What --in and --out name, looked up once: files appear and go.
struct RunEnds {
  struct In {
    std::string file;
    std::optional<DeviceArguments> device;  // nothing: it is a capture
  };
  struct Out {
    std::string word;              // as it was given
    std::optional<uint16_t> port;  // nothing: all others
    std::string file;
    std::optional<DeviceArguments> device;
  };
  std::vector<In> in;
  std::vector<Out> out;
  std::vector<DeviceArguments> bridge;  // the two of --bridge
};
// Ends with kUsage.
RunEnds run_ends(const RunFlags& o);

// Ends with kUsage.
StandardGraph standard_graph_of(const RunFlags& o, const RunEnds& ends);
// The inputs, by the options that name them.
NamedInputs inputs_of(const RunFlags& o, const RunEnds& ends);
// Adds what the graph reads and writes to `files`, and ends with kUsage where an output is another of them.
void check_standard_files(RunFiles files, const StandardGraph& g);
// Ends with kUsage where a run could not do with this graph what the options ask for.
void check_standard_run(const RunFlags& o, const StandardGraph& g);
// Outputs by port that no next hop of the tables leaves by.
void warn_of_idle_ports(const StandardGraph& g, const TableSet& tables);

// What is wrong with a file that an option names stands there, not in the text that was made of the options.
void name_options(Error& error, const RunFlags& o, const RunEnds& ends);

}  // namespace sluice::app

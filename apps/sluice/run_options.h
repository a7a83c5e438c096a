// The options of `run` and `show plan`.
// host only
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app.h"
#include "composition.h"
#include "config_file.h"
#include "devices.h"
#include "live.h"
#include "port_flags.h"
#include "priorities.h"
#include "verdicts.h"

namespace sluice::app {

struct RunFlags {
  std::string config;  // --config, and what it gave
  ConfiguredOptions configured;
  std::vector<std::string> words;  // FILE.click and NAME=VAL
  std::vector<std::string> maps;
  std::string acl, format = "auto", nat, routes, adjacencies, qos, icmp, policy = "deny", algorithm, route_algorithm,
                   latency_target;
  std::vector<std::string> in, out;
  std::string bridge, bridge_pass = "arp,nd,stp";
  DeviceFlags device;
  bool icmp_denied = false, tiny_fragments = false, print_graph = false, print_plan = false, simulated = false,
       one_by_one = false, tso = false;
  unsigned workers = 1;
  uint32_t batch = 256;  // not asked for: GraphRun::run_graph has others for files, and for frames to a GPU
  uint64_t limit = 0;
  LiveFlags live;
  VerdictFlags followed;
  PriorityFlags priorities;
  PortFlags ports;
  std::function<bool(const char*)> given = [](const char*) { return false; };  // it stands on the command line
};

// The options of a file for --config alone. What is wrong in it is given to `wrong`, and the options are those of the
// rest; without `wrong` it ends as apply_config does.
RunFlags read_run_config(const std::string& file, const std::function<void(Failure& failure)>& wrong = {});
// What both commands take.
void add_run_options(Command sub, RunFlags& o);
// What `run` alone takes.
void add_running_options(Command sub, RunFlags& o);
// The sections of the help, in their order. An option that stands in none is found by a test.
void group_run_options(Command sub);
// --map, which `check` takes, too.
void add_map_option(Command sub, std::vector<std::string>& maps);

// What the options of a run of the configuration `file` ("": the standard graph) say wrong by themselves. Ends with
// kUsage.
void check_run_options(const RunFlags& o, const std::string& file);
// What the command line names besides what a graph reads and writes.
RunFiles files_besides_graph(const RunFlags& o, const std::string& configuration);
// What the command line alone says.
Features features_of(const RunFlags& o);

}  // namespace sluice::app

// sluice run: packets through a graph.  sluice show plan: how it would run.
// host only
#include <memory>

#include "app.h"
#include "config_file.h"
#include "graph_run.h"
#include "live.h"
#include "run_options.h"

namespace sluice::app {

void add_run(Command root) {
  auto o = std::make_shared<RunFlags>();
  auto config = std::make_shared<std::string>();
  auto made = std::make_shared<Command>();
  Command sub = add_subcommand(
      root, "run", "Start here",
      "Runs packets through a graph: a Click file, or the standard graph, in -> header checks -> access list -> "
      "routes -> TTL -> rewrite -> out, whose parts are present if their tables are given. With --acl and without "
      "--routes only the access list applies, and frames leave unchanged; a frame that is not IP, or malformed, "
      "matches "
      "no rule and gets --default. Outputs are written only if the run succeeds.",
      "sluice run --acl edge.acl --routes rib.txt --in a.pcap --out b.pcap\n"
      "sluice run --acl edge.acl --in a.pcap --out b.pcap --verdicts v.txt --dropped d.pcapng\n"
      "sluice run --acl edge.acl --routes rib.txt --in eth0 --in eth1 --out 0=eth0 --out 1=eth1\n"
      "sluice run --bridge eth0,eth1 --acl fw.json\n"
      "sluice run edge.click IN=b.pcap --workers 2 -o json",
      [o, config, made] {
        if (!config->empty()) o->configured = apply_config(*config, *made, o->words);
        o->config = *config;
        return run_graph(*o);
      });
  *made = sub;
  sub->add_option("--config", "FILE", *config,
                  "A TOML file with options of this command, which the command line overrides");
  add_run_options(*sub, *o);
  add_running_options(*sub, *o);
  group_run_options(*sub);
}

void add_show(Command root) {
  Command show =
      add_subcommand(root, "show", "Start here",
                     "Shows the state of a running process: counters, rules, routes, neighbours. 'show plan' "
                     "shows how a graph would run.",
                     "sluice show runtime\nsluice show rules --hits --socket /tmp/sluice.sock\n"
                     "sluice show plan --acl edge.acl --routes rib.txt --in a.pcap --device emu",
                     nullptr);
  show->require_subcommand(1);
  auto o = std::make_shared<RunFlags>();
  o->print_plan = true;
  Command plan = add_subcommand(
      *show, "plan", "Subcommands",
      "How the graph is split into programs, what runs on a device and what is sent to it: the same as run "
      "--print-plan, with\nthe options of run.",
      "sluice show plan edge.click --device cuda --mode persistent\nsluice show plan --routes rib.txt --in a.pcap -o "
      "json",
      [o] { return run_graph(*o); });
  add_run_options(*plan, *o);
  group_run_options(*plan);
  add_live_shows(*show);
}

}  // namespace sluice::app

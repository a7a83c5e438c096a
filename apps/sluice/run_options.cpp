// host only
#include "run_options.h"

#include <CLI/CLI.hpp>

#include <algorithm>

#include "graph/click/config_text.h"
#include "graph/router.h"
#include "inputs.h"
#include "pipeline.h"

namespace sluice::app {
namespace {

// What is wrong with the value of --bridge-pass, as the element says it to which it goes; empty: nothing.
std::string wrong_frame_kinds(std::string kinds) {
  if (!is_closed_config(kinds)) return fmt::format("'{}' is not a list of kinds, such as arp,nd,stp", kinds);
  std::ranges::replace(kinds, ',', ' ');
  const ElementClass* const bridge = registry().find("Bridge");
  const auto wrong = configure(*bridge->make(bridge->name), *bridge, "PASS " + kinds, {});
  if (wrong.empty()) return {};
  const Diagnostic& first = wrong.front();
  return first.expected.empty() ? first.message : fmt::format("{}; kinds are {}", first.message, first.expected);
}

}  // namespace

void add_map_option(Command sub, std::vector<std::string>& maps) {
  sub.add_option("--map", "PORT=KIND:IN[,OUT]", maps,
                 "Captures to use for a device port (FromDPDKDevice, ToDPDKDevice, FromDevice, ToDevice), such as "
                 "dpdk:0=pcap:in.pcap,out.pcap; memory: replays them from memory; without OUT packets are only counted")
      ->take_all();
}

void add_run_options(Command sub, RunFlags& o) {
  sub.add_option("configuration", "FILE [NAME=VALUE...]", o.words,
                 "A Click file ('-': stdin) and NAME=VALUE for its variables");
  add_map_option(sub, o.maps);
  sub.add_option("--acl", "FILE", o.acl, "Access list: rules of any format, or an image");
  add_format_option(sub, o.format, "--acl");
  sub.add_option("--nat", "FILE", o.nat,
                 "Address translation: snat, dnat and static rules, or those of nft and iptables");
  sub.add_option("--routes", "FILE[,FILE]", o.routes,
                 "Route files (text, MRT, or as ip, FRR, BIRD or route print them), comma-separated, or an image");
  sub.add_option("--adjacencies", "FILE", o.adjacencies,
                 "Next hop -> MAC addresses, VLAN, port (default: synthetic ones)");
  sub.add_option("--qos", o.qos,
                 "Egress QoS, driven by packet timestamps; for the grammar see docs/reference/formats.md")
      ->check([](const std::string& file) { return std::string(file.empty() ? "an empty name" : ""); })
      ->type_name("FILE");
  sub.add_option(
         "--in", "PCAP|IF", o.in,
         "Capture to read ('-': stdin; file:NAME where NAME is an interface too), interface, name of --port, or "
         "METHOD:DEVICE to receive from; may be repeated")
      ->take_all();
  sub.add_flag("--tso", o.tso,
               "Captures of --in: an IP length of 0 (packets captured before TSO) means the length of the frame");
  sub.add_option(
         "--out", "[PORT=]PCAP|IF", o.out,
         "Capture to write, or live port to send by, as for --in; PORT=... for one output port, may be repeated "
         "(default: packets are only counted)")
      ->take_all();
  sub.add_option("--bridge", "IF,IF", o.bridge,
                 "In-line firewall: forward packets that --acl permits between two ports, in both directions; ports as "
                 "for --in, or those of --map");
  sub.add_option("--bridge-pass", o.bridge_pass,
                 "Frames that pass a bridge without the access list: arp, nd, stp, lldp, lacp, eapol, llc, EtherTypes "
                 "such as 0x8847, all, none; other frames that are not IP are dropped")
      ->check([](const std::string& kinds) { return wrong_frame_kinds(kinds); })
      ->type_name("KIND[,KIND]")
      ->capture_default_str();
  sub.add_option("--icmp-errors", "SRC4[,SRC6]", o.icmp,
                 "Answer expired, unroutable and too big packets with ICMP errors from these router addresses");
  sub.add_flag("--icmp-denied", o.icmp_denied, "With --icmp-errors: also answer packets that the access list denies");
  sub.add_word("--default", "ACTION", o.policy, "Action for packets that no rule matches: deny or permit",
               {"deny", "permit"});
  sub.add_flag("--tiny-fragments", o.tiny_fragments,
               "Let fragments pass that keep their TCP header from the access list (RFC 1858)");
  sub.add_option("--algorithm", "NAME", o.algorithm, "ACL algorithm for all access lists");
  sub.add_option("--route-algorithm", "A4[,A6]", o.route_algorithm, "Route algorithms for all route tables");
  add_workers_option(sub, o.workers);
  sub.add_number("--batch", "N", o.batch, "Packets per batch, 1 to 8192 (files: 1024; frames to a GPU: 4096)",
                 Range(1u, Batch::kMaxPackets));
  add_latency_target_option(sub, o.latency_target);
  sub.add_option("--limit", "N", o.limit, "Stop after about this many packets");
  o.device.mode = "auto";
  add_device_options(sub, o.device, true, "--frame-memory,--frames");
  o.given = [sub](const char* option) { return sub.count(option) != 0; };
}

void add_running_options(Command sub, RunFlags& o) {
  add_live_options(sub, o.live);
  add_verdict_options(sub, o.followed);
  add_priority_options(sub, o.priorities);
  add_port_options(sub, o.ports);
  sub.add_flag("--print-graph", o.print_graph, "Print the graph as Click text and stop");
  sub.add_flag("--simtime", o.simulated,
               "For a graph with queues, timers or scripts: simulated time, which jumps to the next event");
  sub.add_flag("--packet-scheduler", o.one_by_one,
               "Run any graph in the packet scheduler: one packet at a time on the CPU, so that 'sluice graph' can "
               "call its handlers, and replace it by one with queues");
  sub.add_flag("--print-plan", o.print_plan, "Print how the graph is split into programs and stop");
}

void group_run_options(Command sub) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> groups = {
      {"Input and output",
       {"--in", "--out", "--bridge", "--bridge-pass", "--map", "--tso", "--verdicts", "--dropped", "--limit",
        "--repeat"}},
      {"Tables",
       {"--acl", "--format", "--default", "--tiny-fragments", "--nat", "--routes", "--adjacencies", "--algorithm",
        "--route-algorithm", "--icmp-errors", "--icmp-denied"}},
      {"Workers and batches", {"--workers", "--batch", "--latency-target", "--packet-scheduler", "--simtime"}},
      {"Devices",
       {"--device", "--mode", "--transport", "--flights", "--ring-memory", "--table-memory", "--kernel-times",
        "--records", "--frame-memory", "--threading", "--enter-after", "--leave-after", "--watchdog"}},
      {"Live ports", {"--method", "--port", "--queues", "--promiscuous", "--poll", "--cores", "--ready-file"}},
      {"Classes of service", {"--qos", "--priorities", "--shares", "--chunk", "--chunk-timeout", "--drop-when-full"}},
      {"Running process", {"--control", "--http", "--http-token", "--wait", "--max-memory"}},
      {"Report",
       {"--output", "--quiet", "--hits", "--top-rules", "--dscp", "--log-rate", "--print-graph", "--print-plan"}},
      {"Other", {"--help", "--help-all", "--config", "--user"}}};
  sub.first_help({{"Input", {"--in", "--out", "--bridge", "--config", "--limit"}},
                  {"Live", {"--control", "--http", "--method", "--workers"}},
                  {"Tables", {"--acl", "--nat", "--routes", "--adjacencies", "--default"}},
                  {"Report", {"--output", "--quiet", "--hits", "--top-rules", "--verdicts", "--dropped"}}},
                 "All options, also those of devices, batches, ports and priorities");
  for (const auto& [group, names] : groups) {
    for (const char* name : names) {
      if (Option option = sub.find(name)) option.group(group);
    }
  }
}

namespace {

void check_bridge_options(const RunFlags& o) {
  if (o.acl.empty())
    fail(Exit::kUsage, "--bridge needs --acl", "a list of the one rule 'permit ip from any to any' permits all");
  for (const auto& [option, given] : {std::pair{"--in", !o.in.empty()},
                                      {"--out", !o.out.empty()},
                                      {"--routes", !o.routes.empty()},
                                      {"--adjacencies", !o.adjacencies.empty()},
                                      {"--nat", !o.nat.empty()},
                                      {"--icmp-errors", !o.icmp.empty()},
                                      {"--tso", o.tso},
                                      {"--repeat", o.live.repeat}}) {
    if (given)
      fail(Exit::kUsage, fmt::format("--bridge and {} cannot be given together", option),
           "a bridge receives and sends by its two ports, and does not route");
  }
}

}  // namespace

void check_run_options(const RunFlags& o, const std::string& file) {
  const bool standard = file.empty();
  const bool parts = !o.acl.empty() || !o.nat.empty() || !o.routes.empty() || !o.adjacencies.empty() || !o.in.empty() ||
                     !o.out.empty() || !o.icmp.empty() || !o.bridge.empty();
  if (!standard && parts)
    fail(Exit::kUsage,
         fmt::format("'{}' is a whole configuration; --acl, --routes, --in and the like are for the standard graph",
                     file),
         "write them in the file, or leave the file out");
  if (!o.bridge.empty()) {
    if (standard) check_bridge_options(o);
  } else if (o.bridge_pass != RunFlags().bridge_pass) {
    fail(Exit::kUsage, "--bridge-pass needs --bridge");
  } else if (standard && o.in.empty())
    fail(Exit::kUsage, parts ? "--in is missing" : "neither a configuration nor --in is given",
         "see 'sluice run --help'");
  if (!o.adjacencies.empty() && o.routes.empty()) fail(Exit::kUsage, "--adjacencies needs --routes");
  if (!standard && o.live.repeat)
    fail(Exit::kUsage, "--repeat is for the standard graph",
         fmt::format("write FromMemory(FILE, LIMIT N) in '{}'", file));
  if (!standard && o.tso)
    fail(Exit::kUsage, "--tso is for the standard graph", fmt::format("write FromDump(FILE, TSO true) in '{}'", file));
  if (!o.icmp.empty() && o.routes.empty())
    fail(Exit::kUsage, "--icmp-errors needs --routes", "the errors are routed like any packet");
  if (!o.priorities.on) return;
  // Ends here where they are wrong; how many shares the classes of a file want is known when it has been read.
  (void)priority_options(o.priorities, o.qos.empty() ? kDefaultQosClasses : o.priorities.shares.size());
}

RunFiles files_besides_graph(const RunFlags& o, const std::string& configuration) {
  RunFiles files = o.print_graph || o.print_plan ? RunFiles() : command_files();
  files.input("the configuration", configuration);
  files.input("--qos", o.qos);
  files.input("--http-token", o.live.http_token);
  files.output("--hits", o.live.hits);
  files.output("--verdicts", o.followed.verdicts);
  files.output("--dropped", o.followed.dropped);
  if (o.live.has_socket() && o.live.control != "auto") files.made("--control", o.live.control);
  return files;
}

Features features_of(const RunFlags& o) {
  Features f;
  f.add(Feature::kWorkers, o.workers > 1);
  f.add(Feature::kPriorities, o.priorities.on);
  f.add(Feature::kQos, !o.qos.empty());
  f.add(Feature::kControl, o.live.serves());
  f.add(Feature::kHits, !o.live.hits.empty() || o.live.top != 0);
  f.add(Feature::kFollow, o.followed.any());
  f.add(Feature::kLatencyTarget, latency_target_ns(o.latency_target) != 0);
  f.add(Feature::kWait, o.live.wait);
  f.add(Feature::kMaxMemory, o.live.max_memory != 0);
  f.add(Feature::kLimit, o.limit != 0);
  f.add(Feature::kSimulated, o.simulated);
  f.add(Feature::kOneByOne, o.one_by_one);
  return f;
}

RunFlags read_run_config(const std::string& file, const std::function<void(Failure& failure)>& wrong) {
  CLI::App app;
  Command sub = Command(app).add_subcommand("run", "");
  RunFlags o;
  add_run_options(sub, o);
  add_running_options(sub, o);
  group_run_options(sub);
  o.config = file;
  try {
    o.configured = apply_config(file, sub, o.words);
  } catch (Failure& failure) {
    if (!wrong || failure.code != Exit::kBadInput) throw;
    wrong(failure);
  }
  // The command ends with this function.
  o.given = [](const char*) { return false; };
  return o;
}

}  // namespace sluice::app

// host only
#include "run_standard.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/input_file.h"
#include "control/command_text.h"
#include "formats/rule_files.h"
#include "graph/click/config_text.h"
#include "net/text.h"
#include "tables/adjacency/adjacency_model.h"

namespace sluice::app {
namespace {

void add_icmp_errors(const RunFlags& o, StandardGraph& g) {
  if (o.icmp.empty()) return;
  g.icmp_errors = true;
  g.icmp_for_denied = o.icmp_denied;
  for (const std::string& word : split_commas(o.icmp)) {
    if (!parse_ip(word))
      fail(Exit::kUsage, fmt::format("--icmp-errors: '{}' is not an address", word),
           "give the router's own IPv4 address, IPv6 address, or both with a comma");
    g.icmp_sources.push_back(word);
  }
}

// Outputs by port want packets that leave by it. Before anything is read.
void check_made_up_ports(const RunFlags& o, const StandardGraph& g) {
  if (!g.adjacencies.empty() || g.routes.empty() || o.live.has_socket() || !g.out_devices.empty()) return;
  for (const auto& [port, file] : g.port_out) {
    if (port == 0) continue;
    fail(Exit::kUsage, fmt::format("--out {}={}: without --adjacencies every packet leaves by port 0", port, file),
         "give --adjacencies, which have the port of each next hop, or one --out FILE");
  }
}

// The kernel has no neighbours there.
void check_neighbours(const RunFlags& o, const StandardGraph& g) {
  if (g.routes.empty() || !o.adjacencies.empty()) return;
  for (const auto& [name, arguments] : g.out_devices) {
    if (!arguments.ends_with("METHOD dpdk") && arguments.find("METHOD dpdk,") == std::string::npos &&
        !arguments.ends_with("METHOD tap") && arguments.find("METHOD tap,") == std::string::npos)
      continue;
    fail(Exit::kUsage,
         fmt::format("--out {}: without --adjacencies next hops at a TAP or DPDK port have no link-layer addresses",
                     name),
         "give --adjacencies FILE: NEXTHOP DSTMAC SRCMAC PORT");
  }
}

// An option with what it names: "" where that cannot be said.
struct NamedOption {
  std::string option, value;
};

// One of the files that an option names: the one that the message or the line is about, else all of them.
NamedOption one_of(const char* option, const std::vector<std::string>& files, const Diagnostic& d) {
  NamedOption named{option, {}};
  for (const std::string& path : files) {
    if (files.size() == 1 || d.message.starts_with(path + ": ") ||
        d.source_line.find("(" + path + ")") != std::string::npos)
      named.value = path;
  }
  if (named.value.empty()) named.value = fmt::format("{}", fmt::join(files, ","));
  return named;
}

// The option that made a line of the standard graph.
NamedOption option_of(const Diagnostic& d, const RunFlags& o, const RunEnds& ends) {
  const std::string& line = d.source_line;
  if (line.starts_with("in") && line.find(" :: From") != std::string::npos)
    return o.bridge.empty() ? one_of("--in", o.in, d) : NamedOption{"--bridge", o.bridge};
  if (line.starts_with("AclTable(")) return one_of("--acl", {o.acl}, d);
  if (line.starts_with("NatTable(") || line.find(":: ConnTrack(") != std::string::npos)
    return one_of("--nat", {o.nat}, d);
  if (line.starts_with("RouteTable(")) {
    std::vector<std::string> paths;
    for (const std::string& file : split_route_files(o.routes)) paths.push_back(path_of_route_file(file));
    return one_of("--routes", paths, d);
  }
  if (line.starts_with("AdjacencyTable(")) return one_of("--adjacencies", split_commas(o.adjacencies), d);
  NamedOption named;
  if (line.find("ToDump(") == std::string::npos) return named;
  named.option = "--out";
  for (const RunEnds::Out& out : ends.out) {
    const std::string element = out.port ? fmt::format("out{} :: ", *out.port) : "out :: ";
    if (line.find(element) != std::string::npos) named.value = out.word;
  }
  return named;
}

// The ports of --bridge. Ends with kUsage.
std::vector<DeviceArguments> bridge_ends(const RunFlags& o) {
  const std::vector<std::string> names = split_commas(o.bridge);
  if (names.size() != 2 || names[0] == names[1] || names[0].empty() || names[1].empty())
    fail(Exit::kUsage, fmt::format("--bridge {}: not two ports", o.bridge), "write it as --bridge eth0,eth1");
  std::vector<DeviceArguments> ends;
  for (const std::string& name : names) {
    const bool mapped = std::ranges::any_of(
        o.maps, [&](const std::string& map) { return map.starts_with(fmt::format("device:{}=", name)); });
    auto port = mapped ? DeviceArguments{quote(name), quote(name)} : bridge_arguments(name, o.ports);
    if (!port) {
      const std::string meant = interface_like(name);
      fail(Exit::kIo, fmt::format("--bridge {}: no interface has the name '{}'", o.bridge, name),
           meant.empty() ? fmt::format("captures take its place by --map device:{}=pcap:IN,OUT", name)
                         : fmt::format("did you mean '{}'?", meant));
    }
    ends.push_back(std::move(*port));
  }
  return ends;
}

// file:NAME is a file whatever NAME is.
constexpr std::string_view kFilePrefix = "file:";
bool is_bare(const std::string& word) {
  return word != "-" && !word.empty() && word.find_first_of("/.") == std::string::npos;
}

// Whether rules look at the state of connections, as far as that is seen before the tables are loaded: a pipe is read
// once. Where it is not seen, the reader of the table refuses such rules.
bool looks_at_state(const std::string& path, const std::string& format) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return false;
  auto file = InputFile::open(path);
  if (!file.ok()) return false;
  const auto text = file->table();
  auto choice = parse_rule_format(format);
  // Most lists have no such word, and include no others.
  if (!text.ok() || !choice.ok()) return false;
  if (text->find("state") == std::string::npos && text->find("include") == std::string::npos) return false;
  bool stateful = false;
  choice->state = ConnState::kNew;
  choice->stateful = &stateful;
  (void)parse_rules(*text, path, *choice);
  return stateful;
}

}  // namespace

RunEnds run_ends(const RunFlags& o) {
  RunEnds ends;
  if (!o.bridge.empty()) ends.bridge = bridge_ends(o);
  const auto find_end = [&o](std::string& word) -> std::optional<DeviceArguments> {
    if (!word.starts_with(kFilePrefix)) return device_arguments(word, o.ports);
    word.erase(0, kFilePrefix.size());
    return std::nullopt;
  };
  bool live = false;
  for (std::string in : o.in) {
    const bool file = in.starts_with(kFilePrefix);
    auto device = find_end(in);
    ends.in.push_back({in, std::move(device)});
    live |= ends.in.back().device.has_value();
    if (ends.in.back().device || file) continue;
    if (const std::string meant = interface_like(in); !meant.empty())
      fail(Exit::kIo, fmt::format("--in {}: no file and no interface has this name", in),
           fmt::format("did you mean '{}'?", meant));
  }
  const std::string* for_all = nullptr;
  for (const std::string& word : o.out) {
    auto parsed = parse_port_file(word);
    if (!parsed.ok()) fail(Exit::kUsage, fmt::format("--out: {}", parsed.error().message));
    const bool file = parsed->file.starts_with(kFilePrefix);
    auto device = find_end(parsed->file);
    const std::string meant = device || file ? "" : interface_like(parsed->file);
    // A slip of the pen is not to become a capture where packets of interfaces are to leave.
    if (live && !device && !file && is_bare(parsed->file) && ::access(parsed->file.c_str(), F_OK) != 0)
      fail(Exit::kIo, fmt::format("--out {}: no interface has this name", word),
           fmt::format("{}a capture file has a '/', an extension or 'file:' in its name: ./{}",
                       meant.empty() ? "" : fmt::format("did you mean '{}'? ", meant), parsed->file));
    if (!meant.empty())
      warn(fmt::format("--out {}: no interface has this name, so that it becomes a capture file; did you mean '{}'?",
                       word, meant));
    if (!parsed->port) {
      if (for_all != nullptr && !for_all->empty())
        fail(Exit::kUsage, fmt::format("--out: both '{}' and '{}' are for all ports", *for_all, word),
             "write PORT=FILE for one port");
      for_all = &word;
    }
    ends.out.push_back({word, parsed->port, std::move(parsed->file), std::move(device)});
  }
  return ends;
}

StandardGraph standard_graph_of(const RunFlags& o, const RunEnds& ends) {
  StandardGraph g;
  g.acl = o.acl;
  g.acl_format = o.format;
  g.stateful = looks_at_state(o.acl, o.format);
  g.nat = o.nat;
  g.routes = split_route_files(o.routes);
  g.adjacencies = split_commas(o.adjacencies);
  for (const RunEnds::In& in : ends.in) {
    if (in.device) {
      g.in_devices.push_back(in.device->receive);
    } else if (g.in.empty()) {
      g.in = in.file;
    } else {
      g.more_in.push_back(in.file);
    }
  }
  for (const DeviceArguments& port : ends.bridge) g.bridge.push_back({port.receive, port.send});
  g.bridge_pass = o.bridge_pass;
  std::ranges::replace(g.bridge_pass, ',', ' ');
  // More than any run can play.
  constexpr uint64_t kForEver = 1'000'000'000'000'000'000;
  g.in_memory = o.live.repeat;
  if (o.live.repeat) g.limit = o.limit != 0 ? o.limit : kForEver;
  g.permit_by_default = o.policy == "permit";
  g.tiny_fragments = o.tiny_fragments;
  g.tso = o.tso;
  for (const RunEnds::Out& out : ends.out) {
    if (out.device) g.out_devices.emplace(out.file, out.device->send);
    if (out.port) {
      g.port_out.emplace_back(*out.port, out.file);
    } else {
      g.out = out.file;
    }
  }
  add_icmp_errors(o, g);
  return g;
}

NamedInputs inputs_of(const RunFlags& o, const RunEnds& ends) {
  NamedInputs named = {{"--acl", o.acl}, {"--nat", o.nat}, {"--qos", o.qos}};
  for (const RunEnds::In& in : ends.in) {
    if (!in.device) named.emplace_back("--in", in.file);
  }
  add_route_inputs(named, "--routes", split_route_files(o.routes));
  for (const std::string& file : split_commas(o.adjacencies)) named.emplace_back("--adjacencies", file);
  return named;
}

void check_standard_files(RunFiles files, const StandardGraph& g) {
  files.input("--acl", g.acl);
  files.input("--nat", g.nat);
  for (const std::string& file : g.routes) files.input("--routes", path_of_route_file(file));
  for (const std::string& file : g.adjacencies) files.input("--adjacencies", file);
  files.input("--in", g.in);
  for (const std::string& file : g.more_in) files.input("--in", file);
  const auto output = [&](const std::string& file) {
    if (!g.out_devices.contains(file)) files.output("--out", file);
  };
  output(g.out);
  for (const auto& [port, file] : g.port_out) output(file);
  check_files(files);
}

void check_standard_run(const RunFlags& o, const StandardGraph& g) {
  check_made_up_ports(o, g);
  check_neighbours(o, g);
  if (o.live.repeat && !g.in_devices.empty())
    fail(Exit::kUsage, "--repeat replays captures: --in has a live port", "leave --repeat out");
}

void warn_of_idle_ports(const StandardGraph& g, const TableSet& tables) {
  if (g.port_out.empty()) return;
  std::set<uint16_t> ports;
  for (const auto& [name, image] : tables.adjacencies) {
    const AdjacencyView view = need(open_adjacencies(*image));
    for (const Adjacency& a : view.adjacencies()) ports.insert(a.port);
  }
  for (const auto& [port, file] : g.port_out) {
    if (!ports.contains(port))
      warn(fmt::format("--out {}={}: no next hop of the routes leaves by port {}{}", port, file, port,
                       g.out_devices.empty() ? ""
                                             : "; next hops at an interface are addresses of its network, or 'dev' and "
                                               "its name"));
  }
}

void name_options(Error& error, const RunFlags& o, const RunEnds& ends) {
  for (Diagnostic& d : error.diagnostics) {
    if (d.file != kStandardGraph) continue;
    const auto [option, value] = option_of(d, o, ends);
    if (value.empty()) continue;
    if (const std::string path = value.substr(value.rfind('=') + 1); d.message.starts_with(path + ": "))
      d.message.erase(0, path.size() + 2);
    d.file = option + " " + value;
    d.line = d.column = 0;
    d.source_line.clear();
  }
}

}  // namespace sluice::app

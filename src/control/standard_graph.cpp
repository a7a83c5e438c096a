// host only
#include "control/standard_graph.h"

#include <fmt/format.h>

#include <string_view>

#include "formats/conn_state.h"
#include "graph/click/config_text.h"

namespace sluice {
namespace {

// File names are quoted only where they must be.
std::string file_list(const std::vector<std::string>& files) {
  std::string text;
  for (const std::string& file : files) text += ", FILE " + quote(file);
  return text;
}

bool tracks(const StandardGraph& g) {
  return g.stateful || !g.nat.empty();
}

// What few packets need: fragments, options, ICMP errors. They meet stages of their own on their way out, so that the
// others stay one program from their arrival to their sink.
std::string slow_path_text(const StandardGraph& g, const std::string& ports) {
  std::string t = "\n// The slow path.\nslow :: AdjacencyRewrite(TABLE adj) -> ";
  if (!g.nat.empty()) {
    t += "nat_source;\n";
  } else if (ports.empty()) {
    t += "out;\n";
  } else {
    t += fmt::format("slow_ports :: PortSwitch({});\n", ports);
    for (size_t i = 0; i < g.port_out.size(); ++i)
      t += fmt::format("slow_ports[{}] -> out{};\n", i, g.port_out[i].first);
    t += fmt::format("slow_ports[{}] -> out;\n", g.port_out.size());
  }
  t += "fragment :: IPFragmenter -> slow;\nrewrite[1] -> fragment;\nslow[1] -> fragment;\n";
  if (!g.icmp_errors) return t;
  std::string sources;
  std::string first4;
  for (const std::string& source : g.icmp_sources) {
    sources += (sources.empty() ? "" : " ") + source;
    if (first4.empty() && source.find(':') == std::string::npos) first4 = source;
  }
  t += fmt::format("icmp :: ICMPError({}) -> icmp_route :: IPRoute(TABLE fib) -> slow;\n", sources);
  if (!first4.empty()) {
    t += fmt::format("options :: IPGWOptions({}) -> slow;\nrewrite[2] -> options;\noptions[1] -> icmp;\n", first4);
  }
  t += "ttl[1] -> icmp;\nroute[1] -> icmp;\nfragment[1] -> icmp;\n";
  if (!g.icmp_for_denied || g.acl.empty()) return t;
  if (!g.stateful) return t + "acl_check[1] -> icmp;\n";
  for (const auto& state : kConnStates) t += fmt::format("{}_check[1] -> icmp;\n", state.name);
  return t;
}

// The list alone judges, and frames leave as they came.
std::string transparent_input(const StandardGraph& g) {
  return fmt::format(
      "IPInput(MARTIANS false, SOURCE_ROUTES true, CHECKSUM false, MULTICAST true, LINK_BROADCAST true, PADDING "
      "true{})",
      g.tiny_fragments ? ", TINY_FRAGMENTS true" : "");
}

std::string list_of(const StandardGraph& g, std::string_view name, std::string_view table = "acl") {
  return fmt::format("{} :: ACL(TABLE {}{})", name, table, g.permit_by_default ? ", DEFAULT permit" : "");
}

std::string table_of(const StandardGraph& g, const std::string& name, std::string_view state) {
  std::string t = fmt::format("AclTable({}, FILE {}", name, quote(g.acl));
  const std::string format = g.acl_format.empty() ? "auto" : g.acl_format;
  if (!state.empty()) {
    t += fmt::format(", FORMAT {}@{}", format, state);
  } else if (format != "auto") {
    t += ", FORMAT " + format;
  }
  if (!g.acl_algorithm.empty()) t += ", ALGORITHM " + g.acl_algorithm;
  return t + ");\n";
}

// "0=eth0 1=eth1": what NAT rules know outputs by.
std::string outputs_text(const StandardGraph& g) {
  std::string t;
  const auto add = [&](unsigned port, const std::string& out) {
    t += fmt::format("{}{}{}", t.empty() ? "" : " ", port, g.out_devices.contains(out) ? "=" + out : "");
  };
  for (const auto& [port, out] : g.port_out) add(port, out);
  if (g.port_out.empty()) add(0, g.out);
  return t;
}

std::string tracker_text(const StandardGraph& g) {
  std::string arguments = g.stateful ? "acl_new" : g.acl.empty() ? "" : "acl";
  if (!g.nat.empty()) {
    arguments += fmt::format("{}NAT nat", arguments.empty() ? "" : ", ");
    if (g.permit_by_default && !g.acl.empty()) arguments += ", DEFAULT permit";
    if (!g.routes.empty()) arguments += fmt::format(", ROUTES fib, ADJACENCIES adj, OUTPUTS {}", outputs_text(g));
  }
  return fmt::format("connections :: ConnTrack({})", arguments);
}

// Of packets in other states than new, which stand in the graph's main line: to where that goes on.
std::string states_text(const StandardGraph& g, std::string_view next) {
  std::string t = "\n// Packets by the state of their connection.\n";
  for (const auto& state : kConnStates) {
    if (state.value == 0) continue;
    if (g.stateful) {
      t += fmt::format("connections[{}] -> {} -> {};\n", state.value,
                       list_of(g, fmt::format("{}_check", state.name), fmt::format("acl_{}", state.name)), next);
    } else {
      t += fmt::format("connections[{}] -> {};\n", state.value, g.acl.empty() ? next : "acl_check");
    }
  }
  return t;
}

// Both ways, each with stages of its own, so that packets stay in one program from their arrival to their sink. But
// connections are those of both ways: then packets of both meet one ConnTrack, and leave by the way they came.
std::string bridge_text(const StandardGraph& g) {
  std::string t;
  if (g.stateful)
    t += tracker_text(g) + "\n   -> " + list_of(g, "new_check", "acl_new") + "\n   -> way :: PaintSwitch;\n";
  for (const unsigned from : {1u, 2u}) {
    const unsigned to = 3 - from;
    t += fmt::format("in{0} :: FromDevice({1})\n   -> input{0} :: {2}\n   -> bridge{0} :: Bridge(PASS {3})\n   -> ",
                     from, g.bridge[from - 1].receive, transparent_input(g), g.bridge_pass);
    t += g.stateful ? fmt::format("Paint({0}) -> connections;\nway[{0}]", from - 1)
                    : list_of(g, fmt::format("acl{}", from)) + "\n  ";
    t += fmt::format(" -> out{1} :: ToDevice({2});\ninput{0}[1] -> bridge{0};\nbridge{0}[1] -> out{1};\n", from, to,
                     g.bridge[to - 1].send);
  }
  return g.stateful ? t + states_text(g, "way") : t;
}

}  // namespace

bool filters_only(const StandardGraph& g) {
  return !g.acl.empty() && g.routes.empty();
}

Result<std::string> standard_graph_text(const StandardGraph& g) {
  if (g.routes.empty() && !g.port_out.empty())
    return Error("outputs by port need routes", "give --routes, or one --out FILE");
  if (g.routes.empty() && g.icmp_errors)
    return Error("ICMP errors need routes: they are routed like any packet", "give --routes");
  if (!g.bridge.empty() && !g.nat.empty())
    return Error("a bridge translates no addresses: it has none", "give --routes, --in and --out");
  if (g.routes.empty() && !g.adjacencies.empty()) return Error("adjacencies need routes", "give --routes");
  if (g.port_out.size() > 14)
    return Error(fmt::format("{} outputs by port; at most 14 are possible", g.port_out.size()),
                 "join some, or write a graph of your own");
  std::string t;
  if (!g.acl.empty()) {
    if (!g.stateful) {
      t += table_of(g, "acl", "");
    } else {
      for (const auto& state : kConnStates) t += table_of(g, fmt::format("acl_{}", state.name), state.name);
    }
  }
  if (!g.nat.empty()) t += fmt::format("NatTable(nat, FILE {});\n", quote(g.nat));
  if (!g.routes.empty()) {
    t += "RouteTable(fib" + file_list(g.routes);
    if (!g.route_algorithm.empty()) t += ", ALGORITHM " + g.route_algorithm;
    if (!g.route_algorithm6.empty()) t += ", ALGORITHM6 " + g.route_algorithm6;
    t += ");\n";
    t += "AdjacencyTable(adj" + file_list(g.adjacencies) + ", ROUTES fib" +
         (g.out_devices.empty() ? "" : ", NEIGHBOURS true") + ");\n";
  }
  if (!t.empty()) t += "\n";
  if (!g.bridge.empty()) return t + bridge_text(g);
  std::vector<std::string> sources;
  const auto add_source = [&](const std::string& what) {
    sources.push_back(sources.empty() ? "in" : fmt::format("in{}", sources.size() + 1));
    t += fmt::format("{} :: {};\n", sources.back(), what);
  };
  const auto add_capture = [&](const std::string& path) {
    add_source(fmt::format("{}({}{}{})", g.in_memory ? "FromMemory" : "FromDump", quote(path),
                           g.limit != 0 ? fmt::format(", LIMIT {}", g.limit) : "", g.tso ? ", TSO true" : ""));
  };
  if (!g.in.empty()) add_capture(g.in);
  for (const std::string& path : g.more_in) add_capture(path);
  for (const std::string& device : g.in_devices) add_source(fmt::format("FromDevice({})", device));
  std::string chain = "in -> input :: ";
  chain += filters_only(g) ? transparent_input(g) : g.tiny_fragments ? "IPInput(TINY_FRAGMENTS true)" : "IPInput";
  if (tracks(g)) chain += "\n   -> " + tracker_text(g);
  if (!g.acl.empty()) chain += "\n   -> " + (g.stateful ? list_of(g, "new_check", "acl_new") : list_of(g, "acl_check"));
  if (!g.routes.empty()) {
    chain += "\n   -> route :: IPRoute(TABLE fib)\n   -> ttl :: DecIPTTL\n   -> rewrite :: AdjacencyRewrite(TABLE adj)";
  }
  if (!g.nat.empty()) chain += "\n   -> nat_source :: NatSource";
  const auto sink_of = [&](const std::string& out) {
    const auto device = g.out_devices.find(out);
    return device != g.out_devices.end() ? fmt::format("ToDevice({})", device->second)
                                         : fmt::format("ToDump({})", quote(out));
  };
  const std::string sink = g.out.empty() ? "ToMemory" : sink_of(g.out);
  std::string ports;
  for (const auto& [port, file] : g.port_out) ports += fmt::format("{}{}", ports.empty() ? "" : ", ", port);
  if (g.port_out.empty()) {
    t += chain + "\n   -> out :: " + sink + ";\n";
  } else {
    t += chain + fmt::format("\n   -> ports :: PortSwitch({});\n", ports);
    for (size_t i = 0; i < g.port_out.size(); ++i) {
      t += fmt::format("ports[{}] -> out{} :: {};\n", i, g.port_out[i].first, sink_of(g.port_out[i].second));
    }
    t += fmt::format("ports[{}] -> out :: {};\n", g.port_out.size(), sink);
  }
  for (size_t i = 1; i < sources.size(); ++i) t += fmt::format("{} -> input;\n", sources[i]);
  // What is no IP packet, or a damaged one, matches no rule: the default decides.
  if (filters_only(g)) t += tracks(g) ? "input[1] -> connections;\n" : "input[1] -> acl_check;\n";
  if (tracks(g)) t += states_text(g, !g.routes.empty() ? "route" : g.nat.empty() ? "out" : "nat_source");
  if (!g.routes.empty()) t += slow_path_text(g, ports);
  return t;
}

}  // namespace sluice

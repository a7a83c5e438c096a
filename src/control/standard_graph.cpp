// host only
#include "control/standard_graph.h"

#include <fmt/format.h>

#include "graph/click/config_text.h"

namespace sluice {
namespace {

// File names are quoted only where they must be.
std::string file_list(const std::vector<std::string>& files) {
  std::string text;
  for (const std::string& file : files) text += ", FILE " + quote(file);
  return text;
}

}  // namespace

Result<std::string> standard_graph_text(const StandardGraph& g) {
  if (g.routes.empty() && !g.port_out.empty())
    return Error("outputs by port need routes", "give --routes, or one --out FILE");
  if (g.routes.empty() && g.icmp_errors)
    return Error("ICMP errors need routes: they are routed like any packet", "give --routes");
  if (g.routes.empty() && !g.adjacencies.empty()) return Error("adjacencies need routes", "give --routes");
  if (g.port_out.size() > 14)
    return Error(fmt::format("{} outputs by port; at most 14 are possible", g.port_out.size()),
                 "join some, or write a graph of your own");
  std::string t;
  if (!g.acl.empty()) {
    t += fmt::format("AclTable(acl, FILE {}", quote(g.acl));
    if (g.acl_format != "auto" && !g.acl_format.empty()) t += ", FORMAT " + g.acl_format;
    if (!g.acl_algorithm.empty()) t += ", ALGORITHM " + g.acl_algorithm;
    t += ");\n";
  }
  if (!g.routes.empty()) {
    t += "RouteTable(fib" + file_list(g.routes);
    if (!g.route_algorithm.empty()) t += ", ALGORITHM " + g.route_algorithm;
    if (!g.route_algorithm6.empty()) t += ", ALGORITHM6 " + g.route_algorithm6;
    t += ");\n";
    t += "AdjacencyTable(adj" + file_list(g.adjacencies) + ", ROUTES fib);\n";
  }
  if (!t.empty()) t += "\n";
  t += fmt::format("in :: {}({}{});\n", g.in_memory ? "FromMemory" : "FromDump", quote(g.in),
                   g.limit != 0 ? fmt::format(", LIMIT {}", g.limit) : "");
  std::string chain = "in -> input :: IPInput";
  if (!g.acl.empty())
    chain += fmt::format("\n   -> acl_check :: ACL(TABLE acl{})", g.permit_by_default ? ", DEFAULT permit" : "");
  if (!g.routes.empty()) {
    chain += "\n   -> route :: IPRoute(TABLE fib)\n   -> ttl :: DecIPTTL\n   -> rewrite :: AdjacencyRewrite(TABLE adj)";
  }
  std::string sink = g.out.empty() ? "ToMemory" : fmt::format("ToDump({})", quote(g.out));
  if (g.port_out.empty()) {
    t += chain + "\n   -> out :: " + sink + ";\n";
  } else {
    std::string ports;
    for (const auto& [port, file] : g.port_out) ports += fmt::format("{}{}", ports.empty() ? "" : ", ", port);
    t += chain + fmt::format("\n   -> ports :: PortSwitch({});\n", ports);
    for (size_t i = 0; i < g.port_out.size(); ++i) {
      t += fmt::format("ports[{}] -> out{} :: ToDump({});\n", i, g.port_out[i].first, quote(g.port_out[i].second));
    }
    t += fmt::format("ports[{}] -> out :: {};\n", g.port_out.size(), sink);
  }
  if (g.icmp_errors) {
    std::string sources;
    for (const std::string& source : g.icmp_sources) sources += (sources.empty() ? "" : " ") + source;
    t += fmt::format("\nicmp :: ICMPError({});\n", sources);
    t += "ttl[1] -> icmp;\nroute[1] -> icmp;\nrewrite[1] -> icmp;\n";
    if (g.icmp_for_denied && !g.acl.empty()) t += "acl_check[1] -> icmp;\n";
    t += "icmp -> route;\n";
  }
  return t;
}

}  // namespace sluice

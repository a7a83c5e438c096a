// host only
#include "elements/stage_element.h"
#include "elements/table_use.h"
#include "graph/router.h"

namespace sluice {
namespace {

class AclTable final : public DeclaredTable {
 public:
  AclTable() : DeclaredTable(TableType::kAcl) {}
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    DeclaredTable::configure(arguments, diagnostics);
    table_.format = acl_format(arguments, diagnostics);
    table_.algorithm = arguments.get_string("ALGORITHM");
  }
};

class RouteTable final : public DeclaredTable {
 public:
  RouteTable() : DeclaredTable(TableType::kRoutes) {}
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    DeclaredTable::configure(arguments, diagnostics);
    table_.algorithm = arguments.get_string("ALGORITHM");
    table_.algorithm6 = arguments.get_string("ALGORITHM6");
  }
};

class AdjacencyTable final : public DeclaredTable {
 public:
  AdjacencyTable() : DeclaredTable(TableType::kAdjacency) {}
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    DeclaredTable::configure(arguments, diagnostics);
    table_.routes = arguments.get_string("ROUTES");
    table_.neighbours = arguments.get_bool("NEIGHBOURS");
  }
};

}  // namespace

void register_tables(Registry& registry) {
  const ArgumentSpec name = table_name_argument();
  ElementClass acl{.name = "AclTable", .group = "Tables", .summary = "declares an access list"};
  acl.description =
      "Rules in any format (native, ClassBench, VPP, iptables-save, nft -j), plain or compressed. Several files are "
      "read one after the other, as one list. A compiled image must be the only file.";
  acl.arguments = {name,
                   {.name = "FILE",
                    .kind = ArgumentKind::kFilename,
                    .mandatory = true,
                    .repeated = true,
                    .help = "rules, or a compiled image"},
                   acl_format_argument(),
                   acl_algorithm_argument()};
  acl.inputs = acl.outputs = {0, 0};
  acl.example = "AclTable(edge, FILE edge.acl); in -> IPInput -> ACL(edge) -> out;";
  acl.make = make_element<AclTable>();
  registry.add(std::move(acl));

  ElementClass routes{.name = "RouteTable", .group = "Tables", .summary = "declares a route table, IPv4 and IPv6"};
  routes.description =
      "Route files: text, MRT, or as ip, FRR, BIRD or route print them; plain or compressed. A file name may be "
      "followed by ,source=NAME and ,preference=N (then "
      "quote the whole): of two sources' routes for one prefix the one with the lower preference wins, then with the "
      "lower metric. Defaults: source 'static' and preference 1 for text, 'bgp' and 20 for MRT; within a source the "
      "later route wins. Of an MRT dump the best path of each prefix is used (RFC 4271), or those of one peer with "
      ",peer=ADDRESS, ,peer=ASn or ,peer=N after the name. A compiled image must be the only file.";
  routes.arguments = {name,
                      {.name = "FILE",
                       .kind = ArgumentKind::kFilename,
                       .mandatory = true,
                       .repeated = true,
                       .help = "routes, or a compiled image"},
                      route_algorithm_argument(),
                      route_algorithm6_argument()};
  routes.inputs = routes.outputs = {0, 0};
  routes.example = "RouteTable(fib, FILE v4.txt, FILE v6.txt); in -> IPInput -> IPRoute(fib) -> out;";
  routes.make = make_element<RouteTable>();
  registry.add(std::move(routes));

  ElementClass adjacency{
      .name = "AdjacencyTable", .group = "Tables", .summary = "declares the adjacencies of a route table's next hops"};
  adjacency.description =
      "Next hops are neighbours, groups of others (optionally resilient), words such as unreachable, or addresses that "
      "the routes lead to. With NEIGHBOURS true the files need not name those that are addresses of a network at a "
      "live "
      "port of the graph, addresses with its name (fe80::1%eth0), or its name alone: their link-layer addresses are "
      "those of the kernel's neighbour table, during a run. Else without FILE every next hop gets synthetic addresses "
      "and port 0, for demonstrations and benchmarks.";
  adjacency.arguments = {
      name,
      {.name = "FILE", .kind = ArgumentKind::kFilename, .repeated = true, .help = "adjacencies, or a compiled image"},
      {.name = "ROUTES", .kind = ArgumentKind::kString, .mandatory = true, .help = "the name of the RouteTable"},
      bool_argument("NEIGHBOURS", "false", "next hops at live ports are found in the kernel's neighbour tables")};
  adjacency.inputs = adjacency.outputs = {0, 0};
  adjacency.example =
      "AdjacencyTable(adj, FILE neighbours.txt, ROUTES fib); in -> IPInput -> IPRoute(fib) -> AdjacencyRewrite(adj) -> "
      "out;";
  adjacency.make = make_element<AdjacencyTable>();
  registry.add(std::move(adjacency));
}

}  // namespace sluice

// host only
// The tables that a configuration declares: AclTable, RouteTable and AdjacencyTable, and what elements declare of their
// own.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "graph/router.h"
#include "graph/table_kind.h"
#include "graph/table_set.h"
#include "tables/acl/rule_set.h"
#include "tables/adjacency/neighbours.h"
#include "tables/adjacency/next_hops.h"
#include "tables/lpm/rib.h"
#include "tables/lpm/rib_sources.h"

namespace sluice {

// What the command line says about all tables, whatever the configuration says. Empty: nothing.
struct TableOverrides {
  std::string acl_algorithm;
  std::string route_algorithm;  // IPv4
  std::string route_algorithm6;
  bool on_device = false;  // lookups run on a device: what `auto` chooses for, here and in the configuration
  std::shared_ptr<Neighbours> neighbours;  // of adjacency tables that ask for them; nullptr: nobody is known
};

// How one table was made.
struct TableLoad {
  std::string name;
  std::string kind;       // TableKind::name
  std::string algorithm;  // routes: "dir24+poptrie"; adjacency: empty
  std::string asked;      // acl: the algorithm that was asked for, such as "auto"; a compiled image: empty
  size_t entries = 0;     // rules, routes, next hops that lead somewhere, or lines
  size_t bytes = 0;       // of the image
  double parse_seconds = 0;
  double build_seconds = 0;        // 0 for a compiled image
  bool compiled = false;           // a file was an image already
  std::vector<std::string> files;  // acl: with those that are included
  std::vector<FileStamp> read;     // all of them, as they were when they were opened
};

struct TableReport {
  std::vector<TableLoad> loads;      // in the order of declaration; adjacencies last
  std::vector<Diagnostic> warnings;  // of the files
};

// What is known to be wrong already, so that load_tables does not report it again.
struct TableGaps {
  std::set<const Element*> unreadable;  // their tables are not read
  bool incomplete = false;              // declarations are missing: a route table that is not there is no finding
};

// What tables were built from, for whoever changes them later.
struct TableModels {
  std::map<std::string, RuleSet, std::less<>> acls;  // not those of compiled images, which have their rules in them
  std::map<std::string, SourcedRib, std::less<>> routes;             // not those of compiled images
  std::map<std::string, TableDeclaration, std::less<>> adjacencies;  // with the files' text in place of the files
  std::map<std::pair<TableType, std::string>, std::vector<std::string>> lists;  // their entries
  NeighbourReach reach;  // of adjacency tables that ask for neighbours
};
// What is defined of the next hops of an adjacency table of these models. Errors: those of its text.
Result<NextHopDefinitions> next_hop_definitions(const TableDeclaration& declaration, const NeighbourReach& reach);

// Tables that are in use while they are read again (LiveTables::Reload): what need not be.
class TablesInUse {
 public:
  virtual ~TablesInUse() = default;
  struct Unchanged {
    std::shared_ptr<const Image> image;
    TableLoad load;
  };
  // The table, where it is what its files say and nobody has written them since. Route tables are asked for before the
  // adjacency tables that go by them.
  virtual std::optional<Unchanged> unchanged(const TableDeclaration& declaration) = 0;
  // The image of these rules, made of the one in use by what differs; nullptr: it has to be built. Errors: those of
  // the builder.
  virtual Result<std::shared_ptr<const Image>> changed(const TableDeclaration& declaration, const RuleSet& rules) = 0;
  // The image in use, where it is of these routes; nullptr: it has to be built. It is an unchanged table then.
  virtual std::shared_ptr<const Image> same_routes(const TableDeclaration& declaration, const SourcedRib& routes) = 0;
  // The same of an adjacency table that this text makes, with how it was made.
  virtual std::optional<Unchanged> same_adjacencies(const TableDeclaration& declaration, const std::string& text) = 0;
  // The image in use, where it is of these entries; nullptr: it has to be built. It is an unchanged table then.
  virtual std::shared_ptr<const Image> same_list(const TableDeclaration& declaration,
                                                 const std::vector<std::string>& entries) = 0;
  // Those of an unchanged table; none of a compiled image.
  virtual Rib best_routes(const std::string& table) = 0;
};

// The interfaces of the kernel that the router sends by, with the ports of adjacencies that lead to them: those of a
// PortSwitch before them, a port of their own where they get all others, and 0 where there is none.
std::vector<NeighbourOutput> neighbour_outputs(const Router& router);

// Reads and builds every table that the router's elements declare. A file may be rules or routes as text, or one
// compiled image (told by its content). What `inputs` holds of the files is taken from there. Errors: those of all
// files together; two tables of one kind with one name; an adjacency table whose routes do not exist. Of those `in_use`
// `models` receives those that were read.
Result<TableSet> load_tables(const Router& router, const TableOverrides& overrides = {}, TableReport* report = nullptr,
                             const TableGaps& gaps = {}, TableModels* models = nullptr, InputSet* inputs = nullptr,
                             TablesInUse* in_use = nullptr);

// One table by itself. `routes` is needed for kAdjacency only: the image whose next hops it resolves. `rib`: for
// kRoutes receives the best routes, where they are known; for kAdjacency holds those that addresses are resolved
// through.
Result<std::shared_ptr<const Image>> load_table(const TableDeclaration& declaration, const Image* routes,
                                                TableLoad* load, std::vector<Diagnostic>* warnings,
                                                TableModels* models = nullptr, Rib* rib = nullptr,
                                                InputSet* inputs = nullptr, const NeighbourReach& reach = {});

// The entries of a file of lines, or of an image. Errors: those of the file; as parse_list and open_list.
Result<std::vector<std::string>> read_list(const TableKind& kind, InputFile& file);

// What a declaration's file is opened by: its name without what else is said there.
std::string path_of(const TableDeclaration& declaration, const std::string& file);

}  // namespace sluice

// host only
// Tables as the files that they are read from: written whole, or a file edited so that it says what the table is now.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/rule_list.h"
#include "formats/route_files.h"
#include "graph/table_kind.h"
#include "qos/qos_model.h"
#include "tables/adjacency/next_hops.h"
#include "tables/lpm/rib_sources.h"

namespace sluice {

// Each is what its reader (native_rules.h, route_files.h, adjacency_text.h) reads back as the same table.
std::string rules_text(const RuleList& rules);
// The first lines are of the source "static", as those of any route file are.
std::string routes_text(const SourcedRib& routes);
std::string adjacencies_text(const NextHopDefinitions& definitions);

// `text`, which `file` holds, with the lines that are no more true taken out and those that are missing put in; all
// others stay as they are, comments and groups among them. What comes out is read again and compared. Errors: `text`
// does not parse; it includes other files; it would not be read back as the same.
Result<std::string> edit_rules(std::string_view text, const std::string& file, const RuleList& rules);
// What changed stands at the end, below a line for each source.
Result<std::string> edit_routes(std::string_view text, const RouteFile& file, const SourcedRib& routes);
Result<std::string> edit_adjacencies(std::string_view text, const std::string& file,
                                     const NextHopDefinitions& definitions);
// Where the lines that stay stand in another order than `entries`, the text is written anew, without its comments.
Result<std::string> edit_list(const TableKind& kind, std::string_view text, const std::vector<std::string>& entries);
// `model` is that of the text but for the rates of its classes and of the ports, which are written where they stand.
Result<std::string> edit_qos(std::string_view text, const std::string& file, const QosModel& model);

}  // namespace sluice

// host only
// What a running process would do with a packet, and why: the rule that decides with those that almost match, the route
// with its source, the neighbour, the output.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/result.h"
#include "control/live_tables.h"
#include "graph/router.h"

namespace sluice {

// {"packet", "bytes", "input", "interface", "verdict": {"forwarded" (null: it is not known), "text", "element",
// "reason", "output", "port"}, and where they were met "rule" (null: none matched), "near_misses": [{... of a rule,
// "fails"}], "route": {"table", and as of explain_routes}, "adjacency"; "ways" (as of PacketWays)}. `input`: an input's
// element or interface, "": the first one. `neighbours`: as of
// PacketWays. `near`: near misses at most. Nothing is sent, and nothing counted. Errors:
// there is no such input; what the tables say.
Result<nlohmann::ordered_json> why(const Router& router, LiveTables& tables, const Neighbours* neighbours,
                                   std::span<const uint8_t> frame, const std::string& input, size_t near);
// The same for people.
std::string why_text(const nlohmann::ordered_json& answer);
// "edge.acl:9: deny ... (rule 7)" of an object {"rule", "file", "line", "text"}; all but "rule" may be absent.
std::string rule_line(const nlohmann::ordered_json& rule);

}  // namespace sluice

// host only
// Which routes cover an address or a prefix, whose they are, why packets go by which, and where to: as JSON and as
// text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tables/adjacency/next_hops.h"
#include "tables/lpm/rib_sources.h"

namespace sluice {

// An adjacency table's name and what its next hops lead to.
using NamedNextHops = std::pair<std::string, const NextHops*>;

// {"for", "total", "from", "routes": [{"prefix", "next_hop", "why", "candidates": [{"source", "preference", "metric",
// "next_hop", and of BGP paths "path", "behind"}], "adjacencies": [{"table", "next_hop", "why", "flags", "steps":
// [...], "neighbours": [{"destination", "source", "port", "vlan", "mtu", "buckets", "share"}], "resilient"}]}]}: the
// longest prefix first, candidates best first, `count` routes from number `from` on. Errors: `text` is neither an
// address nor a prefix.
Result<nlohmann::ordered_json> explain_routes(const SourcedRib& rib, const std::vector<NamedNextHops>& adjacencies,
                                              const std::string& text, size_t from, size_t count);

// {"total", "from", "routes": [{"prefix", "next_hop", "source", "preference", "metric", "others"}]}: the routes that
// packets go by, IPv4 first, in the order of their prefixes, `count` of them from number `from` on. "others": how many
// more a prefix has. `within`: those of this prefix and longer ones within it; `next_hop`: those that lead to it; "":
// all. Errors: `within` is no prefix.
Result<nlohmann::ordered_json> list_routes(const SourcedRib& rib, const std::string& within,
                                           const std::string& next_hop, size_t from, size_t count);
// What list_routes said, for people.
std::string route_list_text(const nlohmann::ordered_json& list);

// {"table", "total", "from", "next_hops": [{"next_hop", "origin", and as above "steps", "flags", "neighbours",
// "resilient"}]}: `count` next hops from number `from` on. "origin" is "static" (the adjacency file), "kernel",
// "kernel, unresolved", "kernel, by each packet", "made up", "word", "group", "route" or "none"; a neighbour without
// "destination" and "source" is unresolved, or each packet's own.
nlohmann::ordered_json list_next_hops(const NamedNextHops& adjacencies, size_t from, size_t count);
// What list_next_hops said, for people.
std::string next_hops_text(const nlohmann::ordered_json& list);

// What explain_routes said, for people.
std::string route_explanation_text(const nlohmann::ordered_json& explanation);

}  // namespace sluice

// host only
// Changes of routes in text (live_tables.h says how they are written).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tables/lpm/rib_sources.h"

namespace sluice {

// What a step of a change to a route table comes to: the best route of a prefix.
struct RouteStep {
  IpPrefix prefix;
  uint32_t next_hop = 0;  // of the routes after the steps; 0: there is none
};

// Takes the steps of a text, or some of them and an error: SourcedRib::begin() was called by then. Errors: every line
// that is wrong; cancelled().
Result<std::vector<RouteStep>> take_route_change(SourcedRib& rib, std::string_view text, const std::string& name);

}  // namespace sluice

// host only
// Changes of adjacencies in text (live_tables.h says how they are written).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tables/adjacency/next_hops.h"

namespace sluice {

// The definitions that a change gives, an empty one for a next hop that is to have none. Errors: every line that is
// wrong.
Result<std::map<std::string, NextHopDefinition>> parse_adjacency_change(std::string_view text, const std::string& name);

}  // namespace sluice

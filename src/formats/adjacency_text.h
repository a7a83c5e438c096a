// Adjacencies as text -> AdjacencyModel.
//
//   NEXTHOP DSTMAC SRCMAC PORT [vlan N] [mtu N] [weight N]     several lines for one next hop: an ECMP group
//   NEXTHOP drop|blackhole|unreachable|prohibit|throw|local|punt
//   NEXTHOP group MEMBER[*WEIGHT]... [resilient BUCKETS]       other next hops, by name, each with its neighbours
//   resolve-via default                                        addresses may be resolved through a default route
//   # to the end of the line is a comment; blanks, tabs and commas separate; NEXTHOP as in the route file
//
// A next hop of the routes needs no line where it is a word of the second kind, a group "A+B*3", or an address that a
// route leads to (tables/adjacency/next_hops.h).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tables/adjacency/next_hops.h"
#include "tables/lpm/next_hop_names.h"
#include "tables/lpm/rib.h"

namespace sluice {

// What the names mean. Errors: every malformed line; a next hop that stands for different things; weights that need
// more than AdjacencyModel::kMaxBuckets buckets.
Result<NextHopDefinitions> parse_next_hops(std::string_view text, const std::string& file);

// The same, and what the ids lead to by that. Definitions that nothing leads to are warnings in the model. Without
// `match` addresses are not resolved through routes. `reach`: where other names are neighbours.
Result<AdjacencyModel> parse_adjacencies(std::string_view text, const std::string& file, const NextHopIds& ids,
                                         const RouteMatch& match = nullptr, const NeighbourReach& reach = {});
// With the routes of a settled Rib.
Result<AdjacencyModel> parse_adjacencies(std::string_view text, const std::string& file, const Rib& rib);
// Where only a compiled image is at hand.
Result<AdjacencyModel> parse_adjacencies(std::string_view text, const std::string& file, const NextHopNames& names);

}  // namespace sluice

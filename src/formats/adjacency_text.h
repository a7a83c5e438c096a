// Adjacencies as text -> AdjacencyModel.
//
//   NEXTHOP DSTMAC SRCMAC PORT [vlan N] [mtu N] [weight N]     several lines for one next hop: an ECMP group
//   NEXTHOP drop|blackhole|local|punt
//   # to the end of the line is a comment; blanks, tabs and commas separate; NEXTHOP as in the route file
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tables/adjacency/adjacency_model.h"
#include "tables/lpm/next_hop_names.h"
#include "tables/lpm/rib.h"

namespace sluice {

// Ids are those of `rib`. Errors: every malformed line; a next hop that is both a group and drop, local or punt;
// weights that need more than AdjacencyModel::kMaxBuckets buckets. Next hops that `rib` does not know are warnings in
// the model.
Result<AdjacencyModel> parse_adjacencies(std::string_view text, const std::string& file, const Rib& rib);
// The same where only a compiled image is at hand.
Result<AdjacencyModel> parse_adjacencies(std::string_view text, const std::string& file, const NextHopNames& names);

}  // namespace sluice

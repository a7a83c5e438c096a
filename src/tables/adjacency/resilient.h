// Buckets that keep their neighbours: resilient hashing. Host only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tables/adjacency/adjacency_model.h"

namespace sluice {

// Gives each bucket a neighbour among `members`, in proportion to their weights, and moves no more buckets than that
// takes: those whose neighbour has left, and those that a member must give up because another has come or weighs more.
// When members only leave, no bucket of another moves. What comes out depends on what the buckets were and on the
// members, and on nothing else: the history of a group decides, and is the same wherever it is played.
//
// The shares are those of the D'Hondt rule: a bucket goes to the member with the least (buckets + 1) / weight, and
// while a member has more buckets / weight than that, it gives one up. A member leaving makes every other's quotient
// bound only larger, which is why nobody then has to give. `buckets` holds kNoNeighbour or neighbours; no members:
// nobody's.
inline constexpr uint32_t kNoNeighbour = ~uint32_t{0};
void rebalance(std::vector<uint32_t>& buckets, std::span<const AdjacencyModel::Member> members);

}  // namespace sluice

#include "tables/adjacency/resilient.h"

#include <map>

namespace sluice {

void rebalance(std::vector<uint32_t>& buckets, std::span<const AdjacencyModel::Member> members) {
  struct Share {
    uint32_t neighbour;
    uint64_t weight;
    uint64_t has = 0;
  };
  std::vector<Share> shares;
  std::map<uint32_t, size_t> place;  // of a neighbour in shares
  for (const AdjacencyModel::Member& m : members) {
    const auto [at, fresh] = place.try_emplace(m.neighbour, shares.size());
    if (fresh)
      shares.push_back({m.neighbour, m.weight});
    else
      shares[at->second].weight += m.weight;
  }
  for (uint32_t& bucket : buckets) {
    const auto at = place.find(bucket);
    if (at == place.end()) {
      bucket = kNoNeighbour;
    } else {
      ++shares[at->second].has;
    }
  }
  if (shares.empty()) return;
  const auto neediest = [&] {
    size_t best = 0;
    for (size_t i = 1; i < shares.size(); ++i) {
      if ((shares[i].has + 1) * shares[best].weight < (shares[best].has + 1) * shares[i].weight) best = i;
    }
    return best;
  };
  for (uint32_t& bucket : buckets) {
    if (bucket != kNoNeighbour) continue;
    Share& to = shares[neediest()];
    bucket = to.neighbour;
    ++to.has;
  }
  for (;;) {
    size_t most = 0;
    for (size_t i = 1; i < shares.size(); ++i) {
      if (shares[i].has * shares[most].weight > shares[most].has * shares[i].weight) most = i;
    }
    Share &from = shares[most], &to = shares[neediest()];
    if ((to.has + 1) * from.weight >= from.has * to.weight) return;
    for (size_t b = buckets.size(); b-- > 0;) {
      if (buckets[b] != from.neighbour) continue;
      buckets[b] = to.neighbour;
      break;
    }
    --from.has;
    ++to.has;
  }
}

}  // namespace sluice

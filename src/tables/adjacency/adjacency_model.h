// The adjacencies as configured, and their image. Host only, control thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/types.h"
#include "tables/adjacency/adjacency.h"
#include "tables/image.h"
#include "tables/lpm/rib.h"

namespace sluice {

// What each next-hop id of a Rib leads to.
class AdjacencyModel {
 public:
  static constexpr uint16_t kDefaultMtu = 1500;
  static constexpr unsigned kMaxBuckets = 256;  // per next hop, after weights are divided by their common divisor

  struct Neighbour {
    MacAddress destination{};
    MacAddress source{};
    uint16_t port = 0;
    uint16_t vlan = 0;  // 0: untagged
    uint16_t mtu = kDefaultMtu;
    uint16_t weight = 1;  // 1..kMaxBuckets
    friend bool operator==(const Neighbour&, const Neighbour&) = default;
  };
  // Either flags (AdjacencyGroup::Flags) or neighbours; neither: unresolved.
  struct Group {
    uint16_t flags = 0;
    std::vector<Neighbour> neighbours;
  };

  explicit AdjacencyModel(uint32_t next_hop_count = 0) : groups_(next_hop_count + size_t{1}) {}

  // Ids 1..next_hop_count(); index 0 stays empty.
  uint32_t next_hop_count() const { return static_cast<uint32_t>(groups_.size() - 1); }
  Group& group(uint32_t next_hop) { return groups_[next_hop]; }
  const Group& group(uint32_t next_hop) const { return groups_[next_hop]; }
  // Next hops that have neither neighbours nor flags.
  uint32_t unresolved() const;
  // What the reader wanted to say about the text, such as next hops that no route uses.
  std::vector<Diagnostic> warnings;

 private:
  std::vector<Group> groups_;
};

// Buckets that a group needs, or 0 when it is more than kMaxBuckets.
unsigned adjacency_buckets(const AdjacencyModel::Group& group);

// One neighbour for each next hop: destination 02:53:4c:XX:XX:XX with the id in the last three bytes, source
// 02:53:4c:ff:ff:fe, port 0, no VLAN, MTU 1500. Next hops that are called drop, blackhole, local or punt get those
// flags instead. For demonstrations and benchmarks, where no neighbour table is at hand.
AdjacencyModel default_adjacencies(const Rib& rib);

// An image of kind kAdjacency. Errors: a group with too many buckets, out of memory.
Result<Image> build_adjacencies(const AdjacencyModel& model);

// Opens the view of such an image, which must outlive it.
Result<AdjacencyView> open_adjacencies(const Image& image);

}  // namespace sluice

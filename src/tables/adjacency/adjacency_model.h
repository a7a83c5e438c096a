// What each next hop leads to, and its image: built whole, or patched as it changes. Host only, control thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/types.h"
#include "tables/adjacency/adjacency.h"
#include "tables/image.h"
#include "tables/lpm/rib.h"
#include "tables/replica.h"

namespace sluice {

// What each next-hop id of a Rib leads to.
class AdjacencyModel {
 public:
  static constexpr uint16_t kDefaultMtu = 1500;
  static constexpr unsigned kMaxBuckets = 256;     // by weights, after division by their common divisor
  static constexpr unsigned kMaxResilient = 4096;  // fixed buckets

  struct Neighbour {
    MacAddress destination{};
    MacAddress source{};
    uint16_t port = 0;
    uint16_t vlan = 0;  // 0: untagged
    uint16_t mtu = kDefaultMtu;
    uint16_t weight = 1;  // 1..kMaxBuckets; as configured, what counts is a member's
    friend bool operator==(const Neighbour&, const Neighbour&) = default;
  };
  struct Member {
    uint32_t neighbour = 0;  // index of neighbours()
    uint16_t weight = 1;
    friend bool operator==(const Member&, const Member&) = default;
  };
  // Either flags (AdjacencyGroup::Flags) or members; neither: unresolved.
  struct Group {
    uint16_t flags = 0;
    std::vector<Member> members;
    std::vector<uint32_t> buckets;  // resilient: the neighbour of each; empty: as the weights say
    friend bool operator==(const Group&, const Group&) = default;
  };

  explicit AdjacencyModel(uint32_t next_hop_count = 0) : groups_(next_hop_count + size_t{1}) {}

  // Ids 1..next_hop_count(); index 0 stays empty.
  uint32_t next_hop_count() const { return static_cast<uint32_t>(groups_.size() - 1); }
  void extend(uint32_t next_hop_count) { groups_.resize(next_hop_count + size_t{1}); }
  Group& group(uint32_t next_hop) { return groups_[next_hop]; }
  const Group& group(uint32_t next_hop) const { return groups_[next_hop]; }
  std::vector<Neighbour>& neighbours() { return neighbours_; }
  const std::vector<Neighbour>& neighbours() const { return neighbours_; }
  // One more neighbour, as a member of a group, with its own weight.
  void add(uint32_t next_hop, const Neighbour& neighbour) {
    groups_[next_hop].members.push_back({static_cast<uint32_t>(neighbours_.size()), neighbour.weight});
    neighbours_.push_back(neighbour);
  }
  // Next hops that have neither neighbours nor flags.
  uint32_t unresolved() const;
  // What the reader wanted to say about the text, such as next hops that no route uses.
  std::vector<Diagnostic> warnings;

 private:
  std::vector<Group> groups_;
  std::vector<Neighbour> neighbours_;
};

// Buckets that a group needs, or 0 when it is more than kMaxBuckets (kMaxResilient).
unsigned adjacency_buckets(const AdjacencyModel::Group& group);

// One neighbour for each next hop: destination 02:53:4c:XX:XX:XX with the id in the last three bytes, source
// 02:53:4c:ff:ff:fe, port 0, no VLAN, MTU 1500. For demonstrations and benchmarks, where no neighbour table is at hand.
AdjacencyModel::Neighbour made_up_neighbour(uint32_t id);

// An image of kind kAdjacency. Errors: a group with too many buckets, out of memory.
Result<Image> build_adjacencies(const AdjacencyModel& model);

// Opens the view of such an image, which must outlive it.
Result<AdjacencyView> open_adjacencies(const Image& image);

// Adjacencies that change while packets go by them: what is set is in the image that publish() returns next. A
// neighbour is one store, a group its record and its buckets; where room runs out the image is built anew.
class PatchedAdjacencies {
 public:
  // Errors: those of build_adjacencies.
  static Result<std::unique_ptr<PatchedAdjacencies>> create(const AdjacencyModel& model);

  // An index past the last one makes neighbours up to it.
  void set_neighbour(uint32_t index, const AdjacencyModel::Neighbour& neighbour);
  // A next hop past the last one makes next hops up to it. Its members must be neighbours. False: too many buckets.
  [[nodiscard]] bool set_group(uint32_t next_hop, const AdjacencyModel::Group& group);
  // Errors: those of ImageReplicas::publish and of build_adjacencies; the changes are kept for another try.
  Result<std::shared_ptr<const Image>> publish();

  const ImageReplicas& replicas() const { return replicas_; }
  size_t rebuilds() const { return rebuilds_; }  // for want of room

 private:
  struct Place {
    uint32_t first = 0, room = 0;  // buckets
  };
  Result<void> rebuild();
  void write_neighbour(uint32_t index);
  bool write_group(uint32_t next_hop);  // false: no room

  AdjacencyModel model_;
  ImageReplicas replicas_;
  std::vector<Place> places_;         // by next hop
  AdjacencyGroup* groups_ = nullptr;  // of the master
  uint32_t* buckets_ = nullptr;
  Adjacency* adjacencies_ = nullptr;
  size_t group_room_ = 0, bucket_room_ = 0, adjacency_room_ = 0;
  uint32_t buckets_used_ = 0;
  bool full_ = false;  // the image is to be built anew
  size_t rebuilds_ = 0;
};

}  // namespace sluice

// Next hops as they are written -> what they lead to: neighbours, groups of them, recursion through the routes. Host
// only, control thread only.
//
// A name is, in this order: what the adjacency file defines it as; one of the words `drop`, `blackhole`, `unreachable`,
// `prohibit`, `throw`, `local`, `punt`; a group of other names, "A+B*3"; without an adjacency file a made-up neighbour;
// a neighbour at a live port (neighbours.h); an address, which is resolved through the route of the longest prefix that
// covers it, to that route's next hop. The default route counts for that only where it is asked for (`resolve-via
// default`).
//
// Names lead to names, so they are a graph. What changes makes those that lead to it, directly or not, be resolved
// again, and no others: a route looks up the addresses that it covers and that no longer prefix answers. An edge within
// a cycle leads nowhere; a name whose every way does is unresolved, a loop. Nothing depends on the order of changes but
// the buckets of resilient groups, whose history is the model's (resilient.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/types.h"
#include "tables/adjacency/adjacency_model.h"
#include "tables/adjacency/neighbours.h"
#include "tables/lpm/rib.h"

namespace sluice {

// The names and weights of a group that is written as "A+B*3", in order; empty: it is no group.
struct NextHopMember {
  std::string name;
  uint16_t weight = 1;
  friend bool operator==(const NextHopMember&, const NextHopMember&) = default;
};
std::vector<NextHopMember> split_next_hops(std::string_view name);

// The AdjacencyGroup::Flags of a word that is a next hop by itself, or 0.
uint16_t next_hop_flags(std::string_view word);

// One name in an adjacency file: flags, neighbours, or a group of other names.
struct NextHopDefinition {
  uint16_t flags = 0;
  std::vector<AdjacencyModel::Neighbour> neighbours;
  std::vector<NextHopMember> members;
  uint16_t buckets = 0;  // of a resilient group
  friend bool operator==(const NextHopDefinition&, const NextHopDefinition&) = default;
};
struct NextHopDefinitions {
  std::map<std::string, NextHopDefinition, std::less<>> names;
  bool made_up = false;      // there is no file: names that are defined by nothing else are neighbours
  bool via_default = false;  // addresses may be resolved through a default route
  NeighbourReach reach;      // where names that nothing defines are neighbours
};

// The route for an address, its next hop an id of the same NextHopIds.
using RouteMatch = std::function<Rib::Match(const IpAddress&)>;

class NextHops {
 public:
  // Why a next hop leads where it leads.
  enum class Why : uint8_t {
    kDefined,      // neighbours or flags of its own
    kNeighbour,    // at a live port
    kGroup,        // through its members
    kRoute,        // through a route
    kNoNeighbour,  // nothing says what it is
    kNoRoute,      // an address that no route covers
    kOnlyDefault,  // an address that only the default route covers, which is not to be used
    kLoop,         // every way leads back to it
    kNoMember,     // no member, or not the route's next hop, leads anywhere
  };
  struct Explanation {
    Why why = Why::kNoNeighbour;
    Rib::Match match;                    // kRoute and what went wrong behind a route: next_hop 0 otherwise
    std::vector<NextHopMember> members;  // the names that it leads to
    std::string interface;               // kNeighbour: at which
    bool whoever = false;                // kNeighbour: each packet's own
  };

  // Definitions are shared by copies of this.
  explicit NextHops(NextHopDefinitions definitions);

  // Takes the names past those that it knows, as ids.
  void extend(const NextHopIds& ids);
  // Another best route for the prefix, or none.
  void route_changed(const IpPrefix& prefix);
  void all_routes_changed();
  // The kernel knows other interfaces or neighbours: looks at all that are at live ports, or might be.
  void neighbours_changed();
  // Another definition of a name; an empty one: none.
  void define(const std::string& name, NextHopDefinition definition);

  // Resolves what the changes since the last call concern. Says which ids have other groups, in order, and which
  // neighbours other addresses.
  struct Changes {
    std::vector<uint32_t> ids, neighbours;
    size_t resolved = 0;  // names that were looked at
  };
  Changes settle(const RouteMatch& match);

  const NextHopDefinitions& definitions() const { return *definitions_; }
  const AdjacencyModel::Group& group(uint32_t id) const { return nodes_[by_id_[id]].group; }
  const std::vector<AdjacencyModel::Neighbour>& neighbours() const { return neighbours_; }
  uint32_t count() const { return static_cast<uint32_t>(by_id_.size() - 1); }
  const std::string& name(uint32_t id) const { return nodes_[by_id_[id]].name; }
  // Everything, for build_adjacencies.
  AdjacencyModel model() const;
  // Of a name that is known as an id, or that one of these leads to; kNoNeighbour for others.
  Explanation explain(std::string_view name) const;
  const AdjacencyModel::Group* find(std::string_view name) const;  // nullptr: not known

 private:
  struct Edge {
    uint32_t node = 0;
    uint16_t weight = 1;
    bool loops = false;  // leads back here
    uint32_t place = 0;  // in the other's led_to_by
  };
  struct Back {
    uint32_t node = 0, edge = 0;
  };
  struct Node {
    std::string name;
    uint32_t id = 0;    // 0: only others lead to it
    IpAddress address;  // family 0: not resolved through routes
    Rib::Match match;   // of address
    std::vector<Edge> leads_to;
    std::vector<Back> led_to_by;
    std::vector<AdjacencyModel::Member> own;  // its neighbours
    std::string interface;                    // at which it is a neighbour
    bool whoever = false;                     // it is all neighbours there
    uint16_t flags = 0;
    uint16_t resilient = 0;
    Why why = Why::kNoNeighbour;
    bool dirty = false;
    uint32_t place = 0;  // among those that are dirty
    AdjacencyModel::Group group;
  };

  uint32_t node_of(std::string_view name, uint32_t id = 0);  // a new one is to be shaped
  void shape(uint32_t node);                                 // what it is, by its definition and name
  void shape_new();
  void set_own(uint32_t node, const std::vector<AdjacencyModel::Neighbour>& own);
  bool defined(const std::string& name) const;
  // As an address that is a neighbour at `interface` by a route. False: it is none.
  bool reach_by(uint32_t node, const std::string& interface);
  void lead(uint32_t node, std::vector<Edge> edges);
  void touch(uint32_t node);
  void resolve(uint32_t node);
  std::vector<uint32_t> mark_loops();

  std::shared_ptr<NextHopDefinitions> definitions_;
  std::vector<Node> nodes_;
  std::map<std::string, uint32_t, std::less<>> by_name_;
  std::vector<uint32_t> by_id_{0};
  std::vector<AdjacencyModel::Neighbour> neighbours_;
  std::vector<uint32_t> free_;                                      // of neighbours_: nobody's
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> addresses_[2];  // IPv4, IPv6: nodes that go by routes
  uint32_t shaped_ = 1;                                             // nodes below it have been
  std::vector<uint32_t> touched_;
  std::vector<uint32_t> moved_;  // neighbours
};

// What default_adjacencies and the readers of adjacency files come down to: everything at once.
AdjacencyModel resolve_next_hops(NextHopDefinitions definitions, const NextHopIds& ids, const RouteMatch& match);
// One made-up neighbour for each next hop that is no word and no group.
AdjacencyModel default_adjacencies(const Rib& rib);

}  // namespace sluice

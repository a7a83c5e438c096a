#include "tables/adjacency/next_hops.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "base/assert.h"
#include "net/flow_key.h"
#include "net/text.h"
#include "tables/adjacency/resilient.h"

namespace sluice {
namespace {

// Weights that need at most kMaxBuckets buckets, as near to the given ones as that goes: everybody has at least one,
// and what is left goes to the largest remainders, the first of equal ones.
std::vector<AdjacencyModel::Member> small_weights(const std::vector<std::pair<uint32_t, uint64_t>>& members) {
  std::vector<AdjacencyModel::Member> out;
  uint64_t divisor = 0, sum = 0;
  for (const auto& [neighbour, weight] : members) {
    divisor = std::gcd(divisor, weight);
    sum += weight;
  }
  constexpr uint64_t kMost = AdjacencyModel::kMaxBuckets;
  const size_t n = std::min<size_t>(members.size(), kMost);
  if (divisor != 0 && sum / divisor <= kMost) {
    for (const auto& [neighbour, weight] : members) out.push_back({neighbour, static_cast<uint16_t>(weight / divisor)});
    return out;
  }
  std::vector<std::pair<uint64_t, size_t>> rest;
  uint64_t given = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t scaled = members[i].second * kMost;
    const uint64_t weight = std::max<uint64_t>(1, scaled / sum);
    out.push_back({members[i].first, static_cast<uint16_t>(weight)});
    given += weight;
    if (scaled >= sum) rest.emplace_back(scaled % sum, i);
  }
  std::stable_sort(rest.begin(), rest.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; given < kMost && i < rest.size(); ++i, ++given) ++out[rest[i].second].weight;
  while (given > kMost) {
    auto most =
        std::max_element(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.weight < b.weight; });
    --most->weight;
    --given;
  }
  return out;
}

uint64_t total(const AdjacencyModel::Group& group) {
  uint64_t sum = 0;
  for (const auto& m : group.members) sum += m.weight;
  return sum;
}

}  // namespace

std::vector<NextHopMember> split_next_hops(std::string_view name) {
  std::vector<NextHopMember> members;
  bool weighted = false;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('+', at), name.size());
    std::string_view one = name.substr(at, end - at);
    NextHopMember member;
    if (const size_t star = one.rfind('*'); star != std::string_view::npos) {
      const std::string_view digits = one.substr(star + 1);
      unsigned weight = 0;
      const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), weight);
      if (code != std::errc() || stop != digits.data() + digits.size() || weight < 1 ||
          weight > AdjacencyModel::kMaxBuckets)
        return {};
      member.weight = static_cast<uint16_t>(weight);
      one = one.substr(0, star);
      weighted = true;
    }
    if (one.empty()) return {};
    member.name = one;
    members.push_back(std::move(member));
    at = end + 1;
  }
  if (members.size() == 1 && !weighted) return {};
  return members;
}

uint16_t next_hop_flags(std::string_view word) {
  if (word == "drop") return AdjacencyGroup::kDrop;
  if (word == "blackhole") return AdjacencyGroup::kDrop | AdjacencyGroup::kBlackhole;
  if (word == "unreachable") return AdjacencyGroup::kHostUnreachable;
  if (word == "throw") return AdjacencyGroup::kNetUnreachable;
  if (word == "prohibit") return AdjacencyGroup::kProhibited;
  if (word == "local") return AdjacencyGroup::kLocal;
  if (word == "punt") return AdjacencyGroup::kPunt;
  return 0;
}

NextHops::NextHops(NextHopDefinitions definitions)
    : definitions_(std::make_shared<NextHopDefinitions>(std::move(definitions))) {
  nodes_.emplace_back();  // nobody
}

void NextHops::touch(uint32_t node) {
  if (nodes_[node].dirty) return;
  nodes_[node].dirty = true;
  nodes_[node].place = static_cast<uint32_t>(touched_.size());
  touched_.push_back(node);
}

uint32_t NextHops::node_of(std::string_view name, uint32_t id) {
  const auto known = by_name_.find(name);
  if (known != by_name_.end()) {
    if (id != 0) nodes_[known->second].id = id;
    return known->second;
  }
  const auto node = static_cast<uint32_t>(nodes_.size());
  nodes_.emplace_back();
  nodes_[node].name = name;
  nodes_[node].id = id;
  by_name_.emplace(name, node);
  return node;
}

// Groups of groups of groups make nodes while they are shaped: one after the other, not one inside the other.
void NextHops::shape_new() {
  while (shaped_ < nodes_.size()) shape(shaped_++);
}

void NextHops::lead(uint32_t node, std::vector<Edge> edges) {
  for (const Edge& e : nodes_[node].leads_to) {
    // The last one takes the place: thousands may lead to one.
    auto& back = nodes_[e.node].led_to_by;
    const Back last = back.back();
    back[e.place] = last;
    nodes_[last.node].leads_to[last.edge].place = e.place;
    back.pop_back();
  }
  nodes_[node].leads_to = std::move(edges);
  for (uint32_t i = 0; i < nodes_[node].leads_to.size(); ++i) {
    Edge& e = nodes_[node].leads_to[i];
    e.place = static_cast<uint32_t>(nodes_[e.node].led_to_by.size());
    nodes_[e.node].led_to_by.push_back({node, i});
  }
}

// Neighbours keep their places, new ones get those that nobody has.
void NextHops::set_own(uint32_t node, const std::vector<AdjacencyModel::Neighbour>& own) {
  auto& places = nodes_[node].own;
  for (size_t i = 0; i < own.size(); ++i) {
    if (i == places.size()) {
      if (free_.empty()) {
        free_.push_back(static_cast<uint32_t>(neighbours_.size()));
        neighbours_.emplace_back();
      }
      places.push_back({free_.back(), 1});
      moved_.push_back(free_.back());
      free_.pop_back();
    }
    places[i].weight = own[i].weight;
    if (neighbours_[places[i].neighbour] != own[i]) moved_.push_back(places[i].neighbour);
    neighbours_[places[i].neighbour] = own[i];
  }
  while (places.size() > own.size()) {
    free_.push_back(places.back().neighbour);
    places.pop_back();
  }
}

// By the file, or made up.
bool NextHops::defined(const std::string& name) const {
  return definitions_->made_up || definitions_->names.contains(name);
}

bool NextHops::reach_by(uint32_t node, const std::string& interface) {
  const auto found = definitions_->reach.find(nodes_[node].name + "%" + interface);
  if (!found) return false;
  set_own(node, {found->neighbour});
  nodes_[node].interface = found->interface;
  return true;
}

void NextHops::neighbours_changed() {
  if (definitions_->reach.neighbours == nullptr) return;
  for (uint32_t node = 1; node < shaped_; ++node) {
    const Node& n = nodes_[node];
    if (defined(n.name) || next_hop_flags(n.name) != 0 || (n.address.family == 0 && !n.leads_to.empty())) continue;
    // Whether a route makes it a neighbour shows when it is resolved.
    if (n.address.family != 0 && !n.interface.empty()) touch(node);
    const auto found = definitions_->reach.find(n.name);
    const bool was = n.address.family == 0 && !n.interface.empty();
    if (!found && !was) continue;
    if (found && was && n.interface == found->interface && neighbours_[n.own[0].neighbour] == found->neighbour)
      continue;
    shape(node);
  }
  shape_new();
}

void NextHops::shape(uint32_t node) {
  const std::string name = nodes_[node].name;
  {
    Node& n = nodes_[node];
    n.interface.clear();
    n.whoever = false;
    if (n.address.family != 0) addresses_[n.address.family == 6].erase({n.address.hi, n.address.lo});
    n.address = {};
    n.match = {};
    n.flags = n.resilient = 0;
  }
  std::vector<AdjacencyModel::Neighbour> own;
  std::vector<NextHopMember> members;
  const auto defined = definitions_->names.find(name);
  if (defined != definitions_->names.end()) {
    nodes_[node].flags = defined->second.flags;
    nodes_[node].resilient = defined->second.buckets;
    own = defined->second.neighbours;
    members = defined->second.members;
  } else if (const uint16_t flags = next_hop_flags(name); flags != 0) {
    nodes_[node].flags = flags;
  } else if (members = split_next_hops(name); !members.empty()) {
  } else if (definitions_->made_up) {
    // A name that only groups have is told by its hash: ids belong to routes.
    const uint32_t id = nodes_[node].id;
    uint64_t hash = 0;
    for (char c : name) hash = mix64(hash ^ static_cast<uint8_t>(c));
    own.push_back(made_up_neighbour(id != 0 ? id : static_cast<uint32_t>(hash >> 40) | 0x800000));
  } else if (const auto found = definitions_->reach.find(name)) {
    own.push_back(found->neighbour);
    nodes_[node].interface = found->interface;
    nodes_[node].whoever = found->key.address.family == 0;
  } else if (const auto address = parse_ip(name)) {
    nodes_[node].address = *address;
    addresses_[address->family == 6][{address->hi, address->lo}] = node;
  }
  set_own(node, own);
  std::vector<Edge> edges;
  for (const NextHopMember& m : members) edges.push_back({node_of(m.name), m.weight});
  lead(node, std::move(edges));
  touch(node);
}

void NextHops::extend(const NextHopIds& ids) {
  for (uint32_t id = count() + 1; id <= ids.count(); ++id) {
    by_id_.push_back(node_of(ids.name(id), id));
  }
  shape_new();
}

void NextHops::route_changed(const IpPrefix& prefix) {
  const auto& all = addresses_[prefix.address.family == 6];
  for (auto it = all.lower_bound({prefix.address.hi, prefix.address.lo}); it != all.end(); ++it) {
    const auto [hi, lo] = it->first;
    const unsigned n = prefix.length;
    const bool covers = prefix.address.family == 4
                            ? ((lo ^ prefix.address.lo) & high_mask32(n)) == 0
                            : ((hi ^ prefix.address.hi) & high_mask64(std::min(n, 64u))) == 0 &&
                                  ((lo ^ prefix.address.lo) & high_mask64(n > 64 ? n - 64 : 0)) == 0;
    if (!covers) break;
    const Node& node = nodes_[it->second];
    if (node.match.next_hop == 0 || node.match.length <= n) touch(it->second);
  }
}

void NextHops::all_routes_changed() {
  for (const auto& family : addresses_) {
    for (const auto& [address, node] : family) touch(node);
  }
}

void NextHops::define(const std::string& name, NextHopDefinition definition) {
  // Copies of this may share the definitions.
  definitions_ = std::make_shared<NextHopDefinitions>(*definitions_);
  if (definition == NextHopDefinition{}) {
    definitions_->names.erase(name);
  } else {
    definitions_->names[name] = std::move(definition);
  }
  if (const auto known = by_name_.find(name); known != by_name_.end()) shape(known->second);
  shape_new();
}

// Tarjan's strongly connected components (SIAM J. Comput. 1, 1972) over what is dirty, with a stack of its own: chains
// of next hops may be as long as there are next hops. What a node leads to stands before it in the result.
std::vector<uint32_t> NextHops::mark_loops() {
  struct State {
    uint32_t index = 0, low = 0, component = 0;
    bool open = false;
  };
  std::vector<State> states(touched_.size());
  const auto state_of = [&](uint32_t node) -> State& { return states[nodes_[node].place]; };
  struct Frame {
    uint32_t node;
    size_t edge;
  };
  std::vector<Frame> frames;
  std::vector<uint32_t> open, order;
  uint32_t visited = 0, components = 0;
  const auto visit = [&](uint32_t node) {
    State& state = state_of(node);
    state.index = state.low = ++visited;
    state.open = true;
    open.push_back(node);
    frames.push_back({node, 0});
  };
  for (const uint32_t root : touched_) {
    if (state_of(root).index != 0) continue;
    visit(root);
    while (!frames.empty()) {
      const uint32_t node = frames.back().node;
      State& state = state_of(node);
      if (frames.back().edge < nodes_[node].leads_to.size()) {
        const uint32_t to = nodes_[node].leads_to[frames.back().edge++].node;
        if (!nodes_[to].dirty) continue;
        if (state_of(to).index == 0)
          visit(to);
        else if (state_of(to).open)
          state.low = std::min(state.low, state_of(to).index);
        continue;
      }
      frames.pop_back();
      if (!frames.empty()) {
        State& above = state_of(frames.back().node);
        above.low = std::min(above.low, state.low);
      }
      if (state.low != state.index) continue;
      ++components;
      for (uint32_t member = 0; member != node;) {
        member = open.back();
        open.pop_back();
        state_of(member).open = false;
        state_of(member).component = components;
        order.push_back(member);
      }
    }
  }
  for (const uint32_t node : touched_) {
    for (Edge& e : nodes_[node].leads_to)
      e.loops = nodes_[e.node].dirty && state_of(e.node).component == state_of(node).component;
  }
  return order;
}

void NextHops::resolve(uint32_t at) {
  Node& node = nodes_[at];
  AdjacencyModel::Group group;
  if (node.flags != 0) {
    group.flags = node.flags;
    node.why = Why::kDefined;
  } else if (!node.own.empty()) {
    group.members = node.own;
    node.why = node.interface.empty() ? Why::kDefined : Why::kNeighbour;
  } else if (node.leads_to.empty()) {
    node.why = node.address.family == 0   ? Why::kNoNeighbour
               : node.match.next_hop != 0 ? Why::kOnlyDefault
                                          : Why::kNoRoute;
  } else if (node.address.family != 0) {
    const Edge& to = node.leads_to[0];
    if (!to.loops) group = nodes_[to.node].group;
    node.why = to.loops ? Why::kLoop : group == AdjacencyModel::Group{} ? Why::kNoMember : Why::kRoute;
  } else {
    // Every member's neighbours, each with its share of the member's weight.
    bool loops = true;
    uint16_t flags = 0;
    uint64_t common = 1;
    constexpr uint64_t kMost = uint64_t{1} << 20;  // past it shares are rounded, so that no sum overflows
    for (const Edge& e : node.leads_to) {
      if (e.loops) continue;
      loops = false;
      const AdjacencyModel::Group& to = nodes_[e.node].group;
      if (flags == 0) flags = to.flags;
      if (const uint64_t sum = total(to); sum != 0 && common <= kMost) common = std::lcm(common, sum);
    }
    std::vector<std::pair<uint32_t, uint64_t>> members;
    std::map<uint32_t, size_t> places;  // of neighbours in members
    for (const Edge& e : node.leads_to) {
      if (e.loops) continue;
      const AdjacencyModel::Group& to = nodes_[e.node].group;
      const uint64_t sum = total(to);
      for (const AdjacencyModel::Member& m : to.members) {
        const uint64_t weight = common <= kMost ? e.weight * uint64_t{m.weight} * (common / sum)
                                                : std::max<uint64_t>(1, e.weight * (uint64_t{m.weight} << 20) / sum);
        const auto [same, fresh] = places.try_emplace(m.neighbour, members.size());
        if (fresh)
          members.emplace_back(m.neighbour, weight);
        else
          members[same->second].second += weight;
      }
    }
    if (members.empty())
      group.flags = flags;
    else
      group.members = small_weights(members);
    if (node.resilient != 0 && !members.empty()) {
      group.buckets = node.group.buckets;
      group.buckets.resize(node.resilient, kNoNeighbour);
      rebalance(group.buckets, group.members);
    }
    node.why = loops ? Why::kLoop : members.empty() && flags == 0 ? Why::kNoMember : Why::kGroup;
  }
  node.group = std::move(group);
}

NextHops::Changes NextHops::settle(const RouteMatch& match) {
  Changes changes;
  // All that leads to what changed; a name that a route brings in is itself touched.
  for (size_t i = 0; i < touched_.size(); ++i) {
    const uint32_t at = touched_[i];
    for (const Back& from : nodes_[at].led_to_by) touch(from.node);
    if (nodes_[at].address.family == 0) continue;
    nodes_[at].match = match ? match(nodes_[at].address) : Rib::Match{};
    const Rib::Match found = nodes_[at].match;
    std::vector<Edge> edges;
    if (found.next_hop != 0 && (found.length != 0 || definitions_->via_default)) {
      SLUICE_CHECK(found.next_hop < by_id_.size());
      edges.push_back({by_id_[found.next_hop]});
    }
    // A route to an interface makes the address a neighbour there, not a way to whoever a packet is for.
    // The edge stays: changes of the interface are told by it.
    nodes_[at].interface.clear();
    const bool near = !edges.empty() && nodes_[edges[0].node].whoever && reach_by(at, nodes_[edges[0].node].name);
    if (!near) set_own(at, {});
    const auto& now = nodes_[at].leads_to;
    if (now.size() != edges.size() || (!now.empty() && now[0].node != edges[0].node)) lead(at, std::move(edges));
  }
  const std::vector<uint32_t> order = mark_loops();
  changes.resolved = order.size();
  for (const uint32_t node : order) {
    const AdjacencyModel::Group before = nodes_[node].group;
    resolve(node);
    if (nodes_[node].id != 0 && nodes_[node].group != before) changes.ids.push_back(nodes_[node].id);
  }
  for (const uint32_t node : order) nodes_[node].dirty = false;
  touched_.clear();
  std::sort(changes.ids.begin(), changes.ids.end());
  changes.neighbours = std::exchange(moved_, {});
  std::sort(changes.neighbours.begin(), changes.neighbours.end());
  changes.neighbours.erase(std::unique(changes.neighbours.begin(), changes.neighbours.end()), changes.neighbours.end());
  return changes;
}

AdjacencyModel NextHops::model() const {
  AdjacencyModel model(count());
  for (uint32_t id = 1; id <= count(); ++id) model.group(id) = group(id);
  model.neighbours() = neighbours_;
  return model;
}

NextHops::Explanation NextHops::explain(std::string_view name) const {
  Explanation e;
  const auto known = by_name_.find(name);
  if (known == by_name_.end()) return e;
  const Node& node = nodes_[known->second];
  e.why = node.why;
  e.match = node.match;
  e.interface = node.interface;
  e.whoever = node.whoever;
  for (const Edge& to : node.leads_to) e.members.push_back({nodes_[to.node].name, to.weight});
  return e;
}

const AdjacencyModel::Group* NextHops::find(std::string_view name) const {
  const auto known = by_name_.find(name);
  return known == by_name_.end() ? nullptr : &nodes_[known->second].group;
}

AdjacencyModel resolve_next_hops(NextHopDefinitions definitions, const NextHopIds& ids, const RouteMatch& match) {
  NextHops all(std::move(definitions));
  all.extend(ids);
  all.settle(match);
  return all.model();
}

AdjacencyModel default_adjacencies(const Rib& rib) {
  NextHopDefinitions none;
  none.made_up = true;
  return resolve_next_hops(std::move(none), rib.next_hops(), nullptr);
}

}  // namespace sluice

#include "tables/adjacency/next_hops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "net/text.h"
#include "tables/adjacency/resilient.h"
#include "tables/lpm/rib_sources.h"

namespace sluice::next_hops_test {
namespace {

using Members = std::vector<AdjacencyModel::Member>;

AdjacencyModel::Neighbour neighbour(uint8_t n, uint16_t weight = 1) {
  AdjacencyModel::Neighbour out;
  out.destination = {{2, 0, 0, 0, 0, n}};
  out.port = n;
  out.weight = weight;
  return out;
}
NextHopDefinition one(uint8_t n) {
  NextHopDefinition d;
  d.neighbours = {neighbour(n)};
  return d;
}
IpPrefix prefix(const char* text) {
  return *parse_prefix(text);
}

// Routes, next hops and what they lead to, kept in step as control keeps them.
struct World {
  SourcedRib rib;
  NextHops hops;
  uint8_t source = 0;
  NextHops::Changes last;

  explicit World(NextHopDefinitions definitions = {}) : hops(std::move(definitions)) { source = rib.source("static"); }
  void route(const char* where, const char* hop) { change(prefix(where), hop); }
  void change(const IpPrefix& where, std::string_view hop) {
    if (hop.empty()) {
      rib.remove(where, source, 0);
    } else {
      rib.add(where, {0, static_cast<uint16_t>(rib.next_hops().intern(hop)), source, 1});
    }
    hops.extend(rib.next_hops());
    hops.route_changed(where);
  }
  void settle() {
    last = hops.settle([&](const IpAddress& a) { return rib.match(a); });
  }
  const AdjacencyModel::Group& group(const char* name) { return *hops.find(name); }
  // The ports that packets with this next hop leave by.
  std::multiset<unsigned> ports(const char* name) {
    std::multiset<unsigned> all;
    for (const auto& m : group(name).members)
      for (unsigned k = 0; k < m.weight; ++k) all.insert(hops.neighbours()[m.neighbour].port);
    return all;
  }
};

// --- names ---

TEST(NextHopNamesOfGroups, AreSplitAtPlusAndStar) {
  EXPECT_EQ(split_next_hops("A+B*3"), (std::vector<NextHopMember>{{"A", 1}, {"B", 3}}));
  EXPECT_EQ(split_next_hops("A*2"), (std::vector<NextHopMember>{{"A", 2}}));
  for (const char* none : {"", "A", "+", "A+", "+A", "A*", "A*0", "A*257", "A*x+B", "*3", "A++B"})
    EXPECT_TRUE(split_next_hops(none).empty()) << none;
}

TEST(NextHops, WordsAreFlagsAndUnreachableIsNotBlackhole) {
  World w;
  for (const char* word : {"drop", "blackhole", "unreachable", "prohibit", "throw", "local", "punt"})
    w.route("10.0.0.0/8", word);
  w.settle();
  EXPECT_EQ(w.group("blackhole").flags, AdjacencyGroup::kDrop | AdjacencyGroup::kBlackhole);
  EXPECT_EQ(w.group("unreachable").flags, AdjacencyGroup::kHostUnreachable);
  EXPECT_EQ(w.group("throw").flags, AdjacencyGroup::kNetUnreachable);
  EXPECT_EQ(w.group("prohibit").flags, AdjacencyGroup::kProhibited);
  EXPECT_EQ(w.group("local").flags, AdjacencyGroup::kLocal);
}

// --- groups ---

TEST(NextHops, GroupsAreSharedAndNestedWithTheirWeights) {
  NextHopDefinitions d;
  d.names["a"] = one(1);
  d.names["b"] = one(2);
  d.names["c"] = one(3);
  d.names["core"].members = {{"a", 1}, {"b", 3}};
  World w(d);
  w.route("10.0.0.0/8", "core");
  w.route("11.0.0.0/8", "core");
  w.route("12.0.0.0/8", "core+c");
  w.settle();
  EXPECT_EQ(w.ports("core"), (std::multiset<unsigned>{1, 2, 2, 2}));
  // Half of core and half of c: 1/8, 3/8, 4/8.
  EXPECT_EQ(w.ports("core+c"), (std::multiset<unsigned>{1, 2, 2, 2, 3, 3, 3, 3}));
  // A member that leads nowhere takes no traffic.
  w.route("13.0.0.0/8", "a+nobody*5");
  w.settle();
  EXPECT_EQ(w.ports("a+nobody*5"), (std::multiset<unsigned>{1}));
  EXPECT_EQ(w.hops.explain("nobody").why, NextHops::Why::kNoNeighbour);
}

TEST(NextHops, SharesThatNeedTooManyBucketsAreRounded) {
  NextHopDefinitions d;
  d.names["a"] = one(1);
  d.names["b"] = one(2);
  d.names["c"] = one(3);
  World w(d);
  w.route("10.0.0.0/8", "g");
  d.names["g"].members = {{"a", 255}, {"b", 254}, {"c", 1}};
  w.hops.define("g", d.names["g"]);
  w.hops.define("a", d.names["a"]);
  w.settle();
  const auto ports = w.ports("g");
  EXPECT_EQ(ports.size(), 256u);
  EXPECT_EQ(ports.count(3), 1u);
  EXPECT_NEAR(double(ports.count(1)), 128, 1);
}

// --- recursion ---

TEST(NextHops, AddressesAreResolvedThroughTheLongestMatchAndAgainWhenItChanges) {
  NextHopDefinitions d;
  d.names["east"] = one(1);
  d.names["west"] = one(2);
  World w(d);
  w.route("0.0.0.0/0", "east");
  w.route("203.0.113.0/24", "192.0.2.1");
  w.settle();
  EXPECT_EQ(w.hops.explain("192.0.2.1").why, NextHops::Why::kOnlyDefault);
  EXPECT_TRUE(w.group("192.0.2.1").members.empty());
  w.route("192.0.0.0/16", "west");
  w.settle();
  EXPECT_EQ(w.last.ids, (std::vector<uint32_t>{w.rib.next_hops().find("192.0.2.1"), w.rib.next_hops().find("west")}));
  EXPECT_EQ(w.ports("192.0.2.1"), (std::multiset<unsigned>{2}));
  w.route("192.0.2.0/24", "east");
  w.settle();
  EXPECT_EQ(w.ports("192.0.2.1"), (std::multiset<unsigned>{1}));
  EXPECT_EQ(w.hops.explain("192.0.2.1").match.length, 24);
  // A shorter route, or one beside it, concerns nobody.
  w.route("192.0.0.0/16", "east");
  w.route("192.0.3.0/24", "west");
  w.settle();
  EXPECT_EQ(w.last.resolved, 0u);
  w.route("192.0.2.0/24", "");
  w.settle();
  EXPECT_EQ(w.hops.explain("192.0.2.1").match.length, 16);
}

TEST(NextHops, TheDefaultRouteResolvesWhereItIsAskedFor) {
  NextHopDefinitions d;
  d.names["east"] = one(1);
  d.via_default = true;
  World w(d);
  w.route("::/0", "east");
  w.route("2001:db8::/32", "2001:db8:ffff::1");
  w.route("0.0.0.0/0", "192.0.2.1");
  w.settle();
  // By its own prefix, which leads back to it; and by a default route through itself.
  EXPECT_EQ(w.hops.explain("2001:db8:ffff::1").why, NextHops::Why::kLoop);
  EXPECT_EQ(w.hops.explain("192.0.2.1").why, NextHops::Why::kLoop);
  w.route("2001:db8::/32", "2001:db9::1");
  w.settle();
  EXPECT_EQ(w.ports("2001:db9::1"), (std::multiset<unsigned>{1}));
}

TEST(NextHops, LoopsAreFoundAndEndWhenTheyAreBroken) {
  NextHopDefinitions d;
  d.names["out"] = one(7);
  World w(d);
  w.route("10.1.0.0/16", "10.2.0.1");
  w.route("10.2.0.0/16", "10.3.0.1");
  w.route("10.3.0.0/16", "10.1.0.1");
  w.route("10.4.0.0/16", "10.1.0.1+out");
  w.settle();
  for (const char* name : {"10.1.0.1", "10.2.0.1", "10.3.0.1"})
    EXPECT_EQ(w.hops.explain(name).why, NextHops::Why::kLoop);
  EXPECT_EQ(w.ports("10.1.0.1+out"), (std::multiset<unsigned>{7}));
  w.route("10.3.0.0/16", "out");
  w.settle();
  for (const char* name : {"10.1.0.1", "10.2.0.1", "10.3.0.1"}) EXPECT_EQ(w.ports(name), (std::multiset<unsigned>{7}));
}

TEST(NextHops, ChainsMayBeAsLongAsThereAreNextHops) {
  World w;
  w.hops.define("end", one(9));
  constexpr uint32_t kLong = 20000;
  for (uint32_t i = 0; i < kLong; ++i) {
    const IpAddress next{0, 0x0a000000 + i + 1, 4};
    w.change({{0, 0x0a000000 + i, 4}, 32}, i + 1 == kLong ? std::string("end") : to_string(next));
  }
  w.settle();
  EXPECT_EQ(w.ports("10.0.0.1"), (std::multiset<unsigned>{9}));
}

// The graph of names in matrices and lists: who reaches whom by transitive closure, shares as fractions of one.
struct Oracle {
  const World& world;
  std::vector<std::string> names;
  std::vector<std::vector<std::pair<size_t, double>>> edges;
  std::vector<std::vector<bool>> reaches;

  explicit Oracle(const World& w) : world(w) {
    const auto& ids = w.rib.next_hops();
    names.assign(ids.names().begin(), ids.names().end());
    // Names that only groups have come behind; what they lead to is worked out as they come.
    for (size_t i = 0; i < names.size(); ++i) {
      edges.emplace_back();
      std::vector<NextHopMember> members;
      const auto& defined = w.hops.definitions().names;
      if (const auto it = defined.find(names[i]); it != defined.end()) {
        members = it->second.members;
      } else if (members = split_next_hops(names[i]); members.empty()) {
        if (const auto address = parse_ip(names[i])) {
          int best = 0;  // the default does not count
          for (const auto& [p, hop] : routes(w)) {
            if (p.address.family == 4 && p.length > best &&
                ((address->lo ^ p.address.lo) & high_mask32(p.length)) == 0) {
              best = p.length;
              members = {{ids.name(hop), 1}};
            }
          }
        }
      }
      for (const auto& m : members) {
        auto at = std::find(names.begin(), names.end(), m.name);
        if (at == names.end()) at = names.insert(names.end(), m.name);
        edges[i].emplace_back(static_cast<size_t>(at - names.begin()), m.weight);
      }
    }
    const size_t n = names.size();
    reaches.assign(n, std::vector<bool>(n));
    for (size_t i = 0; i < n; ++i)
      for (const auto& [to, weight] : edges[i]) reaches[i][to] = true;
    for (size_t k = 0; k < n; ++k)
      for (size_t i = 0; i < n; ++i)
        for (size_t j = 0; j < n; ++j)
          if (reaches[i][k] && reaches[k][j]) reaches[i][j] = true;
  }
  static std::vector<std::pair<IpPrefix, uint32_t>> routes(const World& w) {
    std::vector<std::pair<IpPrefix, uint32_t>> all;
    const Rib rib = w.rib.best_routes();
    for (const Route4& r : rib.routes4()) all.push_back({{{0, r.address, 4}, r.length}, r.next_hop});
    return all;
  }
  // Port -> share of the traffic.
  std::map<unsigned, double> shares(size_t i) const {
    const auto& defined = world.hops.definitions().names;
    if (const auto it = defined.find(names[i]); it != defined.end() && !it->second.neighbours.empty())
      return {{it->second.neighbours[0].port, 1.0}};
    std::vector<std::pair<std::map<unsigned, double>, double>> parts;
    double sum = 0;
    for (const auto& [to, weight] : edges[i]) {
      if (reaches[to][i]) continue;
      auto part = shares(to);
      if (part.empty()) continue;
      parts.emplace_back(std::move(part), weight);
      sum += weight;
    }
    std::map<unsigned, double> all;
    for (const auto& [part, weight] : parts)
      for (const auto& [port, share] : part) all[port] += share * weight / sum;
    return all;
  }
};

TEST(NextHops, RandomChangesMatchClosureAndFractions) {
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    NextHopDefinitions d;
    for (uint8_t n = 1; n <= 3; ++n) d.names["if" + std::to_string(n)] = one(n);
    d.names["pair"].members = {{"if1", 2}, {"10.3.0.1", 1}};
    World w(d);
    const auto address = [&] { return "10." + std::to_string(random() % 6) + ".0." + std::to_string(random() % 2); };
    const auto hop = [&]() -> std::string {
      switch (random() % 6) {
        case 0:
          return "if" + std::to_string(1 + random() % 4);  // if4: nobody
        case 1:
          return "pair";
        case 2:
          return address() + "+if2*" + std::to_string(1 + random() % 3);
        default:
          return address();
      }
    };
    for (int step = 0; step < 60; ++step) {
      for (size_t k = 0; k <= random() % 3; ++k) {
        const auto a = *parse_ip(address());
        const auto length = static_cast<uint8_t>(random() % 4 == 0 ? 0 : random() % 2 == 0 ? 16 : 32);
        w.change({{0, a.lo & high_mask32(length), 4}, length}, random() % 4 == 0 ? std::string() : hop());
      }
      if (random() % 8 == 0)
        w.hops.define("if" + std::to_string(1 + random() % 3),
                      random() % 3 == 0 ? NextHopDefinition{} : one(static_cast<uint8_t>(10 + random() % 5)));
      w.settle();
      const Oracle oracle(w);
      // From nothing, it comes out the same.
      NextHops fresh(w.hops.definitions());
      fresh.extend(w.rib.next_hops());
      fresh.settle([&](const IpAddress& a) { return w.rib.match(a); });
      for (size_t i = 0; i < oracle.names.size(); ++i) {
        const auto want = oracle.shares(i);
        for (const NextHops* which : {const_cast<const NextHops*>(&w.hops), const_cast<const NextHops*>(&fresh)}) {
          const auto* group = which->find(oracle.names[i]);
          if (group == nullptr) continue;  // no route leads to it any more
          std::map<unsigned, double> got;
          double sum = 0;
          for (const auto& m : group->members) sum += m.weight;
          for (const auto& m : group->members) got[which->neighbours()[m.neighbour].port] += m.weight / sum;
          ASSERT_EQ(got.size(), want.size()) << oracle.names[i];
          for (const auto& [port, share] : want)
            ASSERT_NEAR(got[port], share, sum < 256 ? 1e-9 : 0.01) << oracle.names[i];
        }
      }
    }
  }
}

// --- resilient groups ---

std::vector<uint32_t> counts(const std::vector<uint32_t>& buckets, size_t neighbours) {
  std::vector<uint32_t> n(neighbours);
  for (uint32_t b : buckets) ++n.at(b);
  return n;
}

TEST(Resilient, SharesFollowTheWeightsAndWhoLeavesMovesOnlyItsOwnBuckets) {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    Members members;
    const uint32_t n = 2 + random() % 9;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; ++i) {
      members.push_back({i, static_cast<uint16_t>(1 + random() % 4)});
      sum += members.back().weight;
    }
    std::vector<uint32_t> buckets(64 + random() % 200, kNoNeighbour);
    rebalance(buckets, members);
    // The D'Hondt rule keeps lower quota: nobody has less than its share, rounded down.
    const auto first = counts(buckets, n);
    for (uint32_t i = 0; i < n; ++i) EXPECT_GE(first[i], buckets.size() * members[i].weight / sum);
    const uint32_t gone = random() % n;
    Members left = members;
    left.erase(left.begin() + gone);
    const auto before = buckets;
    rebalance(buckets, left);
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (before[b] != gone) {
        ASSERT_EQ(buckets[b], before[b]);
      }
      ASSERT_NE(buckets[b], gone);
    }
    // Who comes back takes its share and no more.
    const auto without = buckets;
    rebalance(buckets, members);
    size_t moved = 0;
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (buckets[b] == without[b]) continue;
      ++moved;
      EXPECT_EQ(buckets[b], gone);
    }
    EXPECT_EQ(moved, counts(buckets, n)[gone]);
    // Ties may have gone to another than at first.
    for (uint32_t i = 0; i < n; ++i) EXPECT_NEAR(counts(buckets, n)[i], first[i], 1);
  }
}

TEST(Resilient, GroupsKeepTheirBucketsWhileOthersChange) {
  NextHopDefinitions d;
  for (uint8_t n = 1; n <= 4; ++n) d.names["n" + std::to_string(n)] = one(n);
  d.names["g"].members = {{"n1", 1}, {"n2", 1}, {"10.0.0.1", 1}, {"n4", 1}};
  d.names["g"].buckets = 64;
  World w(d);
  w.route("192.0.2.0/24", "g");
  w.route("10.0.0.0/24", "n3");
  w.settle();
  const auto before = w.group("g").buckets;
  ASSERT_EQ(before.size(), 64u);
  const uint32_t third = w.group("n3").members[0].neighbour;
  EXPECT_EQ(std::count(before.begin(), before.end(), third), 16);
  // A recursive member that is not resolved any more leaves; routes decide about groups without being changed.
  w.route("10.0.0.0/24", "");
  w.settle();
  EXPECT_EQ(w.last.ids, (std::vector<uint32_t>{w.rib.next_hops().find("g")}));
  for (size_t b = 0; b < 64; ++b) {
    if (before[b] != third) {
      EXPECT_EQ(w.group("g").buckets[b], before[b]);
    }
    EXPECT_NE(w.group("g").buckets[b], third);
  }
  // A copy has the same history from here on, whoever takes the next step.
  World copy = w;
  w.route("10.0.0.0/24", "n3");
  w.settle();
  copy.route("10.0.0.0/24", "n3");
  copy.settle();
  EXPECT_EQ(w.group("g").buckets, copy.group("g").buckets);
}

// --- images ---

size_t lines_changed(const Image& a, const Image& b) {
  size_t lines = 0;
  EXPECT_EQ(a.bytes().size(), b.bytes().size());
  for (size_t at = sizeof(ImageHeader); at < a.bytes().size(); at += 64)
    lines += std::memcmp(a.bytes().data() + at, b.bytes().data() + at, 64) != 0 ? 1 : 0;
  return lines;
}

// Ten thousand next hops go through one neighbour; its address changes, and one line of the image with it.
TEST(PatchedAdjacencies, AnotherAddressOfANeighbourIsOneStoreForAllNextHops) {
  NextHopDefinitions d;
  d.names["gateway"] = one(1);
  d.names["other"] = one(2);
  World w(d);
  w.route("10.0.0.0/8", "gateway");
  for (uint32_t i = 0; i < 10000; ++i)
    w.change({{0, 0xc0000000 + i, 4}, 32}, to_string(IpAddress{0, 0x0a000000 + i, 4}));
  w.settle();
  auto patched = PatchedAdjacencies::create(w.hops.model());
  ASSERT_TRUE(patched.ok());
  // Two replicas, neither of which is held.
  std::shared_ptr<const Image> before, after;
  const auto give = [&](uint16_t port) {
    w.hops.define("gateway", one(port));
    w.settle();
    EXPECT_TRUE(w.last.ids.empty());
    ASSERT_EQ(w.last.neighbours.size(), 1u);
    (*patched)->set_neighbour(w.last.neighbours[0], w.hops.neighbours()[w.last.neighbours[0]]);
    before = std::move(after);
    after = *(*patched)->publish();
  };
  after = *(*patched)->publish();
  give(75);
  give(76);
  give(77);
  EXPECT_EQ(lines_changed(*before, *after), 1u);
  EXPECT_EQ((*patched)->replicas().copied_bytes(), LineSet::kLine);
  const auto view = open_adjacencies(*after);
  ASSERT_TRUE(view.ok());
  for (uint32_t id = 1; id <= w.hops.count(); ++id) {
    ASSERT_NE(view->select(id, id), nullptr);
    ASSERT_EQ(view->select(id, id)->port, 77) << id;
  }
}

// Whatever is set, the patched image answers as one that is built whole.
TEST(PatchedAdjacencies, AnswersAsAnImageThatIsBuiltWhole) {
  std::mt19937 random(21);
  AdjacencyModel model(3);
  model.add(1, neighbour(1));
  auto patched = PatchedAdjacencies::create(model);
  ASSERT_TRUE(patched.ok());
  std::shared_ptr<const Image> held;
  for (int step = 0; step < 300; ++step) {
    if (random() % 4 == 0 || model.neighbours().size() < 5) {
      const auto at = static_cast<uint32_t>(random() % (model.neighbours().size() + 3));
      const auto n = neighbour(static_cast<uint8_t>(random()));
      if (at >= model.neighbours().size()) model.neighbours().resize(at + 1);
      model.neighbours()[at] = n;
      (*patched)->set_neighbour(at, n);
    }
    const auto id = static_cast<uint32_t>(1 + random() % (model.next_hop_count() + (random() % 20 == 0 ? 40 : 1)));
    AdjacencyModel::Group group;
    const auto some = [&] { return static_cast<uint32_t>(random() % model.neighbours().size()); };
    switch (random() % 4) {
      case 0:
        group.flags = AdjacencyGroup::kPunt;
        break;
      case 1:
        group.members = {{some(), 1}};
        break;
      case 2:
        for (size_t k = 0; k < 1 + random() % 6; ++k)
          group.members.push_back({some(), static_cast<uint16_t>(1 + random() % 9)});
        break;
      default:
        group.members = {{some(), 1}, {some(), 1}};
        group.buckets.assign(16 + random() % 200, kNoNeighbour);
        rebalance(group.buckets, group.members);
    }
    if (id > model.next_hop_count()) model.extend(id);
    model.group(id) = group;
    ASSERT_TRUE((*patched)->set_group(id, group));
    if (step % 3 != 0) continue;
    auto image = (*patched)->publish();
    ASSERT_TRUE(image.ok());
    held = *image;
    const auto whole = build_adjacencies(model);
    ASSERT_TRUE(whole.ok());
    const auto a = open_adjacencies(*held), b = open_adjacencies(*whole);
    ASSERT_TRUE(b.ok()) << to_string(b.error());
    const auto sealed = (*patched)->replicas().seal();
    ASSERT_TRUE(sealed.ok());
    ASSERT_TRUE(open_adjacencies(*sealed).ok());  // with every index checked
    for (uint32_t i = 0; i <= model.next_hop_count(); ++i) {
      ASSERT_EQ(a->flags(i), b->flags(i));
      for (uint32_t hash = 0; hash < 64; ++hash) {
        const Adjacency *x = a->select(i, hash << 26), *y = b->select(i, hash << 26);
        ASSERT_EQ(x == nullptr, y == nullptr);
        if (x != nullptr) {
          ASSERT_EQ(std::memcmp(x, y, sizeof *x), 0);
        }
      }
    }
  }
  EXPECT_GT((*patched)->rebuilds(), 1u);
}

// Groups, buckets and neighbours run out one after the other, and after every publication each next hop leads where an
// image that is built whole leads it; a group that no image holds changes nothing.
TEST(PatchedAdjacencies, EachKindOfRoomRunsOut) {
  for (const char* kind : {"groups", "buckets", "neighbours"}) {
    SCOPED_TRACE(kind);
    AdjacencyModel model(4);
    for (uint8_t i = 1; i <= 4; ++i) model.add(i, neighbour(i));
    auto patched = PatchedAdjacencies::create(model);
    ASSERT_TRUE(patched.ok());
    for (uint32_t step = 0; step < 400; ++step) {
      uint32_t id = 1 + step % 4;
      AdjacencyModel::Group group;
      group.members = {{step % static_cast<uint32_t>(model.neighbours().size()), 1}};
      if (kind == std::string("groups")) {
        id = 5 + step;
        model.extend(id);
      } else if (kind == std::string("buckets")) {
        // Larger and larger, so that each is given another place.
        group.members.push_back({1, static_cast<uint16_t>(1 + step)});
      } else {
        const auto fresh = static_cast<uint32_t>(model.neighbours().size());
        model.neighbours().push_back(neighbour(static_cast<uint8_t>(step)));
        (*patched)->set_neighbour(fresh, model.neighbours()[fresh]);
        group.members = {{fresh, 1}};
      }
      const bool fits = adjacency_buckets(group) != 0;
      ASSERT_EQ((*patched)->set_group(id, group), fits);
      if (fits) model.group(id) = group;
      if (step % 3 != 0 && step != 399) continue;
      const auto image = (*patched)->publish();
      ASSERT_TRUE(image.ok()) << to_string(image.error());
      const auto whole = build_adjacencies(model);
      ASSERT_TRUE(whole.ok());
      const auto have = open_adjacencies(**image), want = open_adjacencies(*whole);
      ASSERT_TRUE(have.ok() && want.ok());
      for (uint32_t i = 0; i <= model.next_hop_count(); ++i) {
        for (uint32_t hash = 0; hash < 16; ++hash) {
          const Adjacency *x = have->select(i, hash << 28), *y = want->select(i, hash << 28);
          ASSERT_EQ(x == nullptr, y == nullptr) << i;
          if (x != nullptr) {
            ASSERT_EQ(std::memcmp(x, y, sizeof *x), 0) << "next hop " << i << " in step " << step;
          }
        }
      }
    }
    EXPECT_GT((*patched)->rebuilds(), 0u);
  }
}

}  // namespace
}  // namespace sluice::next_hops_test

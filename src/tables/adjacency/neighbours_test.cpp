// Next hops that are neighbours at live ports: who they are, and what becomes of them as the kernel learns and forgets.
#include "tables/adjacency/neighbours.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "net/packet_builder.h"
#include "net/text.h"
#include "tables/adjacency/next_hops.h"
#include "tables/lpm/rib_sources.h"

namespace sluice::neighbours_test {
namespace {

IpAddress ip(const char* text) {
  return *parse_ip(text);
}
MacAddress mac(uint8_t n) {
  return {{2, 0, 0, 0, 0, n}};
}

// eth0 (2): 10.1.0.1/24, fe80::1/64, port 0. eth1 (3): 10.2.0.1/24, 2001:db8:2::1/64, fe80::1/64, port 1. eth2 (4): no
// output.
struct Machine {
  std::shared_ptr<Neighbours> known = std::make_shared<Neighbours>();
  std::vector<NeighbourOutput> outputs = {{0, "eth0"}, {1, "eth1"}};

  Machine() {
    known->set_link(2, {"eth0", mac(0xa0), 1500, {{ip("10.1.0.1"), 24}, {ip("fe80::1"), 64}}});
    known->set_link(3,
                    {"eth1", mac(0xa1), 9000, {{ip("10.2.0.1"), 24}, {ip("2001:db8:2::1"), 64}, {ip("fe80::1"), 64}}});
    known->set_link(4, {"eth2", mac(0xa2), 1500, {{ip("10.3.0.1"), 24}}});
  }
  std::optional<Neighbours::Found> find(const char* next_hop) const { return known->find(next_hop, outputs); }
};

TEST(Neighbours, AreAddressesOfANetworkAtAnOutput) {
  const Machine m;
  const auto found = m.find("10.2.0.7");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->key, (NeighbourKey{3, ip("10.2.0.7")}));
  EXPECT_EQ(found->interface, "eth1");
  EXPECT_EQ(found->neighbour.port, 1);
  EXPECT_EQ(found->neighbour.mtu, 9000);
  EXPECT_FALSE(found->known);
  EXPECT_TRUE(Neighbours::marked(found->neighbour));
  EXPECT_EQ(m.find("10.1.0.9")->neighbour.port, 0);
  EXPECT_EQ(m.find("2001:db8:2::9")->key, (NeighbourKey{3, ip("2001:db8:2::9")}));
  EXPECT_EQ(m.find("fe80::9%eth0")->key, (NeighbourKey{2, ip("fe80::9")}));
  EXPECT_EQ(m.find("10.9.9.9%eth1")->key, (NeighbourKey{3, ip("10.9.9.9")}));
  EXPECT_EQ(m.find("eth0")->key, (NeighbourKey{2, {}}));
  // No output, no network, this machine itself, everybody, a link that is not said, no name.
  for (const char* none : {"10.3.0.7", "10.9.0.1", "10.2.0.1", "10.2.0.255", "10.2.0.0", "fe80::9", "eth2",
                           "fe80::9%eth2", "eth7", "x%eth0", "", "%", "10.2.0.7%"})
    EXPECT_FALSE(m.find(none)) << none;
}

TEST(Neighbours, TheLongestNetworkDecides) {
  const Machine m;
  m.known->set_link(2, {"eth0", mac(0xa0), 1500, {{ip("10.2.0.129"), 25}}});
  EXPECT_EQ(m.find("10.2.0.130")->key.ifindex, 2);
  EXPECT_EQ(m.find("10.2.0.7")->key.ifindex, 3);
}

TEST(Neighbours, HaveTheirMacsWhileTheKernelKnowsThem) {
  const Machine m;
  const NeighbourKey key{3, ip("10.2.0.7")};
  EXPECT_FALSE(m.known->set(key, mac(7))) << "nobody has asked for it as a next hop";
  auto found = m.find("10.2.0.7");
  EXPECT_TRUE(found->known);
  EXPECT_EQ(found->neighbour.destination, mac(7));
  EXPECT_EQ(found->neighbour.source, mac(0xa1));
  const uint64_t before = m.known->changes();
  EXPECT_FALSE(m.known->set(key, mac(7)));
  EXPECT_EQ(m.known->changes(), before);
  EXPECT_TRUE(m.known->set(key, mac(8)));
  EXPECT_NE(m.known->changes(), before);
  EXPECT_EQ(m.find("10.2.0.7")->neighbour.destination, mac(8));
  EXPECT_TRUE(m.known->forget(key));
  EXPECT_FALSE(m.known->forget(key));
  EXPECT_FALSE(m.find("10.2.0.7")->known);
  // An interface that goes takes its neighbours with it; the name is that of the next one.
  m.known->set(key, mac(7));
  EXPECT_TRUE(m.known->remove_link(3));
  EXPECT_FALSE(m.find("10.2.0.7"));
  EXPECT_FALSE(m.known->knows(key));
  m.known->set_link(9, {"eth1", mac(0xa9), 1500, {{ip("10.2.0.1"), 24}}});
  EXPECT_EQ(m.find("10.2.0.7")->key.ifindex, 9);
}

TEST(Neighbours, AnInterfaceIsFoundByTheNameThatTheGraphKnows) {
  const Machine m;
  m.known->set_link(3, {"wan", mac(0xa1), 1500, {{ip("10.2.0.1"), 24}}});
  EXPECT_EQ(m.find("10.2.0.7")->interface, "wan");
  EXPECT_EQ(m.find("eth1")->key.ifindex, 3);
}

// A frame as AdjacencyRewrite leaves it.
std::vector<uint8_t> marked_frame(const Neighbours::Found& found, std::vector<uint8_t> frame) {
  std::memcpy(frame.data(), found.neighbour.destination.bytes, 6);
  std::memcpy(frame.data() + 6, found.neighbour.source.bytes, 6);
  return frame;
}

TEST(Neighbours, MarkedFramesSayWhomTheyAreFor) {
  const Machine m;
  auto frame = marked_frame(*m.find("10.2.0.7"), udp4("10.1.0.5", "8.8.8.8").build());
  ASSERT_TRUE(Neighbours::marked(frame.data(), frame.size()));
  EXPECT_FALSE(Neighbours::marked(frame.data(), 13));
  EXPECT_EQ(m.known->whom(frame.data(), frame.size()), (NeighbourKey{3, ip("10.2.0.7")}));
  EXPECT_FALSE(m.known->address(frame.data(), {3, ip("10.2.0.7")}));
  m.known->set({3, ip("10.2.0.7")}, mac(7));
  EXPECT_TRUE(m.known->address(frame.data(), {3, ip("10.2.0.7")}));
  EXPECT_EQ(std::memcmp(frame.data(), mac(7).bytes, 6), 0);
  EXPECT_EQ(std::memcmp(frame.data() + 6, mac(0xa1).bytes, 6), 0);
  EXPECT_FALSE(Neighbours::marked(frame.data(), frame.size()));
  // A number that nobody has.
  auto wrong = marked_frame(*m.find("eth1"), udp4("10.1.0.5", "10.2.0.9").build());
  wrong[2] = 0xff;
  EXPECT_FALSE(m.known->whom(wrong.data(), wrong.size()));
}

TEST(Neighbours, OfAnInterfaceAloneEachPacketHasItsOwn) {
  const Machine m;
  const auto found = *m.find("eth1");
  const auto whom = [&](std::vector<uint8_t> frame) {
    frame = marked_frame(found, std::move(frame));
    return m.known->whom(frame.data(), frame.size());
  };
  EXPECT_EQ(whom(udp4("10.1.0.5", "10.2.0.9").build()), (NeighbourKey{3, ip("10.2.0.9")}));
  EXPECT_EQ(whom(udp6("2001:db8:1::5", "2001:db8:2::9").build()), (NeighbourKey{3, ip("2001:db8:2::9")}));
  // Directed broadcasts (RFC 2644), and this machine itself.
  for (const char* none : {"10.2.0.255", "10.2.0.0", "10.2.0.1"})
    EXPECT_FALSE(whom(udp4("10.1.0.5", none).build())) << none;
  auto cut = udp4("10.1.0.5", "10.2.0.9").build();
  cut.resize(14 + 19);
  EXPECT_FALSE(whom(cut));
}

TEST(Neighbours, QuestionsAreToldOnceUntilTheyAreTaken) {
  Neighbours known;
  int told = 0;
  known.on_ask([&] { ++told; });
  known.ask({3, ip("10.2.0.7")});
  known.ask({3, ip("10.2.0.8")});
  EXPECT_EQ(told, 1);
  EXPECT_EQ(known.take_asked().size(), 2u);
  EXPECT_TRUE(known.take_asked().empty());
  for (size_t i = 0; i < 2 * Neighbours::kMostAsked; ++i) known.ask({3, ip("10.2.0.7")});
  EXPECT_EQ(told, 2);
  EXPECT_EQ(known.take_asked().size(), Neighbours::kMostAsked);
}

// --- next hops ---

struct World : Machine {
  SourcedRib rib;
  NextHops hops;
  NextHops::Changes last;

  explicit World(NextHopDefinitions definitions = {}) : hops(with(*this, std::move(definitions))) {}
  static NextHopDefinitions with(const Machine& m, NextHopDefinitions definitions) {
    definitions.reach = {m.known, m.outputs};
    return definitions;
  }
  void route(const char* where, const char* hop) {
    rib.add(*parse_prefix(where), {0, static_cast<uint16_t>(rib.next_hops().intern(hop)), rib.source("static"), 1});
    hops.extend(rib.next_hops());
    hops.route_changed(*parse_prefix(where));
    settle();
  }
  void settle() {
    last = hops.settle([&](const IpAddress& a) { return rib.match(a); });
  }
  void follow() {
    hops.neighbours_changed();
    settle();
  }
  const AdjacencyModel::Neighbour& only(const char* name) {
    const auto& members = hops.find(name)->members;
    EXPECT_EQ(members.size(), 1u) << name;
    return hops.neighbours()[members.at(0).neighbour];
  }
};

TEST(NextHopsAtLivePorts, FollowTheKernelAndTellWhatItChanges) {
  World w;
  w.route("0.0.0.0/0", "10.2.0.7");
  w.route("8.0.0.0/8", "10.1.0.7");
  EXPECT_TRUE(Neighbours::marked(w.only("10.2.0.7")));
  EXPECT_EQ(w.hops.explain("10.2.0.7").why, NextHops::Why::kNeighbour);
  w.known->set({3, ip("10.2.0.7")}, mac(7));
  w.follow();
  EXPECT_EQ(w.only("10.2.0.7").destination, mac(7));
  EXPECT_EQ(w.last.neighbours.size(), 1u);
  EXPECT_TRUE(w.last.ids.empty()) << "a neighbour that is known is one store";
  w.follow();
  EXPECT_TRUE(w.last.neighbours.empty());
  w.known->set({3, ip("10.2.0.7")}, mac(8));
  w.follow();
  EXPECT_EQ(w.only("10.2.0.7").destination, mac(8));
  w.known->forget({3, ip("10.2.0.7")});
  w.follow();
  EXPECT_TRUE(Neighbours::marked(w.only("10.2.0.7")));
  EXPECT_EQ(w.last.neighbours.size(), 1u);
}

TEST(NextHopsAtLivePorts, AStaticAdjacencyWins) {
  NextHopDefinitions definitions;
  definitions.names["10.2.0.7"].neighbours = {{mac(0x77), mac(0x78), 5}};
  World w(std::move(definitions));
  w.known->set({3, ip("10.2.0.7")}, mac(7));
  w.route("0.0.0.0/0", "10.2.0.7");
  EXPECT_EQ(w.only("10.2.0.7").destination, mac(0x77));
  w.known->set({3, ip("10.2.0.7")}, mac(8));
  w.follow();
  EXPECT_EQ(w.only("10.2.0.7").destination, mac(0x77));
  // One that is given during the run, and one that is taken away.
  w.hops.define("10.2.0.7", {});
  w.settle();
  EXPECT_EQ(w.only("10.2.0.7").destination, mac(8));
  NextHopDefinition again;
  again.neighbours = {{mac(0x79), mac(0x78), 5}};
  w.hops.define("10.2.0.7", again);
  w.follow();
  EXPECT_EQ(w.only("10.2.0.7").destination, mac(0x79));
  EXPECT_EQ(w.hops.explain("10.2.0.7").why, NextHops::Why::kDefined);
}

TEST(NextHopsAtLivePorts, AreMembersOfGroupsAndWhatRoutesLeadTo) {
  World w;
  w.route("8.0.0.0/8", "10.1.0.7+10.2.0.7*3");
  w.route("172.16.0.0/12", "10.2.0.9");
  w.route("9.0.0.0/8", "172.16.0.1");
  EXPECT_EQ(w.hops.find("10.1.0.7+10.2.0.7*3")->members.size(), 2u);
  EXPECT_EQ(w.hops.explain("172.16.0.1").why, NextHops::Why::kRoute);
  w.known->set({3, ip("10.2.0.9")}, mac(9));
  w.follow();
  EXPECT_EQ(w.only("172.16.0.1").destination, mac(9));
}

// An address that only a route to an interface covers is a neighbour there itself; that a packet is for somebody else
// does not matter.
TEST(NextHopsAtLivePorts, ARouteToAnInterfaceMakesAnAddressANeighbourThere) {
  World w;
  w.route("172.16.0.0/12", "eth1");
  w.route("9.0.0.0/8", "172.16.0.1");
  EXPECT_EQ(w.hops.explain("eth1").why, NextHops::Why::kNeighbour);
  EXPECT_TRUE(w.hops.explain("eth1").whoever);
  EXPECT_TRUE(Neighbours::marked(w.only("172.16.0.1")));
  EXPECT_FALSE(w.only("172.16.0.1") == w.only("eth1"));
  w.known->set({3, ip("172.16.0.1")}, mac(9));
  w.follow();
  EXPECT_EQ(w.only("172.16.0.1").destination, mac(9));
  EXPECT_EQ(w.last.neighbours.size(), 1u);
  EXPECT_TRUE(Neighbours::marked(w.only("eth1")));
  w.route("172.16.0.0/12", "10.1.0.7");
  EXPECT_EQ(w.hops.explain("172.16.0.1").why, NextHops::Why::kRoute);
  EXPECT_TRUE(w.only("172.16.0.1") == w.only("10.1.0.7"));
}

// An interface that loses its addresses and gets them back a thousand times takes no more room than one that does once.
TEST(NextHopsAtLivePorts, AFlapTakesNoRoom) {
  World w;
  w.route("0.0.0.0/0", "10.2.0.7");
  w.route("8.0.0.0/8", "10.1.0.7");
  const size_t room = w.hops.neighbours().size();
  for (int i = 0; i < 1000; ++i) {
    w.known->set_link(3, {"eth1", mac(0xa1), 9000, {}});
    w.follow();
    EXPECT_TRUE(w.hops.find("10.2.0.7")->members.empty());
    w.known->set_link(3, {"eth1", mac(0xa1), 9000, {{ip("10.2.0.1"), 24}}});
    w.follow();
    EXPECT_EQ(w.only("10.2.0.7").port, 1);
  }
  EXPECT_LE(w.hops.neighbours().size(), room + 1);
  EXPECT_EQ(w.only("10.1.0.7").port, 0);
}

}  // namespace
}  // namespace sluice::neighbours_test

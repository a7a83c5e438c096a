#include "flows/nat.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "flows/nat_testing.h"

namespace sluice {
namespace {

using testing::nat_tuple;

constexpr uint8_t kTcp = 6, kUdp = 17, kIcmp = 1, kGre = 47;

struct Tested {
  Nat nat;
  int32_t leaves = -1;
  std::set<std::pair<uint32_t, uint16_t>> taken;

  explicit Tested(const std::vector<std::string>& lines, const std::vector<NatOutput>& outputs = {}) {
    std::vector<NatRule> rules;
    for (const std::string& line : lines) rules.push_back(*parse_nat_rule(line));
    const auto ok = nat.use(rules, outputs);
    EXPECT_TRUE(ok.ok()) << (ok.ok() ? "" : ok.error().message);
  }
  Nat::Given source(const NatTuple& t) {
    return nat.source(
        t, [&] { return leaves; },
        [&](const NatTuple& to) {
          return taken.contains({to.source, to.source_port});
        });
  }
};

std::string text_of(const NatTuple& t) {
  const auto end = [](uint32_t address, uint16_t port) {
    return to_string(IpAddress{.lo = address, .family = 4}) + ":" + std::to_string(port);
  };
  return end(t.source, t.source_port) + ">" + end(t.destination, t.destination_port);
}

TEST(Nat, ASourceKeepsItsPortAndItsMappingTowardsEverybody) {
  Tested t({"snat 10.0.0.0/8 to 203.0.113.1"});
  const auto a = t.source(nat_tuple("10.0.0.1", 5000, "192.0.2.1", 80, kTcp));
  const auto b = t.source(nat_tuple("10.0.0.1", 5000, "192.0.2.2", 81, kTcp));
  EXPECT_EQ(text_of(a.tuple), "203.0.113.1:5000>192.0.2.1:80");
  EXPECT_EQ(text_of(b.tuple), "203.0.113.1:5000>192.0.2.2:81");
  EXPECT_EQ(a.mapping, b.mapping);
  // Another host with the same port gets another one, and another protocol its own ports.
  const auto c = t.source(nat_tuple("10.0.0.2", 5000, "192.0.2.1", 80, kTcp));
  EXPECT_NE(c.tuple.source_port, 5000);
  EXPECT_GE(c.tuple.source_port, 1024);
  EXPECT_EQ(t.source(nat_tuple("10.0.0.2", 5000, "192.0.2.1", 80, kUdp)).tuple.source_port, 5000);
  // A mapping lives as long as one of its connections.
  t.nat.release(a.mapping);
  EXPECT_NE(t.source(nat_tuple("10.0.0.3", 5000, "192.0.2.1", 80, kTcp)).tuple.source_port, 5000);
  t.nat.release(b.mapping);
  EXPECT_EQ(t.source(nat_tuple("10.0.0.4", 5000, "192.0.2.1", 80, kTcp)).tuple.source_port, 5000);
}

TEST(Nat, EveryPortOfARangeIsGivenOnceAndThenNone) {
  Tested t({"snat 10.0.0.0/8 to 203.0.113.1 ports 3000-3129"});
  std::set<uint16_t> ports;
  std::vector<uint32_t> mappings;
  for (uint32_t n = 0; n < 130; ++n) {
    const auto given = t.source({0x0a000000 + n, 0xc0000201, static_cast<uint16_t>(n * 7), 80, kUdp});
    ASSERT_FALSE(given.refused);
    EXPECT_TRUE(ports.insert(given.tuple.source_port).second);
    mappings.push_back(given.mapping);
  }
  EXPECT_EQ(*ports.begin(), 3000);
  EXPECT_EQ(*ports.rbegin(), 3129);
  EXPECT_TRUE(t.source(nat_tuple("10.9.9.9", 1, "192.0.2.1", 80, kUdp)).refused);
  t.nat.release(mappings[77]);
  EXPECT_FALSE(t.source(nat_tuple("10.9.9.9", 1, "192.0.2.1", 80, kUdp)).refused);
  EXPECT_TRUE(t.source(nat_tuple("10.9.9.8", 1, "192.0.2.1", 80, kUdp)).refused);
  EXPECT_EQ(t.nat.mappings(), 130u);
}

TEST(Nat, APortOfTheSystemStaysWhereNoRangeIsAskedFor) {
  Tested t({"snat 10.0.0.0/8 to 203.0.113.1"});
  EXPECT_EQ(t.source(nat_tuple("10.0.0.1", 53, "192.0.2.1", 80, kUdp)).tuple.source_port, 53);
  EXPECT_GE(t.source(nat_tuple("10.0.0.2", 53, "192.0.2.1", 80, kUdp)).tuple.source_port, 1024);
  Tested asked({"snat 10.0.0.0/8 to 203.0.113.1 ports 1024-65535"});
  EXPECT_GE(asked.source(nat_tuple("10.0.0.1", 53, "192.0.2.1", 80, kUdp)).tuple.source_port, 1024);
}

TEST(Nat, AHostHasAsManyPortsAsItMay) {
  Tested t({"snat 10.0.0.0/8 to 203.0.113.1 per-host 2"});
  const auto first = t.source(nat_tuple("10.0.0.1", 1, "192.0.2.1", 80, kUdp));
  EXPECT_FALSE(t.source(nat_tuple("10.0.0.1", 2, "192.0.2.1", 80, kUdp)).refused);
  EXPECT_TRUE(t.source(nat_tuple("10.0.0.1", 3, "192.0.2.1", 80, kUdp)).refused);
  EXPECT_FALSE(t.source(nat_tuple("10.0.0.1", 1, "192.0.2.9", 80, kUdp)).refused);
  EXPECT_FALSE(t.source(nat_tuple("10.0.0.2", 3, "192.0.2.1", 80, kUdp)).refused);
  t.nat.release(first.mapping);
  t.nat.release(first.mapping);
  EXPECT_FALSE(t.source(nat_tuple("10.0.0.1", 3, "192.0.2.1", 80, kUdp)).refused);
}

TEST(Nat, AllPortsOfAHostGetOneAddressOfThePool) {
  Tested t({"snat 10.0.0.0/8 to 203.0.113.16/28"});
  std::set<uint32_t> addresses;
  for (uint32_t host = 1; host < 200; ++host) {
    const uint32_t first = t.source({0x0a000000 + host, 0xc0000201, 5, 80, kUdp}).tuple.source;
    EXPECT_EQ(t.source({0x0a000000 + host, 0xc0000202, 6, 80, kTcp}).tuple.source, first);
    addresses.insert(first);
  }
  EXPECT_EQ(addresses.size(), 16u);
}

TEST(Nat, TheFirstRuleThatMatchesDecidesWithItsOutput) {
  Tested t({"snat 10.0.0.0/8 dst 10.0.0.0/8 to itself", "masquerade 10.0.0.0/8 via eth1", "snat via 2 to 203.0.113.2"},
           {{0, "eth0", 0}, {1, "eth1", *parse_ipv4("203.0.113.1")}, {2, "", 0}});
  t.leaves = 1;
  EXPECT_EQ(text_of(t.source(nat_tuple("10.0.0.1", 5, "10.0.0.2", 80, kGre)).tuple), "10.0.0.1:5>10.0.0.2:80");
  EXPECT_EQ(t.source(nat_tuple("10.0.0.1", 5000, "192.0.2.1", 80, kTcp)).tuple.source, *parse_ipv4("203.0.113.1"));
  EXPECT_EQ(text_of(t.source(nat_tuple("11.0.0.1", 5000, "192.0.2.1", 80, kTcp)).tuple), "11.0.0.1:5000>192.0.2.1:80");
  t.leaves = 2;
  EXPECT_EQ(t.source(nat_tuple("10.0.0.1", 5000, "192.0.2.1", 80, kTcp)).tuple.source, *parse_ipv4("203.0.113.2"));
  t.leaves = 0;
  EXPECT_EQ(text_of(t.source(nat_tuple("10.0.0.1", 5000, "192.0.2.1", 80, kTcp)).tuple), "10.0.0.1:5000>192.0.2.1:80");
}

TEST(Nat, AnOutputThatIsNotThereIsAnErrorAndChangesNothing) {
  Tested t({"snat 10.0.0.0/8 to 203.0.113.1"});
  for (const char* line :
       {"masquerade via eth9", "masquerade via 7", "snat via eth9 to 203.0.113.1", "masquerade via eth0"}) {
    const NatRule rule = *parse_nat_rule(line);
    const NatOutput output{0, "eth0", 0};
    EXPECT_FALSE(t.nat.use({&rule, 1}, {&output, 1}).ok()) << line;
  }
  EXPECT_EQ(t.source(nat_tuple("10.0.0.1", 5000, "192.0.2.1", 80, kTcp)).tuple.source, *parse_ipv4("203.0.113.1"));
}

TEST(Nat, DestinationsAreTranslatedByTheirRules) {
  Tested t({"dnat 203.0.113.5 tcp 443 to 10.0.0.5:8443", "dnat 203.0.113.5 icmp to itself",
            "dnat 203.0.113.5 to 10.0.0.6", "static 10.1.0.0/24 to 203.0.114.0/24"});
  const auto to = [&](uint16_t port, uint8_t protocol) {
    return text_of(t.nat.destination(nat_tuple("192.0.2.1", 9, "203.0.113.5", port, protocol)));
  };
  EXPECT_EQ(to(443, kTcp), "192.0.2.1:9>10.0.0.5:8443");
  EXPECT_EQ(to(443, kUdp), "192.0.2.1:9>10.0.0.6:443");
  EXPECT_EQ(to(9, kIcmp), "192.0.2.1:9>203.0.113.5:9");
  EXPECT_EQ(text_of(t.nat.destination(nat_tuple("192.0.2.1", 9, "203.0.114.77", 1, kGre))), "192.0.2.1:9>10.1.0.77:1");
  EXPECT_EQ(text_of(t.source(nat_tuple("10.1.0.77", 9, "192.0.2.1", 1, kGre)).tuple), "203.0.114.77:9>192.0.2.1:1");
}

TEST(Nat, AMappingThatAnybodyMaySendToIsFoundFromOutside) {
  Tested t({"snat 10.0.0.0/8 to 203.0.113.1 filter any", "snat 11.0.0.0/8 to 203.0.113.2"});
  const auto given = t.source(nat_tuple("10.0.0.1", 5000, "192.0.2.1", 80, kUdp));
  (void)t.source(nat_tuple("11.0.0.1", 5000, "192.0.2.1", 80, kUdp));
  EXPECT_EQ(text_of(t.nat.destination(nat_tuple("198.51.100.9", 7, "203.0.113.1", 5000, kUdp))),
            "198.51.100.9:7>10.0.0.1:5000");
  EXPECT_EQ(text_of(t.nat.destination(nat_tuple("198.51.100.9", 7, "203.0.113.1", 5001, kUdp))),
            "198.51.100.9:7>203.0.113.1:5001");
  EXPECT_EQ(text_of(t.nat.destination(nat_tuple("198.51.100.9", 7, "203.0.113.2", 5000, kUdp))),
            "198.51.100.9:7>203.0.113.2:5000");
  t.nat.release(given.mapping);
  EXPECT_EQ(text_of(t.nat.destination(nat_tuple("198.51.100.9", 7, "203.0.113.1", 5000, kUdp))),
            "198.51.100.9:7>203.0.113.1:5000");
}

TEST(Nat, AConnectionWhoseAnswersWouldBeAnothersGetsAPortOfItsOwn) {
  Tested t({"snat 10.0.0.0/8 to 203.0.113.1 ports 5000-5003"});
  for (const uint16_t port : {5000, 5001}) t.taken.insert({*parse_ipv4("203.0.113.1"), port});
  const NatTuple packet = nat_tuple("10.0.0.1", 5000, "192.0.2.1", 80, kTcp);
  const auto given = t.source(packet);
  EXPECT_FALSE(given.refused);
  EXPECT_GE(given.tuple.source_port, 5002);
  EXPECT_LE(given.tuple.source_port, 5003);
  for (const uint16_t port : {5002, 5003}) t.taken.insert({*parse_ipv4("203.0.113.1"), port});
  EXPECT_TRUE(t.source(packet).refused);
  EXPECT_EQ(t.nat.mappings(), 1u);
  t.nat.release(given.mapping);
  EXPECT_EQ(t.nat.mappings(), 0u);
}

TEST(Nat, WithoutPortsAnAddressOfThePoolTellsConnectionsApart) {
  Tested t({"snat 10.0.0.0/8 to 203.0.113.4/31"});
  const NatTuple packet = nat_tuple("10.0.0.1", 0, "192.0.2.1", 0, kGre);
  const uint32_t first = t.source(packet).tuple.source;
  t.taken.insert({first, uint16_t{0}});
  const auto second = t.source(packet);
  EXPECT_FALSE(second.refused);
  EXPECT_EQ(second.tuple.source, first ^ 1u);
  t.taken.insert({first ^ 1u, uint16_t{0}});
  EXPECT_TRUE(t.source(packet).refused);
}

TEST(Nat, WhatARuleMayBeForDoesNotLeaveUntracked) {
  Tested t({"snat 10.0.0.0/8 tcp 80 dst 10.0.0.0/8 to itself", "snat 10.0.0.0/8 via 1 to 203.0.113.1",
            "dnat 203.0.113.5 tcp 443 to 10.0.0.5"});
  EXPECT_TRUE(t.nat.may_be_for(nat_tuple("10.0.0.1", 1, "192.0.2.1", 80, kTcp), true));
  EXPECT_FALSE(t.nat.may_be_for(nat_tuple("10.0.0.1", 1, "10.0.0.2", 80, kTcp), true));
  EXPECT_TRUE(t.nat.may_be_for(nat_tuple("10.0.0.1", 0, "10.0.0.2", 0, kTcp), false));
  EXPECT_TRUE(t.nat.may_be_for(nat_tuple("192.0.2.1", 1, "203.0.113.5", 443, kTcp), true));
  EXPECT_FALSE(t.nat.may_be_for(nat_tuple("192.0.2.1", 1, "203.0.113.5", 444, kTcp), true));
  EXPECT_TRUE(t.nat.may_be_for(nat_tuple("192.0.2.1", 0, "203.0.113.5", 0, kTcp), false));
}

}  // namespace
}  // namespace sluice

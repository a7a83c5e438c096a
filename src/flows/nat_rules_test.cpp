#include "flows/nat_rules.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "flows/nat_testing.h"

namespace sluice {
namespace {

using testing::nat_tuple;

NatRule rule(const std::string& line) {
  auto r = parse_nat_rule(line);
  EXPECT_TRUE(r.ok()) << line << ": " << (r.ok() ? "" : r.error().message);
  return r.ok() ? *r : NatRule();
}

TEST(NatRules, AreWrittenAsTheyAreRead) {
  for (const char* line :
       {"snat 10.0.0.0/8 to 203.0.113.16-203.0.113.31", "snat 10.0.0.0/8 to 203.0.113.1 ports 2000-3000 per-host 20",
        "snat 10.0.0.0/8 dst !10.0.0.0/8 via eth1 to 203.0.113.1 filter any", "snat to 203.0.113.1",
        "snat tcp 80-90 src !10.0.0.1 sport 7 to 203.0.113.1", "masquerade via eth1", "masquerade 10.0.0.0/8 udp via 3",
        "masquerade via 1 ports 5000-6000", "dnat 203.0.113.5 tcp 443 to 10.0.0.5:8443",
        "dnat 203.0.113.5 udp 5000-5010 src 198.51.100.0/24 to 10.0.0.5-10.0.0.6:1-9", "dnat 203.0.113.5 to 10.0.0.5",
        "dnat 203.0.113.5 icmp to 10.0.0.5", "dnat 203.0.113.5 50 to itself", "snat 10.0.0.0/8 to itself",
        "static 10.0.0.7 to 203.0.113.7", "static 10.0.0.0/28 to 203.0.113.0/28", "snat 10.0.0.1 gre to 203.0.113.1"}) {
    EXPECT_EQ(to_string(rule(line)), line);
  }
  EXPECT_EQ(to_string(rule("snat 10.0.0.0/8 tcp dport 80 to 203.0.113.16/28 ports 1024-65535")),
            "snat 10.0.0.0/8 tcp 80 to 203.0.113.16-203.0.113.31 ports 1024-65535");
}

TEST(NatRules, WhatIsNoneIsRefused) {
  for (const char* line : {"",
                           "nat",
                           "snat",
                           "snat 10.0.0.0/8",
                           "snat 10.0.0.0/8 to",
                           "snat 10.0.0.1/8 to 203.0.113.1",
                           "snat 10.0.0.0/8 to 2001:db8::1",
                           "snat 2001:db8::/32 to 203.0.113.1",
                           "snat 10.0.0.0/8 to 203.0.113.1 ports 0-5",
                           "snat 10.0.0.0/8 to 203.0.113.1 ports 7-6",
                           "snat 10.0.0.0/8 to 203.0.113.1 ports 1-65536",
                           "snat 10.0.0.0/8 to 203.0.113.1 per-host 0",
                           "snat 10.0.0.0/8 to 203.0.113.1 filter some",
                           "snat 10.0.0.0/8 to 203.0.113.1 more",
                           "snat 10.0.0.0/8 to 10.0.0.0/8",
                           "snat 10.0.0.0/8 to !10.0.0.1",
                           "snat 10.0.0.0/8 to 203.0.113.9-203.0.113.1",
                           "snat 10.0.0.0/8 80 to",
                           "snat dport 80 to 203.0.113.1",
                           "snat gre dport 80 to 203.0.113.1",
                           "masquerade",
                           "masquerade 10.0.0.0/8",
                           "masquerade via",
                           "masquerade via averyveryverylongname",
                           "masquerade via eth0 to 203.0.113.1",
                           "dnat 203.0.113.5 to 10.0.0.5:80",
                           "dnat 203.0.113.5 tcp to 10.0.0.5:0",
                           "dnat 203.0.113.5 via eth0 to 10.0.0.5",
                           "static 10.0.0.0/28 to 203.0.113.7",
                           "static 10.0.0.1",
                           "static !10.0.0.1 to 203.0.113.1",
                           "dnat 203.0.113.5 tcp 1 to itself ports 5"}) {
    EXPECT_FALSE(parse_nat_rule(line).ok()) << line;
  }
}

TEST(NatRules, AnOutputsNameHasNoByteThatALineCannotSay) {
  for (const std::string name :
       {std::string("0000\0", 5), std::string("eth\x1f"), std::string("eth#0"), std::string("\xc3\xa9")})
    EXPECT_FALSE(parse_nat_rule("masquerade udp via " + name).ok());
}

TEST(NatRules, MatchByEachOfTheirParts) {
  const NatRule r = rule("snat 10.0.0.0/8 tcp 80-90 dst !198.51.100.0/24 sport 1000-2000 to 203.0.113.1");
  const NatTuple t = nat_tuple("10.1.2.3", 1000, "192.0.2.1", 90, 6);
  EXPECT_TRUE(r.matches(t));
  for (const NatTuple& other :
       {nat_tuple("11.1.2.3", 1000, "192.0.2.1", 90, 6), nat_tuple("10.1.2.3", 999, "192.0.2.1", 90, 6),
        nat_tuple("10.1.2.3", 1000, "198.51.100.9", 90, 6), nat_tuple("10.1.2.3", 1000, "192.0.2.1", 91, 6),
        nat_tuple("10.1.2.3", 1000, "192.0.2.1", 90, 17)}) {
    EXPECT_FALSE(r.matches(other));
  }
}

TEST(NatRules, RandomWordsAreReadOrRefusedAndReadAgain) {
  const char* const words[] = {"snat",
                               "dnat",
                               "masquerade",
                               "static",
                               "to",
                               "itself",
                               "via",
                               "eth0",
                               "1",
                               "src",
                               "dst",
                               "sport",
                               "dport",
                               "ports",
                               "1-9",
                               "tcp",
                               "udp",
                               "icmp",
                               "10.0.0.0/8",
                               "!10.0.0.0/8",
                               "203.0.113.1",
                               "203.0.113.1:80",
                               "203.0.113.1-203.0.113.4",
                               "per-host",
                               "filter",
                               "any",
                               "0.0.0.0/0",
                               ":",
                               "-",
                               "!"};
  std::mt19937_64 random(7);
  int read = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string line = words[random() % 4];
    for (uint64_t n = random() % 8; n > 0; --n) line += std::string(" ") + words[random() % std::size(words)];
    const auto r = parse_nat_rule(line);
    if (!r.ok()) continue;
    ++read;
    const auto again = parse_nat_rule(to_string(*r));
    ASSERT_TRUE(again.ok()) << line << " -> " << to_string(*r) << ": " << again.error().message;
    ASSERT_EQ(std::memcmp(&*again, &*r, sizeof *r), 0) << line << " -> " << to_string(*r);
  }
  EXPECT_GT(read, 200);
}

}  // namespace
}  // namespace sluice

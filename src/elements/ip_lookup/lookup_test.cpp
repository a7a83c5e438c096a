#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "elements/testing.h"
#include "net/text.h"

namespace sluice {
namespace {

using testing::expect;

const char* const kNames[] = {"IPLookup",       "LinearIPLookup", "RadixIPLookup",
                              "DirectIPLookup", "RangeIPLookup",  "StaticIPLookup"};

testing::Passage look_up(const char* name, const std::string& routes, unsigned outputs,
                         const std::string& destination) {
  std::string before = fmt::format("r :: {}({});", name, routes);
  for (unsigned i = 1; i < outputs; ++i) before += fmt::format("r[{}] -> Discard;", i);
  return expect(udp4("10.0.0.1", destination).no_link()).through("CheckIPHeader -> r", before);
}

TEST(IPLookup, EveryNameFindsTheLongestPrefix) {
  const char* routes = "10.0.0.0/8 0, 10.1.0.0/255.255.0.0 192.0.2.1 1, 10.1.2.3 2, 0.0.0.0/0 192.0.2.9 3";
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    EXPECT_EQ(look_up(name, routes, 4, "10.9.0.1").leaves_by(0).packet.key.dst_lo, *parse_ipv4("10.9.0.1"));
    EXPECT_EQ(look_up(name, routes, 4, "10.1.0.1").leaves_by(1).packet.key.dst_lo, *parse_ipv4("192.0.2.1"));
    look_up(name, routes, 4, "10.1.2.3").leaves_by(2);
    EXPECT_EQ(look_up(name, routes, 4, "203.0.113.1").leaves_by(3).packet.key.dst_lo, *parse_ipv4("192.0.2.9"));
  }
}

TEST(IPLookup, BytesLeftOutBeforeTheSlashAreZero) {
  const char* routes = "0/0 0, 10/8 1, 172.16/12 2, 192.0.2/255.255.255.0 3";
  look_up("StaticIPLookup", routes, 4, "0.0.0.1").leaves_by(0);
  look_up("StaticIPLookup", routes, 4, "10.9.0.1").leaves_by(1);
  look_up("StaticIPLookup", routes, 4, "172.31.0.1").leaves_by(2);
  look_up("StaticIPLookup", routes, 4, "192.0.2.200").leaves_by(3);
  look_up("StaticIPLookup", routes, 4, "192.0.3.1").leaves_by(0);
  for (const char* bad : {"10", "10.1", "10./8", "/8", ".1/8", "1.2.3.4.5/8", "10/33", "300/8", "10/"}) {
    EXPECT_EQ(testing::findings(
                  fmt::format("i :: InfiniteSource -> CheckIPHeader -> r :: IPLookup({} 0);\nr[0] -> Discard;", bad)),
              fmt::format("1:55: '{}' is not an IPv4 prefix", bad));
  }
}

TEST(IPLookup, NoRouteDrops) {
  for (const char* name : kNames) look_up(name, "10.0.0.0/8 0", 1, "11.0.0.1").drops(DropReason::kNoRoute);
  look_up("IPLookup", "", 1, "11.0.0.1").drops(DropReason::kNoRoute);
}

TEST(IPLookup, IPv6HasNoRoute) {
  expect(udp6("2001:db8::1", "2001:db8::2")).through("IPInput -> IPLookup(0.0.0.0/0 0)").drops(DropReason::kNoRoute);
}

TEST(IPLookup, TheLaterOfTwoRoutesWins) {
  EXPECT_EQ(testing::findings("i :: InfiniteSource -> CheckIPHeader -> r :: IPLookup(10.0.0.0/8 0, 10.0.0.0/8 "
                              "1);\nr[0] -> Discard; r[1] -> Discard;"),
            "1:69: a later route for 10.0.0.0/8 replaces the one before");
  look_up("RadixIPLookup", "10.0.0.0/8 0, 10.0.0.0/8 1", 2, "10.0.0.9").leaves_by(1);
}

}  // namespace
}  // namespace sluice

#include "formats/route_text.h"

#include <gtest/gtest.h>

#include <random>

#include "net/text.h"
#include "tables/lpm/lpm_test_tables.h"

namespace sluice {
namespace {

Rib read(std::string_view text) {
  Rib rib;
  auto report = parse_routes(text, "routes", rib);
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : to_string(report.error()));
  rib.settle();
  return rib;
}

std::string next_hop(const Rib& rib, const char* prefix) {
  const auto p = parse_prefix(prefix);
  const uint32_t id = p ? rib.find(*p) : 0;
  return id == 0 ? "-" : rib.next_hop_name(id);
}

TEST(RouteText, ReadsEveryFormOfALine) {
  const Rib rib = read(
      "1.0.0.0/24 22\n"
      "# a comment\n\n   \t\r\n"
      "2.0.0.0/8\t7\r\n"
      "3.0.0.0/8,10.0.0.1\n"
      "4.0.0.0/8 , via 10.0.0.2 # why\n"
      "5.0.0.0/8 via 10.0.0.3 dev eth0 proto bgp metric 20\n"
      "6.0.0.0/8 dev eth1 scope link\n"
      "7.0.0.0/8 10.0.0.4 dev eth2\n"
      "8.8.8.8 host\n"
      "default via 192.0.2.1 dev eth0\n"
      "default via fe80::1 dev eth0\n"
      "2001:db8::/32 2001:db8::1\n"
      "2001:db8:1:2:3:4:5:6/128 a\n"
      "::ffff:1.2.3.4/128 b\n"
      "::/0 c\n"
      "2001:db8:a::1 d\n"
      "9.0.0.0/8 last-line-without-newline");
  EXPECT_EQ(next_hop(rib, "1.0.0.0/24"), "22");
  EXPECT_EQ(next_hop(rib, "2.0.0.0/8"), "7");
  EXPECT_EQ(next_hop(rib, "3.0.0.0/8"), "10.0.0.1");
  EXPECT_EQ(next_hop(rib, "4.0.0.0/8"), "10.0.0.2");
  EXPECT_EQ(next_hop(rib, "5.0.0.0/8"), "10.0.0.3");
  EXPECT_EQ(next_hop(rib, "6.0.0.0/8"), "eth1");
  EXPECT_EQ(next_hop(rib, "7.0.0.0/8"), "10.0.0.4");
  EXPECT_EQ(next_hop(rib, "8.8.8.8/32"), "host");
  EXPECT_EQ(next_hop(rib, "0.0.0.0/0"), "192.0.2.1");
  EXPECT_EQ(next_hop(rib, "::/0"), "c");  // after `default via fe80::1`
  EXPECT_EQ(rib.duplicates(), 1u);
  EXPECT_EQ(next_hop(rib, "2001:db8::/32"), "2001:db8::1");
  EXPECT_EQ(next_hop(rib, "2001:db8:1:2:3:4:5:6/128"), "a");
  EXPECT_EQ(next_hop(rib, "::ffff:1.2.3.4/128"), "b");
  EXPECT_EQ(next_hop(rib, "2001:db8:a::1/128"), "d");
  EXPECT_EQ(next_hop(rib, "9.0.0.0/8"), "last-line-without-newline");
}

TEST(RouteText, FindsAllErrorsAtOnceAndLeavesTheRibAlone) {
  Rib rib;
  const uint32_t keep = rib.intern("keep");
  rib.add(lpm_test::prefix4(0, 0), keep);
  auto report = parse_routes(
      "1.0.0.0/24 1\n"
      "1.0.0.0/33 1\n"
      "1.0.0/24 1\n"
      "1.0.0.0/24\n"
      "01.0.0.0/24 1\n"
      "10.0.0.0/255.0.0.0 1\n"
      "2001:db8::/129 1\n"
      "2001:db8::1::/64 1\n"
      "1.0.0.0/24 1 2\n"
      "1.0.0.0/24 via\n"
      "1.0.0.0/24 \x01\n",
      "routes", rib);
  ASSERT_FALSE(report.ok());
  const auto& all = report.error().diagnostics;
  ASSERT_EQ(all.size(), 10u) << to_string(report.error());
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(all[i].line, i + 2);
  EXPECT_EQ(all[0].expected, "0 to 32");
  EXPECT_EQ(all[4].suggestion, "write 10.0.0.0/8");
  EXPECT_EQ(all[7].column, 14u);
  EXPECT_EQ(rib.next_hop_count(), 1u);
  rib.settle();
  EXPECT_EQ(rib.size(), 1u);
}

// What `ip route` and `ip -6 route` print.
TEST(RouteText, OutputOfIpRoute) {
  Rib rib;
  auto report = parse_routes(
      "default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.7 metric 100 \n"
      "default via 192.0.2.9 dev wlan0 proto dhcp metric 600 \n"
      "10.0.0.0/24 dev eth1 proto kernel scope link src 10.0.0.5 linkdown \n"
      "10.1.0.0/16 nhid 12 via 10.0.0.2 dev eth1 proto bgp metric 20 \n"
      "10.2.0.0/16 via inet6 fe80::2 dev eth1 \n"
      "10.3.0.0/16 proto static metric 20 \n"
      "\tnexthop via 10.0.0.3 dev eth1 weight 1 \n"
      "\tnexthop via inet6 fe80::4 dev eth2 weight 3 \n"
      "\tnexthop dev tun0 weight 1 \n"
      "10.4.0.0/16 \\\tnexthop via 10.0.0.3 dev eth1 weight 1 \\\tnexthop via 10.0.0.4 dev eth1 weight 1 \n"
      "blackhole 10.5.0.0/16 proto static \n"
      "unreachable 10.6.0.0/16 \n"
      "prohibit 10.7.0.0/16 \n"
      "unicast 10.8.0.0/16 via 10.0.0.8 dev eth1 \n"
      "throw 10.9.0.0/16 \n"
      "local 10.0.0.5 dev eth1 table local proto kernel scope host src 10.0.0.5 \n"
      "broadcast 10.0.0.255 dev eth1 table local proto kernel scope link src 10.0.0.5 \n",
      "routes", rib);
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  rib.settle();
  EXPECT_EQ(next_hop(rib, "0.0.0.0/0"), "192.0.2.1");
  EXPECT_EQ(next_hop(rib, "10.0.0.0/24"), "eth1");
  EXPECT_EQ(next_hop(rib, "10.1.0.0/16"), "10.0.0.2");
  EXPECT_EQ(next_hop(rib, "10.2.0.0/16"), "fe80::2%eth1");
  EXPECT_EQ(next_hop(rib, "10.3.0.0/16"), "10.0.0.3+fe80::4%eth2*3+tun0");
  EXPECT_EQ(next_hop(rib, "10.4.0.0/16"), "10.0.0.3+10.0.0.4");
  EXPECT_EQ(next_hop(rib, "10.5.0.0/16"), "blackhole");
  EXPECT_EQ(next_hop(rib, "10.6.0.0/16"), "unreachable");
  EXPECT_EQ(next_hop(rib, "10.7.0.0/16"), "prohibit");
  EXPECT_EQ(next_hop(rib, "10.8.0.0/16"), "10.0.0.8");
  EXPECT_EQ(next_hop(rib, "10.9.0.0/16"), "throw");
  EXPECT_EQ(next_hop(rib, "10.0.0.5/32"), "local");
  EXPECT_EQ(next_hop(rib, "10.0.0.255/32"), "local");
  EXPECT_EQ(report->routes4, 13u);
  EXPECT_EQ(report->routes6, 0u);
  EXPECT_EQ(report->skipped, 1u);  // the second default
}

// One address on two links is two neighbours.
TEST(RouteText, TheInterfaceIsPartOfALinkLocalNextHop) {
  const Rib rib = read(
      "2001:db8:1::/48 via fe80::1 dev eth0 proto bgp metric 20 pref medium\n"
      "2001:db8:2::/48 via fe80::1 dev eth1 proto bgp metric 20 pref medium\n"
      "2001:db8:3::/48 via FE80::1 proto bgp dev eth1\n"
      "2001:db8:4::/48 metric 1024 pref medium\n"
      "\tnexthop via fe80::1 dev eth0 weight 1 \n"
      "\tnexthop via fe80::1 dev eth1 weight 2 \n"
      "2001:db8:5::/48 via fe80::1 dev eth0 metric 1\n"
      "2001:db8:5::/48 via fe80::1 dev eth1 metric 1\n"
      "2001:db8:6::/48 fe80::1 dev eth0\n"
      "2001:db8:7::/48 via fe80::1\n"
      "2001:db8:8::/48 via fec0::1 dev eth0\n"
      "2001:db8:9::/48 fe80::1%eth0\n"
      "default via fe80::2 dev eth0\n"
      "10.1.0.0/16 via 169.254.0.1 dev swp1 onlink\n"
      "10.2.0.0/16 via 169.254.0.1 dev swp2 onlink\n"
      "10.3.0.0/16 via 169.253.0.1 dev swp2\n");
  const std::vector<std::pair<std::string, std::string>> expected = {{"2001:db8:1::/48", "fe80::1%eth0"},
                                                                     {"2001:db8:2::/48", "fe80::1%eth1"},
                                                                     {"2001:db8:3::/48", "FE80::1%eth1"},
                                                                     {"2001:db8:4::/48", "fe80::1%eth0+fe80::1%eth1*2"},
                                                                     {"2001:db8:5::/48", "fe80::1%eth0+fe80::1%eth1"},
                                                                     {"2001:db8:6::/48", "fe80::1%eth0"},
                                                                     {"2001:db8:7::/48", "fe80::1"},
                                                                     {"2001:db8:8::/48", "fec0::1"},
                                                                     {"2001:db8:9::/48", "fe80::1%eth0"},
                                                                     {"::/0", "fe80::2%eth0"},
                                                                     {"10.1.0.0/16", "169.254.0.1%swp1"},
                                                                     {"10.2.0.0/16", "169.254.0.1%swp2"},
                                                                     {"10.3.0.0/16", "169.253.0.1"}};
  for (const auto& [prefix, name] : expected) EXPECT_EQ(next_hop(rib, prefix.c_str()), name) << prefix;
}

TEST(RouteText, OutputOfIp6Route) {
  Rib rib;
  auto report = parse_routes(
      "2001:db8:1::/64 dev eth0 proto ra metric 100 expires 2591994sec pref medium\n"
      "unreachable 2001:db8:2::/48 dev lo metric 1024 error -113 pref medium\n"
      "fe80::/64 dev eth0 proto kernel metric 256 pref medium\n"
      "fe80::/64 dev eth1 proto kernel metric 256 pref medium\n"
      "2001:db8:3::/48 metric 1024 pref medium\n"
      "\tnexthop via fe80::1 dev eth0 weight 1 \n"
      "\tnexthop via fe80::2 dev eth1 weight 1 pref medium\n"
      "blackhole default dev lo metric 4294967295 error -22 pref medium\n"
      "default via fe80::9 dev eth0 proto ra metric 100 pref medium\n"
      "multicast ff00::/8 dev eth0 table local proto kernel metric 256 pref medium\n",
      "routes", rib);
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  rib.settle();
  EXPECT_EQ(next_hop(rib, "2001:db8:1::/64"), "eth0");
  EXPECT_EQ(next_hop(rib, "2001:db8:2::/48"), "unreachable");
  EXPECT_EQ(next_hop(rib, "fe80::/64"), "eth0");  // the first of two with one metric
  EXPECT_EQ(next_hop(rib, "2001:db8:3::/48"), "fe80::1%eth0+fe80::2%eth1");
  EXPECT_EQ(next_hop(rib, "::/0"), "fe80::9%eth0");  // metric 100 before 4294967295
  EXPECT_EQ(next_hop(rib, "0.0.0.0/0"), "-");
  EXPECT_EQ(report->skipped, 3u);  // the second fe80::/64, the default that loses, multicast
}

// `ip route show table all`, and words that say that a route is not used.
TEST(RouteText, OtherTablesTunnelsAndDeadRoutesAreLeftOut) {
  Rib rib;
  auto report = parse_routes(
      "default via 10.0.0.1 dev ppp0 table 100 proto static \n"
      "10.1.0.0/16 via 10.0.0.1 dev eth0 table main onlink \n"
      "10.2.0.0/16 via 10.0.0.1 dev eth1 dead linkdown \n"
      "10.3.0.0/16 proto bgp metric 20 \n"
      "\tnexthop via 10.0.0.3 dev eth1 weight 1 dead linkdown \n"
      "\tnexthop via 10.0.0.4 dev eth2 weight 2 onlink \n"
      "10.4.0.0/16  encap mpls  100 via 10.0.0.5 dev eth0 \n"
      "10.5.0.0/16 proto bgp \n"
      "\tnexthop via 10.0.0.3 dev eth1 weight 1 dead linkdown \n"
      "multicast 224.0.0.0/4 dev eth0 table local \n"
      "anycast 2001:db8:: dev eth0 table local proto kernel metric 0 pref medium\n",
      "routes", rib);
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  rib.settle();
  EXPECT_EQ(rib.size(), 3u);
  EXPECT_EQ(next_hop(rib, "10.1.0.0/16"), "10.0.0.1");
  EXPECT_EQ(next_hop(rib, "10.3.0.0/16"), "10.0.0.4*2");
  EXPECT_EQ(next_hop(rib, "2001:db8::/128"), "local");
  EXPECT_EQ(report->skipped, 5u);
  ASSERT_EQ(report->warnings.size(), 1u);
  EXPECT_EQ(report->warnings[0].line, 7u);
}

struct Read {
  Rib rib;
  RouteReport report;
};
Read read_all(std::string_view text) {
  Read all;
  auto report = parse_routes(text, "routes", all.rib);
  EXPECT_TRUE(report.ok()) << text << (report.ok() ? "" : to_string(report.error()));
  if (report) all.report = std::move(*report);
  all.rib.settle();
  return all;
}

// RFC 8950: an IPv4 route over an IPv6 neighbour.
TEST(RouteText, DefaultOverInet6IsAnIPv4Route) {
  for (const auto& [text, hop] : {
           std::pair{"default via inet6 fe80::1 dev e0 proto bird src 192.0.2.5 metric 32 \n", "fe80::1%e0"},
           {"default nhid 30 via inet6 2001:db8:1::1 dev e0 proto bgp metric 20 \n", "2001:db8:1::1"},
           {"default via inet6 2001:db8::1\n", "2001:db8::1"},
           {"unicast default via inet6 fe80::1 dev e0 proto boot scope global \n", "fe80::1%e0"},
           {"default nhid 9 proto bgp metric 20 \n\tnexthop via inet6 fe80::1 dev e0 weight 1 \n"
            "\tnexthop via inet6 fe80::2 dev e1 weight 2 \n",
            "fe80::1%e0+fe80::2%e1*2"},
           {"default \\\tnexthop via 192.0.2.1 dev e0 weight 1 \\\tnexthop via inet6 fe80::2 dev e1 weight 1 \n",
            "192.0.2.1+fe80::2%e1"},
           {"[{\"dst\":\"default\",\"via\":{\"family\":\"inet6\",\"host\":\"fe80::1\"},\"dev\":\"e0\",\"flags\":[]}]",
            "fe80::1%e0"},
       }) {
    const Read all = read_all(text);
    EXPECT_EQ(next_hop(all.rib, "0.0.0.0/0"), hop) << text;
    EXPECT_EQ(next_hop(all.rib, "::/0"), "-") << text;
    EXPECT_TRUE(all.report.warnings.empty());
  }
}

// `default` is never of a family that nothing says, without a word.
TEST(RouteText, TheFamilyOfDefaultIsWhatTheLineOrTheFileSays) {
  struct Case {
    const char* text;
    int family;
    bool warned;
  };
  for (const Case& c : {
           Case{"default via 192.0.2.1 dev e0\n2001:db8::/32 a\n", 4, false},
           {"default via 2001:db8::1 dev e0\n10.0.0.0/8 a\n", 6, false},
           {"default 2001:db8::1\n10.0.0.0/8 a\n", 6, false},
           {"default 192.0.2.1+b*2\n2001:db8::/32 a\n", 4, false},
           {"default dev wg0 metric 1024 pref medium\n", 6, false},
           {"default dev wg0 proto ra metric 1024\n10.0.0.0/8 a\n", 6, false},
           {"default dev wg0 scope link \n2001:db8::/32 a\n", 4, false},
           {"default dev wg0 src 192.0.2.1\n2001:db8::/32 a\n", 4, false},
           {"default dev wg0 src 2001:db8::5\n10.0.0.0/8 a\n", 6, false},
           {"default metric 1024 pref medium\n\tnexthop dev e0 weight 1 \n\tnexthop dev e1 weight 1 \n", 6, false},
           {"default dev wg0\n", 4, false},
           {"default core\n10.0.0.0/8 a\n", 4, false},
           {"unreachable default\n10.0.0.0/8 a\n", 4, false},
           {"unreachable default dev lo metric 4294967295 pref medium\n", 6, false},
           // Nothing says it.
           {"default dev wg0 metric 1024\nunreachable 2001:db8::/32 dev lo\n", 6, true},
           {"2001:db8::/32 a\ndefault core\n10.0.0.0/8 a\n", 4, true},
           {"[{\"dst\":\"default\",\"dev\":\"wg0\"},{\"dst\":\"2001:db8::/32\",\"dev\":\"e0\"}]", 6, true},
           {"[{\"dst\":\"default\",\"dev\":\"wg0\",\"scope\":\"link\"},{\"dst\":\"2001:db8::/32\",\"dev\":\"e0\"}]", 4,
            false},
       }) {
    const Read all = read_all(c.text);
    EXPECT_EQ(next_hop(all.rib, "0.0.0.0/0") != "-", c.family == 4) << c.text;
    EXPECT_EQ(next_hop(all.rib, "::/0") != "-", c.family == 6) << c.text;
    ASSERT_EQ(all.report.warnings.size(), c.warned ? 1u : 0u) << c.text;
    if (c.warned) {
      EXPECT_NE(all.report.warnings[0].suggestion.find("write 0.0.0.0/0 or ::/0"), std::string::npos);
    }
  }
  Rib rib;
  auto wrong = parse_routes("default via inet 192.0.2.1 dev e0\n", "routes", rib);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().diagnostics[0].column, 18u);
}

TEST(RouteText, RoutesForSomePacketsAloneAreLeftOutWithOneWarningOfEachKind) {
  const Read all = read_all(
      "default from 2001:db8::/56 via fe80::1 dev wan proto static metric 512 pref medium\n"
      "2001:db8:5::/64 dev br-lan proto static metric 1024 pref medium\n"
      "2001:db8:9::/64 from 2001:db8::/56 via fe80::1 dev wan metric 512 pref medium\n"
      "2001:db8:9::/64 from 2001:db8::/56 nhid 7 metric 512 pref medium\n"
      "\tnexthop via fe80::1 dev e0 weight 1 \n"
      "10.8.0.0/16 tos 0x10 via 192.0.2.1 dev e0 \n"
      "10.8.0.0/16 via 192.0.2.2 dev e0 \n"
      "10.9.0.0/16 encap ip id 7 src 0.0.0.0 dst 192.0.2.9 ttl 0 tos 0 dev tun0 scope link \n"
      "2001:db8:10::1 from :: via 2001:db8::1 dev e0 src 2001:db8::5 metric 1024 pref medium\n"
      "10.9.0.0/16 from\n10.10.0.0/16 tos\n");
  EXPECT_EQ(next_hop(all.rib, "::/0"), "-");
  EXPECT_EQ(next_hop(all.rib, "2001:db8:5::/64"), "br-lan");
  EXPECT_EQ(next_hop(all.rib, "2001:db8:9::/64"), "-");
  EXPECT_EQ(next_hop(all.rib, "10.8.0.0/16"), "192.0.2.2");
  EXPECT_EQ(next_hop(all.rib, "2001:db8:10::1"), "2001:db8::1") << "from :: is from anywhere";
  EXPECT_EQ(next_hop(all.rib, "10.9.0.0/16"), "from") << "a next hop may have any name";
  EXPECT_EQ(next_hop(all.rib, "10.10.0.0/16"), "tos");
  EXPECT_EQ(all.report.skipped, 5u);
  ASSERT_EQ(all.report.warnings.size(), 3u);
  EXPECT_EQ(all.report.warnings[0].line, 8u);
  EXPECT_EQ(all.report.warnings[1].line, 1u);
  EXPECT_EQ(all.report.warnings[1].message,
            "3 routes for one source of packets ('from') are left out: routes by source are not supported");
  EXPECT_EQ(all.report.warnings[2].line, 6u);
}

TEST(RouteText, DetailsNumbersAndCachedRoutesOfIpRoute) {
  const Read all = read_all(
      "unicast 10.12.0.0/16 nhid 3 proto boot scope global \n"
      "\tnh_info id 3 group 1,3/2 scope global proto unspec \n"
      "\tnexthop via 192.0.2.1 dev e0 weight 3 \n"
      "\tnexthop via 198.51.100.9 dev e1 weight 1 \n"
      "unicast 10.13.0.0/16 nhid 4 via inet6 2001:db8::7 dev e0 proto boot scope global \n"
      "\tnh_info id 4 via 2001:db8::7 dev e0 scope link proto unspec \n"
      "blackhole 10.14.0.0/16 nhid 5 dev lo proto boot scope global \n"
      "\tnh_info id 5 scope global blackhole proto unspec \n"
      "unicast 10.15.0.0/16 nhid 3 \\\tnh_info id 4 via 192.0.2.9 dev e0 \\\tnexthop via 192.0.2.1 dev e0 weight 3 \n"
      "10.19.0.0/16 nhid 3 proto boot \n\tnh_info id 4 via 192.0.2.9 dev e0 \\\tnexthop via 192.0.2.1 dev e0 weight 3 "
      "\n"
      "6 10.16.0.0/16 \n2 192.0.2.5 dev e0 table 255 proto 2 scope 254 src 192.0.2.5 \n"
      "5 224.1.0.0/16 dev e0 scope 253 \n"
      "10.17.0.1 via 192.0.2.1 dev e0 \n    cache expires 595sec mtu 1400 \n"
      "10.18.0.1 via 192.0.2.1 dev e0 src 192.0.2.5 uid 0 \n    cache\n");
  EXPECT_EQ(next_hop(all.rib, "10.12.0.0/16"), "192.0.2.1*3+198.51.100.9");
  EXPECT_EQ(next_hop(all.rib, "10.13.0.0/16"), "2001:db8::7");
  EXPECT_EQ(next_hop(all.rib, "10.14.0.0/16"), "blackhole");
  EXPECT_EQ(next_hop(all.rib, "10.15.0.0/16"), "192.0.2.1*3");
  EXPECT_EQ(next_hop(all.rib, "10.19.0.0/16"), "192.0.2.1*3");
  EXPECT_EQ(next_hop(all.rib, "10.16.0.0/16"), "blackhole");
  EXPECT_EQ(next_hop(all.rib, "192.0.2.5/32"), "local");
  EXPECT_EQ(next_hop(all.rib, "10.17.0.1/32"), "192.0.2.1");
  EXPECT_EQ(next_hop(all.rib, "10.18.0.1/32"), "192.0.2.1");
  EXPECT_EQ(all.report.skipped, 1u);
}

// `ip route append`: the kernel takes the first.
TEST(RouteText, OfLinesOfAKernelTheFirstWinsOfOthersTheLast) {
  const Read all = read_all(
      "10.1.0.0/16 via 192.0.2.1 dev e0 \n10.1.0.0/16 via 192.0.2.2 dev e0 \n"
      "10.2.0.0/16 via 192.0.2.1 \n10.2.0.0/16 via 192.0.2.2 \n"
      "10.3.0.0/16 via 192.0.2.1 dev e0 \n10.3.0.0/16 mine\n");
  EXPECT_EQ(next_hop(all.rib, "10.1.0.0/16"), "192.0.2.1");
  EXPECT_EQ(next_hop(all.rib, "10.2.0.0/16"), "192.0.2.2");
  EXPECT_EQ(next_hop(all.rib, "10.3.0.0/16"), "mine");
}

TEST(RouteText, LinesAreKnownByTheirPrefix) {
  const std::string text =
      "# a\n  10.0.0.0/8 x\ndefault nhid 3 \n\tnexthop via inet6 fe80::1 dev e0 weight 1 \nblackhole 10.1.0.0/16 \n"
      "10.2.0.0/16 from 10.0.0.0/8 dev e0 \n";
  Rib rib;
  std::vector<RouteLine> lines;
  ASSERT_TRUE(parse_route_lines(text, "routes", rib, nullptr, &lines).ok());
  ASSERT_EQ(lines.size(), 3u);
  const auto is = [&](size_t i, const char* prefix, const char* part) {
    EXPECT_EQ(to_string(lines[i].prefix), prefix);
    EXPECT_EQ(text.substr(lines[i].begin, lines[i].end - lines[i].begin), part);
  };
  is(0, "10.0.0.0/8", "  10.0.0.0/8 x\n");
  is(1, "0.0.0.0/0", "default nhid 3 \n\tnexthop via inet6 fe80::1 dev e0 weight 1 \n");
  is(2, "10.1.0.0/16", "blackhole 10.1.0.0/16 \n");
}

TEST(RouteText, MetricsAreHandedOnWhereTheyAreAskedFor) {
  constexpr const char* kText =
      "10.0.0.0/8 a metric 20\n10.0.0.0/8 b metric 10\n10.0.0.0/8 c metric 10\n11.0.0.0/8 d metric 5\n11.0.0.0/8 e\n"
      "2001:db8::/32 via fe80::1 dev eth0 metric 7\n2001:db8::/32 via fe80::2 dev eth1 metric 7\n";
  Rib rib;
  std::vector<RankedRoute> ranked;
  auto report = parse_routes(kText, "routes", rib, &ranked);
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  ASSERT_EQ(ranked.size(), 4u);
  EXPECT_EQ(rib.next_hop_name(ranked[1].next_hop), "b") << "the first of equal ones";
  EXPECT_EQ(rib.next_hop_name(ranked[3].next_hop), "fe80::1%eth0+fe80::2%eth1") << "IPv6 gateways share";
  EXPECT_EQ(report->routes4 + report->routes6, 5u);
  EXPECT_EQ(report->skipped, 1u);
  const Rib best = read(kText);
  EXPECT_EQ(best.size(), 3u);
  EXPECT_EQ(next_hop(best, "10.0.0.0/8"), "b");
  EXPECT_EQ(next_hop(best, "11.0.0.0/8"), "e") << "no metric is 0";
}

TEST(RouteText, BadLinesOfIpRouteAreShown) {
  Rib rib;
  auto report =
      parse_routes("prohibit\n10.1.0.0/16 proto static\n\tnexthop weight 1\n10.2.0.0/16 proto static\n10.3.0.0/16 x\n",
                   "routes", rib);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(to_string(report.error()),
            "routes:1:1: error: 'prohibit' without a prefix\n"
            "  prohibit\n"
            "  ^~~~~~~~\n"
            "  expected: PREFIX NEXTHOP, PREFIX via NEXTHOP or PREFIX dev NAME\n"
            "routes:3:2: error: 'nexthop' without a next hop\n"
            "   nexthop weight 1\n"
            "   ^~~~~~~\n"
            "  expected: nexthop via ADDRESS dev NAME weight N\n"
            "routes:4:19: error: unexpected 'static' after the next hop\n"
            "  10.2.0.0/16 proto static\n"
            "                    ^~~~~~\n"
            "  expected: PREFIX NEXTHOP, PREFIX via NEXTHOP or PREFIX dev NAME\n"
            "error: 3 errors in routes\n");
}

TEST(RouteText, HostBitsAreClearedWithAWarning) {
  Rib rib;
  auto report = parse_routes("1.2.3.4/8 1\n2001:db8::1/32 2\n", "routes", rib);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->warnings.size(), 2u);
  EXPECT_EQ(report->warnings[0].suggestion, "taken as 1.0.0.0/8");
  EXPECT_EQ(report->routes4, 1u);
  EXPECT_EQ(report->routes6, 1u);
  EXPECT_EQ(next_hop(rib, "1.0.0.0/8"), "1");
  EXPECT_EQ(next_hop(rib, "2001:db8::/32"), "2");
}

TEST(RouteText, NextHopsRunOutWithOneError) {
  std::string text;
  for (int i = 0; i < 65600; ++i) text += "1.0.0.0/24 n" + std::to_string(i) + "\n";
  Rib rib;
  auto report = parse_routes(text, "routes", rib);
  ASSERT_FALSE(report.ok());
  ASSERT_EQ(report.error().diagnostics.size(), 1u);
  EXPECT_EQ(report.error().diagnostics[0].line, 65536u);
  EXPECT_EQ(rib.next_hop_count(), 0u);
}

TEST(RouteText, ManyErrorsAreCountedAndTheFirstKept) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "nonsense\n";
  Rib rib;
  auto report = parse_routes(text, "routes", rib);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().diagnostics.size(), Diagnostics::kLimit);
  EXPECT_NE(report.error().message.find("5000 errors"), std::string::npos);
}

// The fast parsers against parse_prefix: what to_string writes, and the same with one byte changed.
TEST(RouteText, PrefixesAreReadAsTheGeneralParserReadsThem) {
  std::mt19937_64 random(3);
  constexpr std::string_view kBytes = "0123456789abcdefABCDEFg:./- ";
  size_t accepted = 0;
  for (int i = 0; i < 60000; ++i) {
    const bool v6 = random() % 2 != 0;
    const auto length = static_cast<unsigned>(random() % (v6 ? 129 : 33));
    uint64_t hi = random(), lo = random();
    if (random() % 2 != 0) hi &= random() & random();
    std::string word =
        to_string(v6 ? lpm_test::prefix6(hi, lo, length) : lpm_test::prefix4(static_cast<uint32_t>(hi), length));
    if (i % 2 != 0) {
      const char c = kBytes[random() % (kBytes.size() - 1)];
      const size_t at = random() % word.size();
      switch (random() % 3) {
        case 0:
          word[at] = c;
          break;
        case 1:
          word.insert(at, 1, c);
          break;
        default:
          word.erase(at, 1);
          break;
      }
    }
    const auto expected = parse_prefix(word);
    Rib rib;
    auto report = parse_routes(word + " hop", "routes", rib);
    if (word.empty() || word[0] == '-') continue;
    ASSERT_EQ(report.ok(), expected.has_value()) << word;
    if (!expected) continue;
    ++accepted;
    ASSERT_EQ(rib.find(*expected), 1u) << word;
  }
  EXPECT_GT(accepted, 30000u);
}

}  // namespace
}  // namespace sluice

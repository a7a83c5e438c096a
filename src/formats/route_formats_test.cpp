// What iproute2 (JSON), FRR, BIRD and net-tools print of routes. The texts are of FRR 8.4, BIRD 2.0.12, iproute2 6.1
// and net-tools 2.10, each with routes of every kind; the seeds of route_text_fuzz hold more of them.
#include <gtest/gtest.h>

#include <map>

#include "formats/route_text.h"
#include "net/text.h"

namespace sluice {
namespace {

struct FormatRead {
  std::map<std::string, std::string> routes;
  RouteReport report;
};

FormatRead read_format(std::string_view text, RouteFormat format) {
  EXPECT_EQ(detect_route_format(text), format) << text;
  FormatRead all;
  Rib rib;
  auto report = parse_routes(text, "routes", rib);
  EXPECT_TRUE(report.ok()) << text << (report.ok() ? "" : to_string(report.error()));
  if (report) all.report = std::move(*report);
  rib.settle();
  for (const Route4& r : rib.routes4())
    all.routes[to_string(IpPrefix{{0, r.address, 4}, r.length})] = rib.next_hop_name(r.next_hop);
  for (const Route6& r : rib.routes6())
    all.routes[to_string(IpPrefix{{r.hi, r.lo, 6}, r.length})] = rib.next_hop_name(r.next_hop);
  return all;
}

// The place and the message of the first error.
std::string first_error(std::string_view text) {
  Rib rib;
  auto report = parse_routes(text, "routes", rib);
  if (report.ok()) return "none";
  if (report.error().diagnostics.empty()) return report.error().message;
  const Diagnostic& d = report.error().diagnostics[0];
  return std::to_string(d.line) + ":" + std::to_string(d.column) + ": " + d.message;
}

using Routes = std::map<std::string, std::string>;

constexpr std::string_view kFrrLegend =
    "Codes: K - kernel route, C - connected, S - static, R - RIP,\n"
    "       O - OSPF, I - IS-IS, B - BGP, E - EIGRP, N - NHRP,\n"
    "       > - selected route, * - FIB route, q - queued, r - rejected, b - backup\n"
    "       t - trapped, o - offload failure\n"
    "\n";

TEST(RouteFormats, OfFrrTheSelectedRoutesInTheFib) {
  const FormatRead all =
      read_format(std::string(kFrrLegend) +
                      "S   0.0.0.0/0 [250/0] via 198.51.100.9, e1, weight 1, 00:00:04\n"
                      "S>* 0.0.0.0/0 [1/0] via 192.0.2.1, e0, weight 1, 00:00:04\n"
                      "B>* 10.2.0.0/16 [20/0] via 192.0.2.1, e0, weight 1, 1d02h03m\n"
                      "  *                   via 198.51.100.9, e1, weight 3, 01w2d03h\n"
                      "S>* 10.3.0.0/16 [1/0] unreachable (blackhole), weight 1, 00:00:04\n"
                      "S>* 10.4.0.0/16 [1/0] unreachable (ICMP unreachable), weight 1, 00:00:04\n"
                      "S>* 10.5.0.0/16 [1/0] unreachable (ICMP admin-prohibited), weight 1, 00:00:04\n"
                      "S>  10.6.0.0/16 [1/0] via 10.2.0.9 (recursive), weight 1, 00:00:04\n"
                      "  *                     via 192.0.2.1, e0, weight 1, 00:00:04\n"
                      "  *                     via 198.51.100.9, e1, weight 1, 00:00:04\n"
                      "   b                    via 203.0.113.1, e2, weight 1, 00:00:04\n"
                      "S>* 10.7.0.0/16 [1/0] is directly connected, e1, weight 1, 00:00:04\n"
                      "S>* 10.10.5.0/24 [1/0] via 10.99.0.1, e1 onlink, weight 1, 00:00:04\n"
                      "K>* 10.50.0.0/16 [0/0] via 192.0.2.77, e0, src 192.0.2.5, 00:00:06\n"
                      "S>* 10.51.0.0/16 [1/0] via 192.0.2.1, e0, weight 1, 00:00:04\n"
                      "                      via 172.16.5.5 inactive, weight 1, 00:00:04\n"
                      "S>r 10.52.0.0/16 [1/0] via 192.0.2.1, e0, weight 1, 00:00:04\n"
                      "S   10.53.0.0/16 [1/0] via 172.16.5.5 inactive, weight 1, 00:00:04\n"
                      "S>* 10.54.0.0/16 [1/0] via 192.0.2.1, e0, label 100, weight 1, 00:00:04\n"
                      "S>* 10.55.0.0/16 [1/0] via 192.0.2.1, e0, label implicit-null, weight 1, 00:00:04\n"
                      "S>* 10.56.0.0/16 [1/0] via 203.0.113.9, e2 (vrf red), weight 1, 00:00:04\n"
                      "B>* 10.57.0.0/16 [20/0] via fe80::7, e0, weight 1, 00:00:04\n"
                      "C>* 192.0.2.0/24 is directly connected, e0, 00:00:06\n"
                      "L>* 192.0.2.5/32 is directly connected, e0, 00:00:06\n",
                  RouteFormat::kFrr);
  EXPECT_EQ(all.routes, (Routes{{"0.0.0.0/0", "192.0.2.1"},
                                {"10.2.0.0/16", "192.0.2.1+198.51.100.9*3"},
                                {"10.3.0.0/16", "blackhole"},
                                {"10.4.0.0/16", "unreachable"},
                                {"10.5.0.0/16", "prohibit"},
                                {"10.6.0.0/16", "192.0.2.1+198.51.100.9"},
                                {"10.7.0.0/16", "e1"},
                                {"10.10.5.0/24", "10.99.0.1"},
                                {"10.50.0.0/16", "192.0.2.77"},
                                {"10.51.0.0/16", "192.0.2.1"},
                                {"10.55.0.0/16", "192.0.2.1"},
                                {"10.56.0.0/16", "203.0.113.9"},
                                {"10.57.0.0/16", "fe80::7%e0"},
                                {"192.0.2.0/24", "e0"},
                                {"192.0.2.5/32", "local"}}));
  EXPECT_EQ(all.report.skipped, 4u);
  ASSERT_EQ(all.report.warnings.size(), 1u);  // the label
  EXPECT_EQ(all.report.warnings[0].line, 24u);

  const FormatRead six = read_format(
      "S>* ::/0 [1/0] via fe80::1, e0, weight 1, 00:00:04\r\n"
      "K>* ::/0 from 2001:db8:7::/48 [0/1024] via fe80::2, e0, 00:00:06\r\n"
      "S>* 2001:db8:11::/48 [1/0] via fe80::1, e0, weight 1, 00:00:04\r\n"
      "  *                        via fe80::1, e1, weight 1, 00:00:04\r\n"
      "C * fe80::/64 is directly connected, e1, 00:00:04\r\n"
      "C>* fe80::/64 is directly connected, e0, 00:00:05\r\n",
      RouteFormat::kFrr);
  EXPECT_EQ(six.routes,
            (Routes{{"::/0", "fe80::1%e0"}, {"2001:db8:11::/48", "fe80::1%e0+fe80::1%e1"}, {"fe80::/64", "e0"}}));
  ASSERT_EQ(six.report.warnings.size(), 1u);
  EXPECT_NE(six.report.warnings[0].message.find("source"), std::string::npos);
}

TEST(RouteFormats, OfSeveralVrfsTheMainOneElseTheFirst) {
  const std::string red = "VRF red:\nS>* 10.0.0.0/8 [1/0] via 192.0.2.7, e0, weight 1, 00:00:04\n\n";
  const std::string main = "IPv4 unicast VRF default:\nS>* 10.0.0.0/8 [1/0] via 192.0.2.1, e0, weight 1, 00:00:04\n\n";
  const std::string blue = "VRF blue:\nS>* 10.1.0.0/16 [1/0] via 192.0.2.7, e0, weight 1, 00:00:04\n";
  const FormatRead all = read_format(red + main + blue, RouteFormat::kFrr);
  EXPECT_EQ(all.routes, (Routes{{"10.0.0.0/8", "192.0.2.1"}}));
  ASSERT_EQ(all.report.warnings.size(), 1u);
  EXPECT_EQ(all.report.skipped, 2u);
  EXPECT_EQ(read_format(red + blue, RouteFormat::kFrr).routes, (Routes{{"10.0.0.0/8", "192.0.2.7"}}));
}

TEST(RouteFormats, OfFrrsJsonTheSame) {
  const std::string routes =
      R"({"0.0.0.0\/0":[{"prefix":"0.0.0.0\/0","protocol":"static","nexthops":[{"ip":"198.51.100.9","active":true}]},
        {"prefix":"0.0.0.0\/0","protocol":"static","selected":true,"installed":true,"nexthops":[
          {"fib":true,"ip":"192.0.2.1","interfaceName":"e0","active":true,"weight":1}]}],
      "10.3.0.0/16":[{"prefix":"10.3.0.0/16","selected":true,"nexthops":[{"fib":true,"unreachable":true,"blackhole":true}]}],
      "10.4.0.0/16":[{"prefix":"10.4.0.0/16","selected":true,"nexthops":[{"fib":true,"unreachable":true,"reject":true}]}],
      "10.6.0.0/16":[{"prefix":"10.6.0.0/16","selected":true,"nexthops":[
        {"flags":5,"ip":"10.2.0.9","active":true,"recursive":true,"weight":1},
        {"fib":true,"ip":"fe80::1","interfaceName":"e0","resolver":true,"weight":1},
        {"fib":true,"ip":"198.51.100.9","interfaceName":"e1","resolver":true,"weight":3}]}],
      "10.7.0.0/16":[{"prefix":"10.7.0.0/16","selected":true,"nexthops":[
        {"fib":true,"directlyConnected":true,"interfaceName":"e1","active":true}]}],
      "10.8.0.0/16":[{"prefix":"10.8.0.0/16","selected":true,"nexthops":[
        {"fib":true,"ip":"192.0.2.1","interfaceName":"e1","labels":[100]}]}],
      "2001:db8:7::/48":[{"prefix":"::/0 from 2001:db8:7::/48","selected":true,"nexthops":[
        {"fib":true,"ip":"fe80::2","interfaceName":"e0"}]}],
      "192.0.2.5/32":[{"prefix":"192.0.2.5/32","protocol":"local","selected":true,"nexthops":[
        {"fib":true,"directlyConnected":true,"interfaceName":"e0"}]}]})";
  const Routes expected = {{"0.0.0.0/0", "192.0.2.1"},     {"10.3.0.0/16", "blackhole"},
                           {"10.4.0.0/16", "unreachable"}, {"10.6.0.0/16", "fe80::1%e0+198.51.100.9*3"},
                           {"10.7.0.0/16", "e1"},          {"192.0.2.5/32", "local"}};
  const FormatRead all = read_format(routes, RouteFormat::kFrrJson);
  EXPECT_EQ(all.routes, expected);
  EXPECT_EQ(all.report.skipped, 3u);
  EXPECT_EQ(all.report.warnings.size(), 2u);
  const FormatRead vrfs = read_format(
      R"({"red":{"10.9.0.0/16":[{"prefix":"10.9.0.0/16","selected":true,"nexthops":[{"fib":true,"ip":"192.0.2.7"}]}]},
          "default":)" +
          routes + "}",
      RouteFormat::kFrrJson);
  EXPECT_EQ(vrfs.routes, expected);
  EXPECT_TRUE(read_format("{}", RouteFormat::kFrrJson).routes.empty());
  EXPECT_EQ(first_error("{\"vrfId\":0}"), "1:10: 'vrfId' is not a list of routes");
  EXPECT_EQ(first_error("{\"10.0.0.0/8\":[{\"x\":1}]}"), "1:16: there is no 'prefix' here");
  EXPECT_EQ(first_error("{\"10.0.0.0/8\":["), "1:16: the JSON text ends too early");
}

TEST(RouteFormats, OfBirdThePrimaryRoutesOfTheMainTables) {
  const std::string text =
      "BIRD 2.0.12 ready.\nAccess restricted\nTable master4:\n"
      "0.0.0.0/0            unicast [s4 18:05:51.277] * (200)\n\tvia 192.0.2.1 on e0\n\tType: static univ\n"
      "10.3.0.0/16          blackhole [s4 18:05:51.277] * (200)\n"
      "10.4.0.0/16          unreachable [s4 18:05:51.277] * (200)\n"
      "10.5.0.0/16          prohibited [s4 18:05:51.277] * (200)\n"
      "10.1.0.0/16          unicast [s4b 2026-01-02] (150)\n\tvia 198.51.100.9 on e1\n"
      "                     unicast [bgp1 18:05:51.277 from 192.0.2.1] * (100) [AS65000i]\n\tvia 192.0.2.1 on e0\n"
      "\tBGP.community: (65000,1)\n\t\t(65000,2)\n"
      "10.2.0.0/16          unicast [s4 18:05:51.277] * (200)\n\tvia 192.0.2.1 on e0 weight 3\n"
      "\tvia 198.51.100.9 on e1 onlink weight 1\n"
      "10.7.0.0/16          unicast [s4 18:05:51.277] * (200)\n\tdev e1\n"
      "10.9.0.0/16          unicast [s4 18:05:52.685] * (200)\n\tvia fe80::7 on e0\n"
      "10.10.0.0/16         unicast [s4 18:05:51.277] * (200)\n\tvia 192.0.2.1 on e0 mpls 100\n"
      "10.11.0.0/16         unicast [s4 18:05:51.277] ! (200)\n\tvia 192.0.2.1 on e0\n"
      "\nTable master6:\n"
      "2001:db8:aaaa:bbbb:cccc:dddd::/112 unicast [s6 18:05:51.277] * (200)\n\tvia 2001:db8::1 on e0\n"
      "2001:db8:11::/48     unicast [s6 18:05:52.973] * (200)\n\tvia fe80::1 on e0 weight 1\n"
      "\tvia fe80::1 on e1 weight 1\n"
      "\nTable sadr6:\n"
      "2001:db8:13::/48 from 2001:db8:7::/48 unicast [ss 18:05:51.277] * (200)\n\tvia 2001:db8::1 on e0\n";
  const FormatRead all = read_format(text, RouteFormat::kBird);
  EXPECT_EQ(all.routes, (Routes{{"0.0.0.0/0", "192.0.2.1"},
                                {"10.1.0.0/16", "192.0.2.1"},
                                {"10.2.0.0/16", "192.0.2.1*3+198.51.100.9"},
                                {"10.3.0.0/16", "blackhole"},
                                {"10.4.0.0/16", "unreachable"},
                                {"10.5.0.0/16", "prohibit"},
                                {"10.7.0.0/16", "e1"},
                                {"10.9.0.0/16", "fe80::7%e0"},
                                {"2001:db8:aaaa:bbbb:cccc:dddd::/112", "2001:db8::1"},
                                {"2001:db8:11::/48", "fe80::1%e0+fe80::1%e1"}}));
  EXPECT_EQ(all.report.skipped, 4u);
  EXPECT_EQ(all.report.warnings.size(), 2u);  // the label, the other table
  // A table by itself is that which is meant.
  const FormatRead one = read_format(
      text.substr(text.find("Table sadr6")) + "2001:db8:14::/48     unicast [ss 18:05:51.277] * (200)\n\tdev e0\n",
      RouteFormat::kBird);
  EXPECT_EQ(one.routes, (Routes{{"2001:db8:14::/48", "e0"}}));
  EXPECT_EQ(one.report.warnings.size(), 1u);
  EXPECT_EQ(first_error("Table master4:\n10.0.0.0/8  unicast [s4 18:05:51.277] * (200)\n"),
            "2:1: 10.0.0.0/8 has no next hop");
  EXPECT_EQ(first_error("Table master4:\n10.0.0.0/8 via 192.0.2.1 on e0 [s 12:00] * (200)\n"),
            "2:1: '10.0.0.0/8 via 192.0.2.1 on e0 [s 12:00] * (200)' is not a line of routes");
  EXPECT_EQ(first_error("Table master4:\n10.0.0.0/8  unicast [s4 1] * (200)\n\tvia 192.0.2.1\n"),
            "3:2: 'via 192.0.2.1' is not a next hop");
  EXPECT_EQ(first_error("Table master4:\n10.0.0.0/8 192.0.2.1\n"),
            "2:1: '10.0.0.0/8 192.0.2.1' is not a line of routes");
}

TEST(RouteFormats, OfNetToolsBothTables) {
  const FormatRead four = read_format(
      "Kernel IP routing table\n"
      "Destination     Gateway         Genmask         Flags Metric Ref    Use Iface\n"
      "0.0.0.0         192.0.2.1       0.0.0.0         UG    100    0        0 e0\n"
      "default         192.0.2.9       0.0.0.0         UG    32     0        0 e0\n"
      "10.3.0.0        0.0.0.0         255.255.0.0     U     0      0        0 *\n"
      "10.4.0.0        -               255.255.0.0     !     7      -        0 -\n"
      "10.8.0.0        192.0.2.1       255.255.0.0     UG    0      0        0 e0\n"
      "10.8.0.0        192.0.2.2       255.255.0.0     UG    0      0        0 e0\n"
      "10.18.0.1       192.0.2.1       255.255.255.255 UGH   0      0        0 e0\n"
      "192.0.2.0       *               255.255.255.0   U     0      0        0 e0\n",
      RouteFormat::kNetTools);
  EXPECT_EQ(four.routes, (Routes{{"0.0.0.0/0", "192.0.2.9"},
                                 {"10.3.0.0/16", "blackhole"},
                                 {"10.4.0.0/16", "unreachable"},
                                 {"10.8.0.0/16", "192.0.2.1"},
                                 {"10.18.0.1/32", "192.0.2.1"},
                                 {"192.0.2.0/24", "e0"}}));
  EXPECT_EQ(read_format("Destination     Gateway         Genmask         Flags   MSS Window  irtt Iface\n"
                        "0.0.0.0         192.0.2.1       0.0.0.0         UG        0 0          0 e0\n",
                        RouteFormat::kNetTools)
                .routes,
            (Routes{{"0.0.0.0/0", "192.0.2.1"}}));
  const FormatRead six = read_format(
      "Kernel IPv6 routing table\n"
      "Destination                    Next Hop                   Flag Met Ref Use If\n"
      "[::]/0                         ::                         !n   -1  3     0 lo\n"
      "2001:db8::/64                  [::]                       U    256 4     0 e0\n"
      "2001:db8:11::/48               fe80::1                    UG   1024 1    0 e0\n"
      "2001:db8:11::/48               fe80::1                    UG   1024 1    0 e1\n"
      "2001:db8:13::/48               ::                         !n   1024 1    0 lo\n"
      "::/0                           fe80::1                    UG   1024 1    0 e0\n"
      "2001:db8::5/128                ::                         Un   0   4     0 e0\n"
      "ff00::/8                       ::                         U    256 2     0 e0\n"
      "::/0                           ::                         !n   -1  3     0 lo\n",
      RouteFormat::kNetTools);
  EXPECT_EQ(six.routes, (Routes{{"2001:db8::/64", "e0"},
                                {"2001:db8:11::/48", "fe80::1%e0+fe80::1%e1"},
                                {"2001:db8:13::/48", "unreachable"},
                                {"::/0", "fe80::1%e0"},
                                {"2001:db8::5/128", "local"}}));
  EXPECT_EQ(six.report.skipped, 3u);
  EXPECT_EQ(six.report.warnings.size(), 1u);
  const std::string head = "Destination     Gateway         Genmask         Flags Metric Ref    Use Iface\n";
  EXPECT_EQ(first_error(head + "0.0.0.0 0.0.0.0 0.0.0.0 UG 0 0 0 e0\n"),
            "2:9: the gateway of this route is not printed: it is an IPv6 address");
  EXPECT_EQ(first_error(head + "10.0.0.0 router.example 255.0.0.0 UG 0 0 0 e0\n"),
            "2:10: 'router.example' is not an address");
  EXPECT_EQ(first_error(head + "link-local 0.0.0.0 255.255.0.0 U 0 0 0 e0\n"), "2:1: 'link-local' is not an address");
  EXPECT_EQ(first_error(head + "10.0.0.0 0.0.0.0 255.0.255.0 U 0 0 0 e0\n"), "2:18: '255.0.255.0' is not a mask");
  EXPECT_EQ(first_error(head + "10.0.0.0/8 via 192.0.2.1\n"), "2:1: this is not a line of the table");
}

TEST(RouteFormats, OfIpsJsonTheSameAsOfItsLines) {
  const FormatRead all = read_format(
      R"( [{"dst":"default","gateway":"192.0.2.1","dev":"e0","protocol":"dhcp","metric":100,"flags":[]},
      {"dst":"default","gateway":"192.0.2.9","dev":"e1","metric":32,"flags":[]},{},
      {"type":"blackhole","dst":"10.3.0.0/16","flags":[]},
      {"type":"unicast","dst":"10.2.0.0/16","flags":[],"nhid":7,"nexthops":[{"gateway":"192.0.2.1","dev":"e0","weight":1,"flags":[]},
        {"via":{"family":"inet6","host":"fe80::9"},"dev":"e0","weight":3,"flags":[]},
        {"gateway":"192.0.2.8","dev":"e0","weight":1,"flags":["dead","linkdown"]},{"dev":"tun0","weight":2,"flags":[]}]},
      {"dst":"10.7.0.1","gateway":"192.0.2.1","dev":"e0","flags":[],"metrics":[{"mtu":1300}]},
      {"dst":"10.8.0.0/16","tos":"0x10","gateway":"192.0.2.1","dev":"e0","flags":[]},
      {"dst":"10.8.0.0/16","gateway":"192.0.2.2","dev":"e0","flags":[]},
      {"dst":"10.8.0.0/16","gateway":"192.0.2.3","dev":"e0","flags":[]},
      {"dst":"10.11.0.0/16","encap":"ip","id":7,"src":"0.0.0.0","dst":"192.0.2.9","dev":"tun0","flags":[]},
      {"dst":"10.12.0.0/16","gateway":"192.0.2.1","dev":"e0","table":"100","flags":[]},
      {"dst":"10.13.0.0/16","gateway":"192.0.2.1","dev":"e0","table":100,"flags":[]},
      {"dst":"10.14.0.0/16","gateway":"192.0.2.1","dev":"e0","flags":["dead","linkdown"]},
      {"type":"local","dst":"192.0.2.5","dev":"e0","table":"local","flags":[]},
      {"type":"multicast","dst":"224.1.0.0/16","dev":"e0","flags":[]},
      {"dst":"default","from":"2001:db8:7::/48","gateway":"fe80::2","dev":"e0","metric":1024,"flags":[],"pref":"medium"},
      {"dst":"default","dev":"tun0","metric":2000,"flags":["linkdown"],"pref":"medium"}])",
      RouteFormat::kIpJson);
  EXPECT_EQ(all.routes, (Routes{{"0.0.0.0/0", "192.0.2.9"},
                                {"10.2.0.0/16", "192.0.2.1+fe80::9%e0*3+tun0*2"},
                                {"10.3.0.0/16", "blackhole"},
                                {"10.7.0.1/32", "192.0.2.1"},
                                {"10.8.0.0/16", "192.0.2.2"},
                                {"192.0.2.5/32", "local"},
                                {"::/0", "tun0"}}));
  ASSERT_EQ(all.report.warnings.size(), 3u);  // encap, from, tos
  EXPECT_TRUE(read_format("[ ]", RouteFormat::kIpJson).routes.empty());
  EXPECT_EQ(first_error("[{\"dev\":\"e0\"}]"), "1:2: there is no 'dst' here");
  EXPECT_EQ(first_error("[{\"dst\":\"10.0.0.0/8\"}]"), "1:2: 10.0.0.0/8 has no next hop");
  EXPECT_EQ(first_error("[{\"dst\":\"10.0.0.0/33\",\"dev\":\"e0\"}]"), "1:10: '33' is not a prefix length of IPv4");
  EXPECT_EQ(first_error("[{\"dst\":\"10.0.0.0/8\",\"dev\":\"a,b\"}]"), "1:30: byte 0x2c in a next hop");
  EXPECT_EQ(first_error("[]\n10.0.0.0/8 a\n"), "2:1: there is text after the JSON value");
}

TEST(RouteFormats, AMixtureIsAnErrorAtItsPlace) {
  const std::string frr = "S>* 10.1.0.0/16 [1/0] via 192.0.2.1, e0, weight 1, 00:00:04\n";
  const std::string lines = "10.0.0.0/8 via 192.0.2.1 dev e0\n";
  const std::string bird = "10.0.0.0/8  unicast [s4 18:05:51.277] * (200)\n\tvia 192.0.2.1 on e0\n";
  EXPECT_EQ(first_error(frr + lines), "2:1: '10.0.0.0/8 via 192.0.2.1 dev e0' is not a line of routes");
  EXPECT_EQ(first_error(frr + "  nonsense\n"), "2:3: 'nonsense' is not a line of routes");
  EXPECT_EQ(first_error("S>* 10.1.0.0/16 [1/0] via 192.0.2.1, e0, wait 1, 00:00:04\n"),
            "1:42: 'wait 1' is not part of a next hop");
  EXPECT_EQ(first_error("S>* 10.1.0.0/16 [1/0] via nowhere, e0\n"), "1:27: 'nowhere' is not part of a next hop");
  EXPECT_EQ(first_error(lines + frr), "2:1: 'S>*' is not a prefix");
  EXPECT_EQ(first_error("nonsense via 192.0.2.1 dev e0 table 100\n"), "1:1: 'nonsense' is not a prefix");
  EXPECT_EQ(first_error("nonsense hop table 100\n"), "1:1: 'nonsense' is not a prefix");
  EXPECT_EQ(first_error(lines + bird), "2:21: unexpected '[s4' after the next hop");
  EXPECT_EQ(first_error("Table master4:\n" + frr),
            "2:1: '" + frr.substr(0, frr.size() - 1) + "' is not a line of routes");
  EXPECT_EQ(first_error(lines + "Kernel IP routing table\n"), "2:1: 'Kernel' is not a prefix");
}

}  // namespace
}  // namespace sluice

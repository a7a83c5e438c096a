// Files of tables that are edited: what is still true stays as it is, and what comes out is the table.
#include "control/table_text.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "control/route_change.h"
#include "formats/adjacency_text.h"
#include "formats/native_rules.h"
#include "formats/qos_text.h"
#include "net/text.h"

namespace sluice {
namespace {

RuleList list_of(const std::string& text) {
  auto set = parse_native_rules(text, "edge.acl");
  EXPECT_TRUE(set.ok()) << (set.ok() ? "" : to_string(set.error()));
  return set.ok() ? RuleList(std::move(*set)) : RuleList();
}
AclRule rule_of(const std::string& text) {
  return list_of(text).at(1);
}
std::string edited(const std::string& text, const RuleList& list) {
  auto out = edit_rules(text, "edge.acl", list);
  return out.ok() ? *out : to_string(out.error());
}

SourcedRib rib_of(const std::string& text, const std::string& name = "rib.txt") {
  InputSet inputs;
  inputs.put("rib.txt", InputFile::over(text, "rib.txt"));
  auto rib = read_route_sources({name}, nullptr, {}, {}, &inputs);
  EXPECT_TRUE(rib.ok()) << (rib.ok() ? "" : to_string(rib.error()));
  return rib.ok() ? std::move(*rib) : SourcedRib();
}

constexpr const char* kCommented =
    "# the edge\ndefine web = 80,443\n\ndeny udp from any to any port 53 log  # no DNS\n"
    "permit tcp from any to any port web\n# the rest\npermit udp from any to any";

TEST(TableText, RulesThatAreAsTheyWereLeaveTheirFileAsItWas) {
  EXPECT_EQ(edited(kCommented, list_of(kCommented)), std::string(kCommented) + "\n");
}

TEST(TableText, RulesThatChangeLeaveTheOthersLinesAndAllComments) {
  RuleList list = list_of(kCommented);
  list.erase(3);  // one of a group: its line cannot stay
  list.insert(1, rule_of("deny ip from 192.0.2.0/24 to any"));
  EXPECT_EQ(edited(kCommented, list),
            "deny from 192.0.2.0/24 to 0.0.0.0/0\n# the edge\ndefine web = 80,443\n\n"
            "deny udp from any to any port 53 log  # no DNS\npermit tcp from any to any port 80\n# the rest\n"
            "permit udp from any to any\n");
  RuleList none;
  EXPECT_EQ(edited(kCommented, none), "# the edge\ndefine web = 80,443\n\n# the rest\n");
  EXPECT_EQ(edited("permit ip from any to any\n", none), "# no rules\n");
}

TEST(TableText, RulesOfOtherFilesAreRefused) {
  const auto wrong = edit_rules("deny tcp frm any to any\n", "edge.acl", RuleList());
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().diagnostics.size(), 1u);
}

// Against a list of rules that are put in, taken out and moved at random.
TEST(TableText, EditedRulesAreReadAsTheListWhateverChanged) {
  const std::vector<std::string> kRules = {"permit tcp from any to any port 80",
                                           "deny udp from any to any port 53 log",
                                           "mark(7) icmp from 10.0.0.0/8 to any icmp-type 8",
                                           "permit ip from 2001:db8::/32 to any",
                                           "deny tcp from any to any port 1000-2000 loose-ports",
                                           "permit ip from any to any dscp ef frag"};
  const bool holds = rc::check([&] {
    std::string text = "# first\n";
    const auto lines = *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, kRules.size() + 2));
    for (const size_t line : lines) {
      text += line < kRules.size()    ? kRules[line] + "  # of its own\n"
              : line == kRules.size() ? "# a comment\n"
                                      : "permit udp from any to any port 1,2,3\n";
    }
    RuleList list = list_of(text);
    for (int i = *rc::gen::inRange(0, 8); i > 0; --i) {
      const size_t at = *rc::gen::inRange<size_t>(1, list.size() + 2);
      const auto& rule = *rc::gen::elementOf(kRules);
      const int what = *rc::gen::inRange(0, 3);
      if (what == 0 || at > list.size()) {
        list.insert(at, rule_of(rule));
      } else if (what == 1) {
        list.erase(at);
      } else {
        list.replace(at, rule_of(rule));
      }
    }
    const auto out = edit_rules(text, "edge.acl", list);
    RC_ASSERT(out.ok());
    RC_ASSERT(to_native(*parse_native_rules(*out, "edge.acl")) == to_native(list.set()));
    RC_ASSERT(to_native(*parse_native_rules(rules_text(list), "edge.acl")) == to_native(list.set()));
    // Comments stay, each once.
    const auto comments = [](const std::string& all) {
      size_t n = 0;
      for (size_t p = all.find("# a comment"); p != std::string::npos; p = all.find("# a comment", p + 1)) ++n;
      return n;
    };
    RC_ASSERT(comments(*out) == comments(text));
  });
  EXPECT_TRUE(holds);
}

TEST(TableText, RoutesKeepTheirSourcesAndPreferences) {
  const std::string text = "# upstream\n0.0.0.0/0 a\n10.0.0.0/8, via b metric 20 # core\ndefault via 2001:db8::1\n";
  SourcedRib rib = rib_of(text);
  const uint8_t control = rib.source("control"), ospf = rib.source("ospf");
  const auto hop = [&](const char* name) { return static_cast<uint16_t>(rib.next_hops().intern(name)); };
  const RouteFile file{"rib.txt", {}, {}, {}};
  auto same = edit_routes(text, file, rib);
  ASSERT_TRUE(same.ok()) << to_string(same.error());
  EXPECT_EQ(*same, text);
  rib.add({{0, 0x0a010000, 4}, 16}, {0, hop("c"), control, 0, 0});
  rib.add({{0, 0x0a000000, 4}, 8}, {5, hop("b"), ospf, 42, 0});
  rib.remove({{0, 0, 6}, 0}, rib.find_source("static"), 0);
  const auto out = edit_routes(text, file, rib);
  ASSERT_TRUE(out.ok()) << to_string(out.error());
  EXPECT_EQ(*out,
            "# upstream\n0.0.0.0/0 a\nsource static\n10.0.0.0/8 via b metric 20\nsource control\n10.1.0.0/16 via c\n"
            "source ospf preference 42\n10.0.0.0/8 via b metric 5\n");
  const auto again = edit_routes(*out, file, rib);
  ASSERT_TRUE(again.ok()) << to_string(again.error());
  EXPECT_EQ(*again, *out) << "what was saved is what is there";
  for (const std::string& written : {*out, routes_text(rib)}) {
    const SourcedRib read = rib_of(written);
    EXPECT_EQ(read.candidate_count(), rib.candidate_count());
    const auto best = read.candidates({{0, 0x0a000000, 4}, 8});
    ASSERT_EQ(best.size(), 2u);
    EXPECT_EQ(read.source_name(best[0].source), "static");
    EXPECT_EQ(best[1].preference, 42);
    EXPECT_EQ(best[1].metric, 5u);
  }
}

TEST(TableText, ASourceOfAFileStaysItsOwn) {
  const RouteFile file{"rib.txt", "bgp", uint8_t{33}, {}};
  SourcedRib rib = rib_of("10.0.0.0/8 a\n", "rib.txt,source=bgp,preference=33");
  const auto out = edit_routes("10.0.0.0/8 a\n", file, rib);
  ASSERT_TRUE(out.ok()) << to_string(out.error());
  EXPECT_EQ(*out, "10.0.0.0/8 a\n");
}

TEST(TableText, LinesOfIpRouteGoWithTheirRoute) {
  const RouteFile file{"rib.txt", {}, {}, {}};
  const std::string rest = "# end\n2001:db8::/32 via fe80::1 dev e0 metric 5 pref medium\n";
  const std::string text =
      "default nhid 3 proto bgp \n\tnexthop via inet6 fe80::1 dev eth0 weight 1\n"
      "\tnexthop via 192.0.2.2 dev eth0 weight 1\nblackhole 10.0.0.0/8 \ndefault via fe80::2 dev e0\n" +
      rest;
  SourcedRib rib = rib_of(text);
  const auto same = edit_routes(text, file, rib);
  ASSERT_TRUE(same.ok()) << to_string(same.error());
  EXPECT_EQ(*same, text);
  const auto metric_0 = [&](const IpPrefix& prefix) { return rib.remove(prefix, 1, 0); };
  ASSERT_TRUE(metric_0({{0, 0x0a000000, 4}, 8}));
  ASSERT_TRUE(metric_0({{0, 0, 6}, 0}));
  const auto hop = static_cast<uint16_t>(rib.next_hops().intern("fe80::9%e1"));
  rib.add({{0, 0, 4}, 0}, {0, hop, 1, 1, 0});
  const auto out = edit_routes(text, file, rib);
  ASSERT_TRUE(out.ok()) << to_string(out.error());
  EXPECT_EQ(*out, rest + "source static\n0.0.0.0/0 via fe80::9%e1\n") << "an IPv4 route over an IPv6 neighbour";
  EXPECT_EQ(*edit_routes(*out, file, rib), *out);
}

// Changes of a running table are lines as in a file, and what is written of them reads back the same.
TEST(TableText, RoutesThatAreAddedToARunningTableAreReadAsLines) {
  SourcedRib rib;
  rib.begin();
  const auto change = [&](const std::string& text) {
    const auto steps = take_route_change(rib, text, "change");
    return steps.ok() ? "" : to_string(steps.error());
  };
  const auto best = [](const SourcedRib& of, const char* prefix) {
    const uint32_t hop = of.best(*parse_prefix(prefix));
    return hop == 0 ? std::string("-") : std::string(of.next_hops().name(hop));
  };
  EXPECT_EQ(change("add default via inet6 fe80::1 dev e0 proto bgp metric 20\n"
                   "add 10.0.0.0/8 nhid 3 nexthop via inet6 2001:db8::1 dev e0 weight 2 nexthop via 192.0.2.1 dev e1\n"
                   "add blackhole 10.1.0.0/16\nadd default via 2001:db8::1 dev e0 metric 1024 pref medium\n"),
            "");
  const std::string written = routes_text(rib);
  for (const SourcedRib& one : {rib_of(written), rib}) {
    EXPECT_EQ(best(one, "0.0.0.0/0"), "fe80::1%e0");
    EXPECT_EQ(best(one, "::/0"), "2001:db8::1");
    EXPECT_EQ(best(one, "10.0.0.0/8"), "2001:db8::1*2+192.0.2.1");
    EXPECT_EQ(best(one, "10.1.0.0/16"), "blackhole");
  }
  EXPECT_TRUE(rib_of(written).same_routes(rib));
  EXPECT_NE(
      change("add 10.2.0.0/16 from 192.0.2.0/24 via 192.0.2.1 dev e0\n").find("routes by source are not supported"),
      std::string::npos);
  EXPECT_NE(change("add default via inet 192.0.2.1 dev e0\n").find("may be of either family"), std::string::npos);
  EXPECT_NE(change("add [{\"dst\":\"10.2.0.0/16\",\"dev\":\"e0\"}]\n").find("is not a prefix"), std::string::npos);
  EXPECT_NE(change("delete default\n").find("write 0.0.0.0/0 or ::/0"), std::string::npos);
  EXPECT_EQ(change("delete 0.0.0.0/0\ndelete 10.0.0.0/8\n"), "");
  EXPECT_EQ(best(rib, "0.0.0.0/0"), "-");
  EXPECT_EQ(best(rib, "::/0"), "2001:db8::1");
}

TEST(TableText, RoutesOfOtherFormatsAreNotWritten) {
  const std::string text = "[{\"dst\":\"10.0.0.0/8\",\"dev\":\"e0\",\"flags\":[]}]\n";
  const auto out = edit_routes(text, {"rib.json", {}, {}, {}}, rib_of(text));
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.error().message.find("ip -j route"), std::string::npos);
}

TEST(TableText, AdjacenciesThatChangeLeaveTheOthers) {
  const std::string text =
      "# neighbours\nresolve-via default\na 02:00:00:00:00:01 02:00:00:00:00:02 1 # up\n"
      "b 02:00:00:00:00:03 02:00:00:00:00:02 2 weight 2\nb 02:00:00:00:00:04 02:00:00:00:00:02 3 vlan 7 mtu 9000\n"
      "c group a b*2 resilient 64\nd blackhole\n";
  auto definitions = parse_next_hops(text, "adj.txt");
  ASSERT_TRUE(definitions.ok());
  EXPECT_EQ(*edit_adjacencies(text, "adj.txt", *definitions), text);
  const auto whole = parse_next_hops(adjacencies_text(*definitions), "adj.txt");
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->names, definitions->names);
  EXPECT_TRUE(whole->via_default);
  definitions->names["b"].neighbours.pop_back();
  definitions->names.erase("d");
  definitions->names["e"].flags = next_hop_flags("unreachable");
  EXPECT_EQ(*edit_adjacencies(text, "adj.txt", *definitions),
            "# neighbours\nresolve-via default\na 02:00:00:00:00:01 02:00:00:00:00:02 1 # up\n"
            "c group a b*2 resilient 64\nb 02:00:00:00:00:03 02:00:00:00:00:02 2 weight 2\ne unreachable\n");
}

constexpr const char* kClasses =
    "# two classes\nclass rate  dscp ef, cs5  strict  rate 20Mbps burst 10000  # voice\n\n"
    "class rest dscp others limit 500 red 100 500 10% # the rest, at no rate\nport rate 2Gbps # both\n";

QosModel classes_of(const std::string& text) {
  auto model = parse_qos(text, "edge.qos");
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : to_string(model.error()));
  return model.ok() ? *model : QosModel();
}
std::string edited(const std::string& text, const QosModel& model) {
  auto out = edit_qos(text, "edge.qos", model);
  return out.ok() ? *out : to_string(out.error());
}

TEST(TableText, ClassesThatAreAsTheyWereLeaveTheirFileAsItWas) {
  EXPECT_EQ(edited(kClasses, classes_of(kClasses)), kClasses);
}

TEST(TableText, RatesOfClassesAreWrittenWhereTheyStand) {
  QosModel model = classes_of(kClasses);
  model.classes[0].rate_bps = 1'500'000;
  model.classes[1].rate_bps = 1'234'567;
  model.port_rate_bps = 3'000'000'000;
  EXPECT_EQ(edited(kClasses, model),
            "# two classes\nclass rate  dscp ef, cs5  strict  rate 1500kbps burst 10000  # voice\n\n"
            "class rest dscp others limit 500 red 100 500 10% rate 1234567bps # the rest, at no rate\n"
            "port rate 3Gbps # both\n");
  model.classes[0].rate_bps = model.port_rate_bps = 0;
  model.classes[1].rate_bps = 0;
  EXPECT_EQ(edited(kClasses, model),
            "# two classes\nclass rate  dscp ef, cs5  strict  # voice\n\n"
            "class rest dscp others limit 500 red 100 500 10% # the rest, at no rate\n");
  model = classes_of("class a burst 9 rate 1Mbps strict");
  model.classes[0].rate_bps = 0;
  model.port_rate_bps = 4'000;
  EXPECT_EQ(edited("\xEF\xBB\xBF"
                   "class a burst 9 rate 1Mbps strict",
                   model),
            "\xEF\xBB\xBF"
            "class a strict\nport rate 4kbps\n");
}

TEST(TableText, OtherClassesAreNotWrittenIntoAFile) {
  QosModel other = classes_of(kClasses);
  other.classes[1].limit_pkts = 7;
  EXPECT_NE(edited(kClasses, other).find("cannot be edited line by line"), std::string::npos);
  other = classes_of(kClasses);
  other.classes.pop_back();
  EXPECT_NE(edited(kClasses, other).find("cannot be edited line by line"), std::string::npos);
  EXPECT_NE(edited("class", other).find("a class without a name"), std::string::npos);
}

}  // namespace
}  // namespace sluice

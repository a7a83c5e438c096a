#include "formats/nft_rules.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/filter_model.h"
#include "formats/native_rules.h"

namespace sluice {
namespace {

using namespace filter_model;
using ::testing::HasSubstr;

std::string payload(const char* protocol, const char* field) {
  return fmt::format(R"({{"payload": {{"protocol": "{}", "field": "{}"}}}})", protocol, field);
}
std::string match(const std::string& left, const char* op, const std::string& right) {
  return fmt::format(R"({{"match": {{"op": "{}", "left": {}, "right": {}}}}})", op, left, right);
}
std::string flags_text(unsigned bits) {
  static constexpr const char* kNames[] = {"fin", "syn", "rst", "psh", "ack", "urg"};
  std::string t;
  for (unsigned i = 0; i < 6; ++i) {
    if ((bits >> i & 1) != 0) t += (t.empty() ? "\"" : ", \"") + std::string(kNames[i]) + "\"";
  }
  return "[" + t + "]";
}

std::string print_condition(const Condition& x, uint8_t family) {
  using Kind = Condition::Kind;
  const char* op = x.negated ? "!=" : "==";
  const char* ip = family == 4 ? "ip" : "ip6";
  const char* l4 = x.protocol == 6 ? "tcp" : "udp";
  std::string ranges;
  for (const auto& [low, high] : x.ranges) {
    ranges += (ranges.empty() ? "" : ", ") +
              (low == high ? fmt::format("{}", low) : fmt::format("{{\"range\": [{}, {}]}}", low, high));
  }
  if (x.ranges.size() > 1) ranges = "{\"set\": [" + ranges + "]}";
  switch (x.kind) {
    case Kind::kSrc:
    case Kind::kDst: {
      const IpPrefix& p = x.prefixes[0];
      const std::string right =
          p.length == (family == 4 ? 32 : 128)
              ? "\"" + to_string(p.address) + "\""
              : fmt::format("{{\"prefix\": {{\"addr\": \"{}\", \"len\": {}}}}}", to_string(p.address), p.length);
      return match(payload(ip, x.kind == Kind::kSrc ? "saddr" : "daddr"), op, right);
    }
    case Kind::kProtocol:
      return match("{\"meta\": {\"key\": \"l4proto\"}}", op,
                   x.protocol == 6    ? "\"tcp\""
                   : x.protocol == 58 ? "\"ipv6-icmp\""
                                      : fmt::format("{}", x.protocol));
    case Kind::kSrcPort:
      return match(payload(l4, "sport"), op, ranges);
    case Kind::kDstPort:
      return match(payload(x.negated ? l4 : "th", "dport"), op, ranges);
    case Kind::kFlags:
      return match(fmt::format("{{\"&\": [{}, {{\"|\": {}}}]}}", payload("tcp", "flags"), flags_text(x.mask)), op,
                   flags_text(x.value));
    case Kind::kIcmp:
      return match(payload(family == 4 ? "icmp" : "icmpv6", "type"), op, fmt::format("{}", x.value));
    case Kind::kLater:
      return match(fmt::format("{{\"&\": [{}, 8191]}}", payload("ip", "frag-off")), x.negated ? "==" : "!=", "0");
    case Kind::kDscp:
      return match(payload(ip, "dscp"), op, fmt::format("{}", x.value));
  }
  return {};
}

std::string print(const Model& m) {
  const char* family = m.family == 4 ? "ip" : "ip6";
  std::string t = R"({"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
{"table": {"family": ")" +
                  std::string(family) + R"(", "name": "filter", "handle": 1}},
)";
  for (size_t c = 0; c < m.chains.size(); ++c) {
    t += fmt::format(R"({{"chain": {{"family": "{}", "table": "filter", "name": "c{}", "handle": {})", family, c, c);
    if (c == 0)
      t += fmt::format(R"(, "type": "filter", "hook": "forward", "prio": 0, "policy": "{}")",
                       m.drop_policy ? "drop" : "accept");
    t += "}},\n";
  }
  for (size_t c = 0; c < m.chains.size(); ++c) {
    for (const Rule& r : m.chains[c]) {
      std::vector<std::string> expr;
      for (const Condition& x : r.conditions) expr.push_back(print_condition(x, m.family));
      expr.push_back(R"({"counter": {"packets": 0, "bytes": 0}})");
      if (r.log) expr.push_back(R"({"log": {"prefix": "say \"drop\" \u00e9"}})");
      if (r.marks)
        expr.push_back(fmt::format(R"({{"mangle": {{"key": {{"meta": {{"key": "mark"}}}}, "value": {}}}}})", r.mark));
      switch (r.target) {
        case Rule::Target::kNothing:
          break;
        case Rule::Target::kAccept:
          expr.push_back(R"({"accept": null})");
          break;
        case Rule::Target::kDrop:
          expr.push_back(r.conditions.empty() ? R"({"reject": {"type": "icmpx", "expr": "port-unreachable"}})"
                                              : R"({"drop": null})");
          break;
        case Rule::Target::kReturn:
          expr.push_back(R"({"return": null})");
          break;
        case Rule::Target::kJump:
          expr.push_back(fmt::format(R"({{"jump": {{"target": "c{}"}}}})", r.chain));
          break;
        case Rule::Target::kGoto:
          expr.push_back(fmt::format(R"({{"goto": {{"target": "c{}"}}}})", r.chain));
          break;
      }
      t += fmt::format(
          R"({{"rule": {{"family": "{}", "table": "filter", "chain": "c{}", "handle": 9, "comment": "x", "expr": [{}]}}}},
)",
          family, c, fmt::join(expr, ", "));
    }
  }
  t += R"({"counter": {"family": "ip", "table": "filter", "name": "n"}}]})";
  return t;
}

TEST(NftRules, DecideAsTheChainsDo) {
  compare_with_model(200, print, [](const std::string& text) { return parse_nft_rules(text, "t"); });
}

// An inet table with one base chain; `rules` is lists of statements, one rule each; `more` is further entries.
std::string ruleset(const std::vector<std::string>& rules, const std::string& more = {}) {
  std::string t =
      R"({"nftables": [{"chain": {"family": "inet", "table": "fw", "name": "forward", "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}}, {"chain": {"family": "inet", "table": "fw", "name": "web"}})";
  t += more.empty() ? "" : ",\n" + more;
  for (const std::string& r : rules) {
    t += fmt::format(
        ",\n{{\"rule\": {{\"family\": \"inet\", \"table\": \"fw\", \"chain\": \"forward\", \"expr\": [{}]}}}}", r);
  }
  return t + "]}\n";
}
std::string native(const std::string& text, std::string_view chain = {}) {
  const auto set = parse_nft_rules(text, "fw.json", chain);
  return set.ok() ? to_native(*set) : to_string(set.error());
}
std::string native_rule(const std::string& statements, const std::string& more = {}) {
  const std::string all = native(ruleset({statements}, more));
  const std::string policy = "deny from any to any\n";
  return all.ends_with(policy) ? all.substr(0, all.size() - policy.size()) : all;
}
// "line: message" of each finding of a rule, which is in line 2.
std::string findings(const std::string& text, std::string_view chain = {}) {
  const auto set = parse_nft_rules(text, "fw.json", chain);
  if (set.ok()) return "no findings";
  std::string t;
  for (const Diagnostic& d : set.error().diagnostics) t += fmt::format("{}: {}\n", d.line, d.message);
  return t;
}

const std::string kAccept = R"({"accept": null})";

TEST(NftRules, ReadAsNativeOnes) {
  EXPECT_EQ(native_rule(match(payload("tcp", "dport"), "==", R"({"set": [22, "https", {"range": [8000, 8080]}]})") +
                        ", " + kAccept),
            "permit tcp from any to any port 22\npermit tcp from any to any port 443\npermit tcp from any to any port "
            "8000-8080\n");
  EXPECT_EQ(native_rule(match(payload("ip", "saddr"), ">", "\"255.255.255.252\"") + ", " + kAccept),
            "permit from 255.255.255.253 to 0.0.0.0/0\npermit from 255.255.255.254/31 to 0.0.0.0/0\n");
  EXPECT_EQ(native_rule(match(payload("tcp", "flags"), "in", R"(["syn", "ack"])") + ", " + kAccept),
            "permit tcp from any to any port 0-65535 flags 0x0200/0x0200\n"
            "permit tcp from any to any port 0-65535 flags 0x1000/0x1200\n");
  EXPECT_EQ(native_rule(match(payload("icmpv6", "type"), "==", R"("nd-neighbor-solicit")") + ", " + kAccept),
            "permit icmp6 from ::/0 to ::/0 bits 0x00/0x04 icmp-type 135\n");
  EXPECT_EQ(native_rule(match(R"({"meta": {"key": "nfproto"}})", "==", R"("ipv6")") + ", " +
                        R"({"log": null}, {"drop": null})"),
            "deny from ::/0 to ::/0 log\n");
  EXPECT_EQ(native_rule(match(payload("udp", "sport"), "<", "0") + ", " + kAccept), "") << "no port is below 0";
  EXPECT_EQ(native_rule(
                match(payload("ip", "daddr"), "==", R"("@good")") + ", " + kAccept,
                R"({"set": {"family": "inet", "name": "good", "table": "fw", "type": "ipv4_addr", "flags": ["interval"],
 "elem": [{"prefix": {"addr": "192.0.2.0", "len": 24}}, {"elem": {"val": "198.51.100.1", "comment": "x"}}]}})"),
            "permit from 0.0.0.0/0 to 192.0.2.0/24\npermit from 0.0.0.0/0 to 198.51.100.1\n");
  EXPECT_EQ(native_rule(
                match(R"({"concat": [)" + payload("ip", "saddr") + ", " + payload("tcp", "dport") + "]}",
                      "==", R"({"set": [{"concat": ["10.0.0.1", 22]}, {"concat": ["10.0.0.2", {"range": [1, 2]}]}]})") +
                ", " + kAccept),
            "permit tcp from 10.0.0.1 to 0.0.0.0/0 port 22\npermit tcp from 10.0.0.2 to 0.0.0.0/0 port 1-2\n");
  EXPECT_EQ(native_rule(R"({"vmap": {"key": )" + payload("udp", "dport") +
                        R"(, "data": {"set": [[53, {"accept": null}], [67, {"drop": null}]]}}})"),
            "permit udp from any to any port 53\ndeny udp from any to any port 67\n");
}

TEST(NftRules, EffectsStayWithThePacket) {
  const std::string mark = R"({"mangle": {"key": {"meta": {"key": "mark"}}, "value": 5}})";
  EXPECT_EQ(native_rule(mark + ", " + match(payload("ip", "saddr"), "==", "\"10.0.0.1\"") + ", " + kAccept),
            "mark(5) from 10.0.0.1 to 0.0.0.0/0\n");
  const auto set = parse_nft_rules(ruleset({mark, kAccept}), "t");
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->rules.at(0).verb, AclVerb::kMark);
}

TEST(NftRules, ChooseTheChain) {
  auto chain = [](const char* family, const char* table, const char* name, const char* hook) {
    return fmt::format(
        R"({{"chain": {{"family": "{}", "table": "{}", "name": "{}", "type": "filter", "hook": "{}", "prio": 0, "policy": "accept"}}}})",
        family, table, name, hook);
  };
  auto rule = [](const char* family, const char* table, const char* name, const char* verdict) {
    return fmt::format(R"({{"rule": {{"family": "{}", "table": "{}", "chain": "{}", "expr": [{{"{}": null}}]}}}})",
                       family, table, name, verdict);
  };
  auto text = [](std::initializer_list<std::string> entries) {
    return fmt::format("{{\"nftables\": [{}]}}", fmt::join(entries, ",\n"));
  };
  const std::string in4 = chain("ip", "t", "in", "input"), fwd4 = chain("ip", "t", "fwd", "forward"),
                    fwd6 = chain("ip6", "t", "fwd", "forward"), other = chain("ip", "u", "fwd", "forward");
  EXPECT_EQ(native(text({in4, fwd4})), "permit from 0.0.0.0/0 to 0.0.0.0/0\n");
  EXPECT_EQ(native(text({in4, fwd4, rule("ip", "t", "in", "drop")})),
            "deny from 0.0.0.0/0 to 0.0.0.0/0\npermit from 0.0.0.0/0 to 0.0.0.0/0\n");
  EXPECT_EQ(native(text({fwd4, fwd6, rule("ip", "t", "fwd", "drop"), rule("ip6", "t", "fwd", "drop")})),
            "deny from 0.0.0.0/0 to 0.0.0.0/0\npermit from 0.0.0.0/0 to 0.0.0.0/0\n"
            "deny from ::/0 to ::/0\npermit from ::/0 to ::/0\n");
  const std::string both = text({in4, fwd4, rule("ip", "t", "in", "drop"), rule("ip", "t", "fwd", "drop")});
  EXPECT_THAT(findings(both), HasSubstr("several base chains decide packets: t/in, t/fwd"));
  EXPECT_EQ(findings(both, "fwd"), "no findings");
  EXPECT_EQ(findings(both, "t/in"), "no findings");
  EXPECT_THAT(findings(text({fwd4, other}), "fwd"), HasSubstr("several base chains"));
  EXPECT_EQ(findings(text({fwd4, other}), "u/fwd"), "no findings");
  EXPECT_THAT(findings(both, "out"), HasSubstr("there is no chain 'out'"));
  EXPECT_THAT(findings(text({})), HasSubstr("no base chain"));
}

TEST(NftRules, NameWhatTheyDoNotUnderstand) {
  const std::string ct = R"({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established"]}})";
  const std::string set =
      R"({"set": {"family": "inet", "name": "seen", "table": "fw", "type": "ipv4_addr", "flags": ["dynamic"]}})";
  EXPECT_EQ(findings(ruleset(
                {ct + ", " + kAccept, match(payload("ip", "ttl"), "==", "1"),
                 match(payload("tcp", "dport"), "==", "70000") + ", " +
                     match(payload("ip", "saddr"), "==", "\"2001:db8::1\""),
                 R"({"limit": {"rate": 1}}, {"accept": null})", R"({"jump": {"target": "nowhere"}})",
                 match(payload("th", "dport"), "==", "80"), match(payload("tcp", "dport"), "~", "80"),
                 match(payload("ip", "saddr"), "==", "\"@seen\""), match(payload("ip", "saddr"), "==", "\"@none\""),
                 R"({"accept": null}, {"drop": null})", match(payload("udp", "dport"), "==", R"({"range": [9, 8]})"),
                 match(payload("ip6", "nexthdr"), "==", "6"), R"({"xt": null})"},
                set)),
            "3: expression 'ct' is not understood\n"
            "4: a rule cannot match 'ip ttl'\n"
            "5: 70000 is not a value of this field\n"
            "5: \"2001:db8::1\" is not a value of this field\n"
            "6: statement 'limit' is not understood\n"
            "7: there is no chain 'nowhere'\n"
            "8: 'th' is looked at in packets that may have no ports\n"
            "9: \"~\" is not an operator\n"
            "10: the members of set '@seen' change while packets flow (dynamic)\n"
            "11: there is no set '@none'\n"
            "12: a statement follows the verdict\n"
            "13: the range is empty\n"
            "14: a rule cannot match 'ip6 nexthdr'\n"
            "15: statement 'xt' is not understood\n");
  EXPECT_THAT(findings(ruleset({R"({"jump": {"target": "forward"}})"})), HasSubstr("called from within itself"));
  EXPECT_EQ(findings("{\"nftables\": [\n{\"rule\": 1,}]}"), "2: 0x7d is not valid here in JSON\n");
  EXPECT_EQ(findings("{\"nft\": []}"), "1: there is no list \"nftables\"\n");
  EXPECT_EQ(findings("{\"nftables\": [7]}"), "1: an entry of \"nftables\" has not exactly one member\n");
  EXPECT_EQ(findings(std::string(100, '[')), "1: values are nested deeper than 64\n");
  EXPECT_EQ(findings("{} 1"), "1: there is text after the JSON value\n");
  EXPECT_THAT(findings("{\"a\": \"\\u12g4\"}"), HasSubstr("0x67"));
  EXPECT_EQ(findings("{\"a\": [1, 2"), "1: the JSON text ends too early\n");
}

TEST(NftRules, LookThroughThIfThePacketsHavePorts) {
  EXPECT_EQ(native_rule(match(R"({"meta": {"key": "l4proto"}})", "==", R"({"set": ["tcp", "udp"]})") + ", " +
                        match(payload("th", "dport"), "==", "53") + ", " + kAccept),
            "permit tcp from any to any port 53\npermit udp from any to any port 53\n");
}

}  // namespace
}  // namespace sluice

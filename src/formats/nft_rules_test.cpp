#include "formats/nft_rules.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
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
      std::string right;
      for (const IpPrefix& p : x.prefixes) {
        right += right.empty() ? "" : ", ";
        right += p.length == (family == 4 ? 32 : 128)
                     ? "\"" + to_string(p.address) + "\""
                     : fmt::format("{{\"prefix\": {{\"addr\": \"{}\", \"len\": {}}}}}", to_string(p.address), p.length);
      }
      if (x.prefixes.size() > 1) right = "{\"set\": [" + right + "]}";
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
    case Kind::kState: {
      // Of several, as a list of bits or as a set.
      std::string words;
      bool several = false;
      for (unsigned i = 0; i < 5; ++i) {
        if ((x.states >> i & 1) == 0) continue;
        several = !words.empty();
        words += fmt::format("{}\"{}\"", several ? ", " : "", i == 4 ? "untracked" : kConnStates[i].name);
      }
      const std::string left = R"({"ct": {"key": "state"}})";
      if (x.value == 0) return match(left, x.negated ? "!" : "in", several ? "[" + words + "]" : words);
      return match(left, op, several ? "{\"set\": [" + words + "]}" : words);
    }
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
  compare_with_model(300, false, false, print, [](const std::string& text, const StateReading& states) {
    return parse_nft_rules(text, "t", {}, states);
  });
}

TEST(NftRules, DecideForEachStateAsTheChainsDo) {
  compare_with_model(150, false, true, print, [](const std::string& text, const StateReading& states) {
    return parse_nft_rules(text, "t", {}, states);
  });
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
            "permit tcp from any to any port 22 bits 0x00/0x40\npermit tcp from any to any port 443 bits 0x00/0x40\n"
            "permit tcp from any to any port 8000-8080 bits 0x00/0x40\n");
  EXPECT_EQ(native_rule(match(payload("ip", "saddr"), ">", "\"255.255.255.252\"") + ", " + kAccept),
            "permit from 255.255.255.253 to 0.0.0.0/0\npermit from 255.255.255.254/31 to 0.0.0.0/0\n");
  EXPECT_EQ(native_rule(match(payload("tcp", "flags"), "in", R"(["syn", "ack"])") + ", " + kAccept),
            "permit tcp from any to any flags 0x0200/0x0200 bits 0x00/0x40\n"
            "permit tcp from any to any flags 0x1000/0x1200 bits 0x00/0x40\n");
  EXPECT_EQ(native_rule(match(payload("icmpv6", "type"), "==", R"("nd-neighbor-solicit")") + ", " + kAccept),
            "permit icmp6 from ::/0 to ::/0 bits 0x00/0x40 icmp-type 135\n");
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
            "permit udp from any to any port 53 bits 0x00/0x40\ndeny udp from any to any port 67 bits 0x00/0x40\n");
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
  const std::string both = text({in4, fwd4, rule("ip", "t", "in", "drop"), rule("ip", "t", "fwd", "accept")});
  EXPECT_EQ(native(both), "permit from 0.0.0.0/0 to 0.0.0.0/0\npermit from 0.0.0.0/0 to 0.0.0.0/0\n") << "forward";
  EXPECT_EQ(native(both, "t/in"), "deny from 0.0.0.0/0 to 0.0.0.0/0\npermit from 0.0.0.0/0 to 0.0.0.0/0\n");
  EXPECT_EQ(findings(both, "fwd"), "no findings");
  EXPECT_THAT(findings(text({fwd4, other}), "fwd"), HasSubstr("several base chains"));
  EXPECT_EQ(findings(text({fwd4, other}), "u/fwd"), "no findings");
  EXPECT_THAT(findings(both, "out"), HasSubstr("there is no chain 'out'"));
  EXPECT_THAT(findings(text({})), HasSubstr("no base chain"));
}

// The chains and rules of one table each, by lines: "FAMILY TABLE CHAIN TYPE HOOK PRIORITY POLICY", "FAMILY TABLE
// CHAIN" of a chain without a hook, or "FAMILY TABLE CHAIN: STATEMENTS".
std::string ruleset_of(std::initializer_list<std::string_view> lines) {
  std::vector<std::string> entries;
  for (const std::string_view line : lines) {
    const size_t colon = line.find(": ");
    std::vector<std::string> words(1);
    for (const char c : line.substr(0, colon)) {
      c == ' ' ? void(words.emplace_back()) : words.back().push_back(c);
    }
    const std::string where = fmt::format(R"("family": "{}", "table": "{}", "{}": "{}")", words[0], words[1],
                                          colon == std::string_view::npos ? "name" : "chain", words[2]);
    if (colon != std::string_view::npos) {
      entries.push_back(fmt::format(R"({{"rule": {{{}, "expr": [{}]}}}})", where, line.substr(colon + 2)));
    } else if (words.size() == 3) {
      entries.push_back(fmt::format(R"({{"chain": {{{}}}}})", where));
    } else {
      entries.push_back(fmt::format(R"({{"chain": {{{}, "type": "{}", "hook": "{}", "prio": {}, "policy": "{}"}}}})",
                                    where, words[3], words[4], words[5], words[6]));
    }
  }
  return fmt::format("{{\"nftables\": [{}]}}", fmt::join(entries, ",\n"));
}
FlowKey tcp_key(uint16_t port, uint8_t family = 4) {
  FlowKey k;
  k.family = family;
  k.protocol = 6;
  k.dst_port = port;
  k.bits = FlowKey::kHasPorts;
  return k;
}
// What the list does with TCP to these ports: "+" passes, "-" does not; or the findings.
std::string ports_pass(const std::string& text, std::initializer_list<uint16_t> ports, uint8_t family = 4) {
  const auto set = parse_nft_rules(text, "fw.json");
  if (!set.ok()) return findings(text);
  std::string t;
  for (const uint16_t port : ports) t += verdict_of(*set, tcp_key(port, family)).permit ? '+' : '-';
  return t;
}
std::string on_port(const char* ports, const char* verdict) {
  return match(payload("tcp", "dport"), "==", ports) + fmt::format(R"(, {{"{}": null}})", verdict);
}

TEST(NftRules, RefuseMoreBaseChainsThanAPacketWillMeet) {
  std::string entries;
  for (int c = 0; c < 40; ++c) {
    entries += fmt::format(
        R"({}{{"chain": {{"family": "ip", "table": "t", "name": "c{}", "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}}}})",
        c == 0 ? "" : ", ", c);
  }
  EXPECT_THAT(findings("{\"nftables\": [" + entries + "]}"), HasSubstr("more than 32 base chains"));
}

// A packet that is forwarded passes if every base chain on its way accepts it.
TEST(NftRules, EveryBaseChainOnTheWayDecides) {
  const std::string_view forward = "inet fw forward filter forward 0 accept";
  const std::string accept80 = "inet fw forward: " + on_port("80", "accept");
  for (const char* other : {"ip filter FORWARD filter forward 0 drop", "inet fw pre filter prerouting -300 drop",
                            "inet fw post filter postrouting 10 drop", "inet a first filter forward -5 drop"}) {
    EXPECT_EQ(ports_pass(ruleset_of({forward, other, accept80}), {80, 81}), "--") << other;
    EXPECT_EQ(ports_pass(ruleset_of({other, forward, accept80}), {80, 81}), "--") << other;
  }
  const std::string ip6 = ruleset_of({forward, "ip6 six forward filter forward 0 drop", accept80});
  EXPECT_EQ(ports_pass(ip6, {80, 81}), "++");
  EXPECT_EQ(ports_pass(ip6, {80, 81}, 6), "--");
  // Accepted by one, and then by the other: of each the rules, a return, a chain that both reach, and the policy.
  const std::string two = ruleset_of(
      {"inet fw web", "inet fw pre filter prerouting 0 accept", "inet fw forward filter forward 0 drop",
       "inet fw web: " + on_port(R"({"set": [80, 81]})", "accept"), "inet fw pre: " + on_port("443", "return"),
       R"(inet fw pre: {"jump": {"target": "web"}})", "inet fw pre: " + on_port(R"({"range": [440, 449]})", "drop"),
       "inet fw forward: " + on_port("81", "drop"), "inet fw forward: " + on_port("442", "accept"),
       R"(inet fw forward: {"jump": {"target": "web"}})",
       "inet fw forward: " + on_port(R"({"range": [443, 500]})", "accept")});
  EXPECT_EQ(ports_pass(two, {80, 81, 442, 443, 444, 450, 22}), "+--+-+-");
  // In the order of hooks and priorities, so that the last mark stays.
  auto mark = [](int n) {
    return fmt::format(R"({{"mangle": {{"key": {{"meta": {{"key": "mark"}}}}, "value": {}}}}})", n);
  };
  const auto marks =
      parse_nft_rules(ruleset_of({"ip t b filter forward 5 accept", "ip t c filter postrouting -500 accept",
                                  "ip t a filter forward -5 accept", "ip t a: " + mark(1), "ip t b: " + mark(2),
                                  "ip t c: " + on_port("80", "drop")}),
                      "t");
  ASSERT_TRUE(marks.ok()) << to_string(marks.error());
  EXPECT_EQ(verdict_of(*marks, tcp_key(81)).mark, 2u);
  EXPECT_FALSE(verdict_of(*marks, tcp_key(80)).permit);
}

TEST(NftRules, ChainsThatCannotBeReadAreRefusedWhereTheyMayDrop) {
  const std::string_view forward = "inet fw forward filter forward 0 accept";
  const std::string accept80 = "inet fw forward: " + on_port("80", "accept");
  for (const char* more : {R"(ip nat post: {"drop": null})", R"(ip nat post: {"jump": {"target": "deep"}})",
                           R"(ip nat post: {"vmap": {"key": {"meta": {"key": "mark"}}, "data": "@m"}})"}) {
    std::string text = ruleset_of({forward, "ip nat post nat postrouting 100 accept", "ip nat deep", accept80,
                                   R"(ip nat deep: {"reject": null})", more});
    text.insert(
        text.size() - 2,
        R"(, {"map": {"family": "ip", "table": "nat", "name": "m", "map": "verdict", "elem": [[1, {"drop": null}]]}})");
    EXPECT_THAT(findings(text), HasSubstr("base chain 'nat/post' may drop packets too")) << more;
    EXPECT_EQ(native(text, "fw/forward"), native(ruleset_of({forward, accept80}))) << "but where it is asked for";
  }
  EXPECT_THAT(findings(ruleset_of({forward, "netdev dev in filter ingress 0 drop", accept80})),
              HasSubstr("base chain 'dev/in' may drop packets too"));
  EXPECT_EQ(findings(ruleset_of({forward, "arp a in filter input 0 drop", "ip nat post nat postrouting 100 accept",
                                 R"(ip nat post: {"masquerade": null})", accept80})),
            "no findings");
}

TEST(NftRules, SayWhichChainsAreRead) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  native(ruleset_of({"inet fw input filter input 0 drop", "inet fw forward filter forward 0 drop",
                     "ip nat post nat postrouting 100 accept", R"(ip nat post: {"masquerade": null})"}));
  set_log_sink({});
  EXPECT_EQ(
      lines,
      (std::vector<std::string>{
          "fw.json: read: fw/forward; not read: fw/input; the format nft:TABLE/CHAIN chooses one",
          "fw.json: not read, as they drop nothing: nat/post; rules match the addresses that packets arrive with"}));
}

TEST(NftRules, NamesThatNftPrints) {
  auto rule = [](const std::string& left, const char* right) {
    return native_rule(match(left, "==", right) + ", " + kAccept);
  };
  const std::string code = payload("icmp", "code"), l4proto = R"({"meta": {"key": "l4proto"}})";
  EXPECT_EQ(rule(code, R"("frag-needed")"), rule(code, "4"));
  EXPECT_EQ(rule(payload("icmpv6", "code"), R"("reject-route")"), rule(payload("icmpv6", "code"), "6"));
  EXPECT_EQ(rule(payload("icmpv6", "type"), R"("ind-neighbor-advert")"), rule(payload("icmpv6", "type"), "142"));
  EXPECT_EQ(rule(payload("ip", "dscp"), R"("lephb")"), rule(payload("ip", "dscp"), "1"));
  EXPECT_EQ(rule(l4proto, R"({"set": ["ip", "ipencap", "ipip", "mobility-header"]})"),
            rule(l4proto, R"({"set": [0, 4, 94, 135]})"));
  EXPECT_EQ(rule(l4proto, R"({"set": ["tcp", "tpc"]})").find("permit"), std::string::npos);
}

TEST(NftRules, ProtocolAndPortInOneKey) {
  const std::string key = R"({"concat": [{"meta": {"key": "l4proto"}}, )" + payload("th", "dport") + "]}";
  auto pass = [](const std::string& statements, std::initializer_list<uint16_t> ports) {
    return ports_pass(ruleset({statements}), ports);
  };
  EXPECT_EQ(pass(match(key, "==", R"({"set": [{"concat": ["tcp", {"range": [22, 23]}]}, {"concat": ["udp", 53]}]})") +
                     ", " + kAccept,
                 {22, 23, 53}),
            "++-");
  EXPECT_EQ(
      pass(
          R"({"vmap": {"key": )" + key +
              R"(, "data": {"set": [[{"concat": ["tcp", 22]}, {"accept": null}], [{"concat": ["udp", 53]}, {"drop": null}]]}}})",
          {22, 53}),
      "+-");
  const std::string no = "2: 'th' is looked at in packets that may have no ports\n";
  EXPECT_EQ(pass(match(key, "==", R"({"set": [{"concat": ["icmp", 22]}]})") + ", " + kAccept, {22}), no);
  EXPECT_EQ(pass(match(key, "!=", R"({"set": [{"concat": ["tcp", 22]}]})") + ", " + kAccept, {22}), no)
      << "what is not in the set may be anything";
  EXPECT_EQ(pass(match(R"({"meta": {"key": "l4proto"}})", "==", R"("tcp")") + ", " +
                     match(key, "!=", R"({"set": [{"concat": ["tcp", 22]}]})") + ", " + kAccept,
                 {22, 23}),
            "-+");
}

TEST(NftRules, CatchAllElements) {
  auto pass = [](const std::string& statements, std::initializer_list<uint16_t> ports) {
    return ports_pass(ruleset({statements, kAccept}), ports);
  };
  EXPECT_EQ(
      pass(
          R"({"vmap": {"key": )" + payload("tcp", "dport") +
              R"(, "data": {"set": [["*", {"drop": null}], [22, {"accept": null}], [{"range": [80, 90]}, {"accept": null}]]}}})",
          {22, 85, 443}),
      "++-");
  EXPECT_EQ(pass(match(payload("tcp", "dport"), "==", R"({"set": [22, {"elem": {"val": "*", "comment": "x"}}]})") +
                     R"(, {"drop": null})",
                 {22, 443}),
            "--");
  EXPECT_EQ(pass(match(payload("tcp", "dport"), "!=", R"({"set": [22, "*"]})") + R"(, {"drop": null})", {22, 443}),
            "++");
  // A packet that comes back from the chain of its member goes on behind the map.
  EXPECT_EQ(
      ports_pass(ruleset_of({"inet fw forward filter forward 0 drop", "inet fw web",
                             R"(inet fw forward: {"vmap": {"key": )" + payload("tcp", "dport") +
                                 R"(, "data": {"set": [[22, {"jump": {"target": "web"}}], [23, {"continue": null}],
 ["*", {"accept": null}]]}}})"}),
                 {22, 23, 24}),
      "--+");
  FlowKey udp = tcp_key(443);
  udp.protocol = 17;
  const auto set = parse_nft_rules(
      ruleset({match(payload("tcp", "dport"), "==", R"({"set": ["*"]})") + R"(, {"drop": null})", kAccept}), "t");
  ASSERT_TRUE(set.ok());
  EXPECT_TRUE(verdict_of(*set, udp).permit) << "it has no such port";
}

TEST(NftRules, NoneOfTheseFlags) {
  const auto set =
      parse_nft_rules(ruleset({match(payload("tcp", "flags"), "!", R"(["syn", "rst"])") + ", " + kAccept}), "t");
  ASSERT_TRUE(set.ok()) << to_string(set.error());
  FlowKey k = tcp_key(1);
  for (const auto& [flags, passes] :
       {std::pair(0x10, true), std::pair(0x02, false), std::pair(0x14, false), std::pair(0, true)}) {
    k.flags = static_cast<uint16_t>(flags << 8);
    EXPECT_EQ(verdict_of(*set, k).permit, passes) << flags;
  }
  k.flags = 0;
  k.bits |= FlowKey::kNoFlags | FlowKey::kShortL4;
  EXPECT_FALSE(verdict_of(*set, k).permit) << "the flags are not there";
}

// In IPv6 nft goes no further than to an Authentication Header.
TEST(NftRules, EndAtAnAuthenticationHeader) {
  auto verdict = [](const std::string& statements, bool after_ah) {
    const auto set = parse_nft_rules(ruleset({statements + ", " + kAccept}), "t");
    FlowKey k = tcp_key(22, 6);
    if (after_ah) k.bits |= FlowKey::kAfterAh;
    return set.ok() ? verdict_of(*set, k).permit ? '+' : '-' : '?';
  };
  const std::string l4proto = R"({"meta": {"key": "l4proto"}})";
  const std::string tcp = match(l4proto, "==", R"("tcp")");
  for (const std::string& statements :
       {tcp, match(payload("tcp", "dport"), "==", "22"), match(l4proto, "!=", R"("ah")"),
        tcp + ", " + match(payload("th", "dport"), "==", "22"), match(payload("tcp", "flags"), "!", R"("rst")")}) {
    EXPECT_EQ(verdict(statements, false), '+') << statements;
    EXPECT_EQ(verdict(statements, true), '-') << statements;
  }
  for (const std::string& statements : {match(l4proto, "==", "51"), match(l4proto, "!=", R"("tcp")"),
                                        match(l4proto, "==", R"({"set": ["ah", "udp"]})")}) {
    EXPECT_EQ(verdict(statements, false), '-') << statements;
    EXPECT_EQ(verdict(statements, true), '+') << statements;
  }
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
            "3: the rule looks at the state of its connection\n"
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

// Which rules of a base chain that drops a packet of each state meets: "neri", '-' where it meets none.
std::string states_of(const std::vector<std::string>& rules, const std::string& more = {}) {
  std::string t;
  for (const auto& named : kConnStates) {
    const auto set =
        parse_nft_rules(ruleset(rules, more), "fw.json", {}, {.state = static_cast<ConnState>(named.value)});
    if (!set.ok()) return to_string(set.error());
    t += verdict_of(*set, tcp_key(22, 4)).permit ? named.name[0] : '-';
  }
  return t;
}

// As nft prints them.
TEST(NftRules, LookAtTheStateThatIsAskedFor) {
  const std::string state = R"({"ct": {"key": "state"}})";
  const auto rule = [&](const char* op, const std::string& right) { return match(state, op, right) + ", " + kAccept; };
  EXPECT_EQ(states_of({rule("in", R"(["established", "related"])")}), "-er-");
  EXPECT_EQ(states_of({rule("in", R"("new")")}), "n---");
  EXPECT_EQ(states_of({rule("!", R"("new")")}), "-eri");
  EXPECT_EQ(states_of({rule("!", R"(["established", "related"])")}), "n--i");
  EXPECT_EQ(states_of({rule("!=", R"("invalid")")}), "ner-");
  EXPECT_EQ(states_of({rule("==", R"({"set": ["new", "untracked"]})")}), "n---");
  EXPECT_EQ(states_of({rule("!=", R"({"set": ["established", "related"]})")}), "n--i");
  EXPECT_EQ(states_of({rule("in", R"("untracked")")}), "----");
  EXPECT_EQ(states_of({rule("!=", R"("untracked")")}), "neri");
  EXPECT_EQ(states_of({rule("in", "65")}), "---i");
  // No packet has two.
  EXPECT_EQ(states_of({rule("==", R"({"|": ["established", "related"]})")}), "----");
  EXPECT_EQ(states_of({rule("!=", R"({"|": ["established", "related"]})")}), "neri");
  EXPECT_EQ(
      states_of({match(R"({"&": [{"ct": {"key": "state"}}, {"|": ["new", "related"]}]})", "!=", "0") + ", " + kAccept}),
      "n-r-");
  const std::string concat = R"({"concat": [{"ct": {"key": "state"}}, )" + payload("tcp", "dport") + "]}";
  EXPECT_EQ(states_of({match(concat, "==", R"({"set": [{"concat": ["new", 22]}, {"concat": ["established", 80]}]})") +
                       ", " + kAccept}),
            "n---");
  EXPECT_EQ(states_of({match(concat, "!=", R"({"set": [{"concat": ["new", 22]}, {"concat": ["established", 80]}]})") +
                       ", " + kAccept}),
            "-eri");
  const std::string named =
      R"({"set": {"family": "inet", "name": "s", "table": "fw", "type": "ct_state", "elem": ["established", "new"]}},
{"map": {"family": "inet", "name": "m", "table": "fw", "type": "ct_state", "map": "verdict", "elem": [["invalid", {"drop": null}], [{"|": ["new", "related"]}, {"drop": null}], ["established", {"accept": null}]]}},
{"rule": {"family": "inet", "table": "fw", "chain": "web", "expr": [{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "related"}}, {"accept": null}]}})";
  EXPECT_EQ(states_of({rule("==", R"("@s")")}, named), "ne--");
  EXPECT_EQ(states_of({R"({"vmap": {"key": {"ct": {"key": "state"}}, "data": "@m"}})"}, named), "-e--");
  EXPECT_EQ(states_of({R"({"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["established", {"accept": null}],
["related", {"jump": {"target": "web"}}], ["*", {"drop": null}]]}}})",
                       kAccept},
                      named),
            "-er-");
}

TEST(NftRules, KeepTheConnectionsThatTheyAccept) {
  const std::string established =
      match(R"({"ct": {"key": "state"}})", "in", R"(["established", "related"])") + ", " + kAccept;
  const std::string ssh = match(payload("tcp", "dport"), "==", "22") + ", " + kAccept;
  const auto read = [&](std::vector<std::string> rules, ConnState state) {
    const auto set = parse_nft_rules(ruleset(rules), "fw.json", {}, {.state = state});
    return set.ok() ? to_native(*set) : to_string(set.error());
  };
  EXPECT_EQ(read({established, ssh}, ConnState::kNew),
            "permit tcp from any to any port 22 bits 0x00/0x40 keep-state\ndeny from any to any\n");
  EXPECT_EQ(read({established, ssh}, ConnState::kEstablished),
            "permit from any to any\npermit tcp from any to any port 22 bits 0x00/0x40\ndeny from any to any\n");
  EXPECT_EQ(read({established, ssh}, ConnState::kInvalid),
            "permit tcp from any to any port 22 bits 0x00/0x40\ndeny from any to any\n");
  // Without a rule that looks at the state nothing is tracked.
  EXPECT_EQ(read({ssh}, ConnState::kNew), "permit tcp from any to any port 22 bits 0x00/0x40\ndeny from any to any\n");
}

TEST(NftRules, NameWhatTheyDoNotLookAtOfAConnection) {
  const auto finds = [](const std::string& statements) {
    const auto set = parse_nft_rules(ruleset({statements}), "fw.json", {}, {.state = ConnState::kNew});
    return set.ok() ? std::string("no findings") : set.error().diagnostics.at(0).message;
  };
  const std::string state = R"({"ct": {"key": "state"}})";
  EXPECT_EQ(finds(match(R"({"ct": {"key": "direction"}})", "==", R"("original")")),
            "a rule cannot match ct 'direction'");
  EXPECT_EQ(finds(match(R"({"ct": {"key": "mark"}})", "==", "1")), "a rule cannot match ct 'mark'");
  EXPECT_EQ(finds(match(state, "in", R"("established ")")), "\"established \" is not a value of this field");
  EXPECT_EQ(finds(match(state, "in", "128")), "128 is not a value of this field");
  EXPECT_EQ(finds(match(state, ">", R"("new")")), "'>' has no meaning for this field");
  EXPECT_EQ(finds(R"({"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["old", {"drop": null}]]}}})"),
            "\"old\" is not a value of this field");
}

TEST(NftRules, LookThroughThIfThePacketsHavePorts) {
  EXPECT_EQ(native_rule(match(R"({"meta": {"key": "l4proto"}})", "==", R"({"set": ["tcp", "udp"]})") + ", " +
                        match(payload("th", "dport"), "==", "53") + ", " + kAccept),
            "permit tcp from any to any port 53 bits 0x00/0x40\npermit udp from any to any port 53 bits 0x00/0x40\n");
}

}  // namespace
}  // namespace sluice

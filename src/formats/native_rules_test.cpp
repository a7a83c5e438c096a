// The native language: what each form means, what is refused and how, and that writing and reading agree.
#include "formats/native_rules.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "formats/classbench.h"
#include "net/text.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/conformance.h"

namespace sluice {
namespace {

using testing::HasSubstr;

RuleSet good(std::string_view text) {
  auto set = parse_native_rules(text, "t.acl");
  EXPECT_TRUE(set.ok()) << to_string(set.error());
  return set.ok() ? *set : RuleSet{};
}

std::string bad(std::string_view text) {
  auto set = parse_native_rules(text, "t.acl");
  EXPECT_FALSE(set.ok()) << text;
  return set.ok() ? std::string() : to_string(set.error());
}

TEST(NativeRules, ReadsAWholeRule) {
  const auto set = good(
      "# edge\n\nmark(7) tcp from 10.0.0.0/8 port 1000-2000 to 2.3.4.5 port https flags SYN/SYN,ACK dscp af21 frag log "
      "# end\n");
  ASSERT_EQ(set.rules.size(), 1u);
  const AclRule& r = set.rules[0];
  EXPECT_EQ(r.family, 4);
  EXPECT_EQ(to_string(r.src), "10.0.0.0/8");
  EXPECT_EQ(to_string(r.dst), "2.3.4.5/32");
  EXPECT_EQ(r.src_port_low, 1000);
  EXPECT_EQ(r.src_port_high, 2000);
  EXPECT_EQ(r.dst_port_low, 443);
  EXPECT_EQ(r.dst_port_high, 443);
  EXPECT_TRUE(r.needs_ports);
  EXPECT_EQ(r.protocol, 6);
  EXPECT_EQ(r.flags, 0x0200);
  EXPECT_EQ(r.flags_mask, 0x1200);
  EXPECT_EQ(r.dscp, 18);
  EXPECT_EQ(r.bits_mask, FlowKey::kFragment);
  EXPECT_EQ(r.verb, AclVerb::kMark);
  EXPECT_EQ(r.mark, 7u);
  EXPECT_TRUE(r.log);
  EXPECT_EQ(r.line, 3u);
  EXPECT_EQ(set.files.at(r.file), "t.acl");
}

TEST(NativeRules, AWordEndsWhereverItStands) {
  const std::string before = "permit from any to any bits ", value = "0x01/0x01";
  for (size_t shift = 0; shift < 17; ++shift) {
    const std::string start = std::string(shift, ' ') + before + std::string(shift % 3, '0') + value;
    for (const char* end : {"",
                            " ",
                            "\t",
                            "\r",
                            "#",
                            "# \"",
                            " log",
                            "\tlog",
                            "\r#log",
                            "\"",
                            "\"log\"",
                            "!",
                            "!log",
                            "\x01",
                            "\xff",
                            "\n",
                            "\r\n",
                            "\npermit from any to any",
                            "abcdefghijklmnop",
                            "abc!defghijk lmn"}) {
      const std::string text = shift % 3 == 0 ? start + end : std::string(shift, ' ') + before + value + end;
      SCOPED_TRACE(text);
      const std::string_view e = end;
      if (e.starts_with('"')) {  // a word of its own
        EXPECT_THAT(bad(text), HasSubstr("is not an option"));
      } else if (!e.empty() && (e[0] == '!' || e[0] == 'a' || e[0] == '\x01' || e[0] == '\xff')) {
        const std::string word = value + (e == "\x01"   ? "\\x01"
                                          : e == "\xff" ? "\\xff"
                                                        : std::string(e.substr(0, e.find(' '))));
        EXPECT_THAT(bad(text), HasSubstr("'" + word + "' is not a value and mask"));
      } else {
        const RuleSet set = good(text);
        ASSERT_EQ(set.rules.size(), e.find("permit") == e.npos ? 1u : 2u);
        EXPECT_EQ(set.rules[0].bits, 1);
        EXPECT_EQ(set.rules[0].bits_mask, 1);
        EXPECT_EQ(set.rules[0].log, e == " log" || e == "\tlog");
      }
    }
  }
}

TEST(NativeRules, FamiliesAnyAndPorts) {
  const auto set = good(
      "permit from any to any\n"
      "deny ip from 0.0.0.0/0 to any\n"
      "deny udp from any to 2001:db8::/32 port eq 53\n"
      "permit tcp from any port range 1 2 to any port gt 1023\n"
      "permit icmp6 from any to any icmp-type 128 icmp-code 0\n"
      "permit 47 from any to any no-frag\n");
  ASSERT_EQ(set.rules.size(), 6u);
  EXPECT_EQ(set.rules[0].family, 0);
  EXPECT_FALSE(set.rules[0].needs_ports);
  EXPECT_EQ(set.rules[1].family, 4);
  EXPECT_EQ(set.rules[2].family, 6);
  EXPECT_EQ(set.rules[2].dst_port_low, 53);
  EXPECT_EQ(set.rules[3].src_port_high, 2);
  EXPECT_EQ(set.rules[3].dst_port_low, 1024);
  EXPECT_EQ(set.rules[4].icmp, 128 << 8);
  EXPECT_EQ(set.rules[4].icmp_mask, 0xffff);
  EXPECT_EQ(set.rules[5].protocol, 47);
  EXPECT_EQ(set.rules[5].bits, 0);
}

TEST(NativeRules, ReadsKeyedRules) {
  const auto set = good(
      "src 10.0.0.0/8 dst 10.1.0.0/16 proto 6 sport 80 dport 1000-2000 tcp-flags 0x02/0x12 action drop\n"
      "action pass dst 2001:db8::1\n"
      "proto udp action mark(9)\n");
  ASSERT_EQ(set.rules.size(), 3u);
  EXPECT_EQ(set.rules[0].verb, AclVerb::kDeny);
  EXPECT_EQ(set.rules[0].flags, 0x0200);
  EXPECT_EQ(set.rules[0].flags_mask, 0x1200);
  EXPECT_EQ(set.rules[0].dst_port_high, 2000);
  EXPECT_EQ(set.rules[1].family, 6);
  EXPECT_EQ(set.rules[2].mark, 9u);
  EXPECT_EQ(set.rules[2].family, 0);
}

TEST(NativeRules, APartOfAKeyedRuleStandsOnceAndFitsItsProtocol) {
  struct Case {
    const char* text;
    const char* place;
    const char* says;
  };
  const Case cases[] = {
      {"proto 6 action drop action pass", "1:21:", "'action' stands twice"},
      {"src 10.0.0.0/8 src 11.0.0.0/8 action drop", "1:16:", "'src' stands twice"},
      {"dst any dst any action drop", "1:9:", "'dst' stands twice"},
      {"proto 6 proto 17 action drop", "1:9:", "'proto' stands twice"},
      {"proto 6 sport 1 sport 2 action drop", "1:17:", "'sport' stands twice"},
      {"proto 6 dport 1 dport 2 action drop", "1:17:", "'dport' stands twice"},
      {"proto 6 tcp-flags 2/2 flags SYN action drop", "1:23:", "'flags' stands beside 'tcp-flags'"},
      {"proto 6 frag no-frag action drop", "1:14:", "'no-frag' stands beside 'frag'"},
      {"action drop dscp 1 dscp 2", "1:20:", "'dscp' stands twice"},
      {"proto 17 tcp-flags 0x02/0x12 action drop",
       "1:10:", "'tcp-flags' stands beside a protocol that has no TCP flags"},
      {"action drop flags SYN proto udp", "1:13:", "'flags' stands beside a protocol that has no TCP flags"},
      {"proto 1 dport 80 action drop", "1:9:", "'dport' stands beside a protocol that has no ports"},
      {"sport 80 proto icmp action drop", "1:1:", "'sport' stands beside a protocol that has no ports"},
      {"src 10.0.0.1/8 action drop", "1:5:", "10.0.0.1/8 has host bits set"},
      {"dst 2001:db8::1/32 action drop", "1:5:", "2001:db8::1/32 has host bits set"},
      {"action drop src 10.0.0.0/8,10.0.0.1/31", "1:28:", "10.0.0.1/31 has host bits set"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const auto set = parse_native_rules(c.text, "t.acl");
    ASSERT_FALSE(set.ok());
    const Diagnostic& d = set.error().diagnostics.at(0);
    EXPECT_EQ(std::to_string(d.line) + ":" + std::to_string(d.column) + ":", c.place) << to_string(set.error());
    EXPECT_NE(d.message.find(c.says), std::string::npos) << d.message;
  }
  good(
      "proto 6 sport 1 dport 2 tcp-flags 2/2 dscp 1 no-frag log action drop\n"
      "dport 80 action drop\nproto 1 dport 80 loose-ports action pass\ntcp-flags 2/2 action drop\n"
      "src 10.0.0.1/32 dst 10.0.0.1 proto 132 dport 5 action pass\n");
}

TEST(NativeRules, GroupsExpandInOrder) {
  const auto set = good(
      "define web = 80, 443\n"
      "define lan = 10.0.0.0/8, 192.168.0.0/16,2001:db8::/32\n"
      "permit tcp from lan to 1.2.3.4 port web,8080\n"
      "deny from any to any\n");
  ASSERT_EQ(set.rules.size(), 7u);  // the IPv6 member has no IPv4 partner
  EXPECT_EQ(set.rules[0].dst_port_low, 80);
  EXPECT_EQ(set.rules[2].dst_port_low, 8080);
  EXPECT_EQ(to_string(set.rules[3].src), "192.168.0.0/16");
  EXPECT_EQ(set.rules[5].line, 3u);
  EXPECT_EQ(set.rules[6].line, 4u);
}

TEST(NativeRules, IncludesNameTheirChain) {
  const std::map<std::string, std::string> files = {
      {"d/sub/b.acl", "deny udp from any to any\ninclude \"c.acl\"\n"},
      {"d/sub/c.acl", "permitt from any to any\n"},
      {"d/ok.acl", "define web = 80\npermit tcp from any to any port web\n"},
      {"d/loop.acl", "include \"a.acl\"\n"}};
  const IncludeReader reader = [&](const std::string& path) -> Result<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return Error("cannot open " + path);
    return found->second;
  };
  auto ok = parse_native_rules("include \"ok.acl\"\npermit tcp from any to any port web\n", "d/a.acl", reader);
  ASSERT_TRUE(ok.ok()) << to_string(ok.error());
  ASSERT_EQ(ok->rules.size(), 2u);
  EXPECT_EQ(ok->files.at(ok->rules[0].file), "d/ok.acl");
  EXPECT_EQ(ok->files.at(ok->rules[1].file), "d/a.acl");
  auto broken = parse_native_rules(
      "permit from any to any\ninclude \"sub/b.acl\"\ninclude \"loop.acl\"\ninclude \"none.acl\"\n", "d/a.acl", reader);
  ASSERT_FALSE(broken.ok());
  const std::string text = to_string(broken.error());
  EXPECT_THAT(
      text,
      HasSubstr("d/sub/c.acl:1:1: error: 'permitt' is not an action (included from d/sub/b.acl:2, from d/a.acl:2)"));
  EXPECT_THAT(text, HasSubstr("did you mean 'permit'?"));
  EXPECT_THAT(text, HasSubstr("'d/a.acl' includes itself"));
  EXPECT_THAT(text, HasSubstr("cannot open d/none.acl"));
}

TEST(NativeRules, ErrorsSayWhereWhatAndHow) {
  EXPECT_THAT(bad("permit tcp from any port 90-80 to any"),
              HasSubstr("t.acl:1:26: error: port range 90-80 is empty\n"));
  EXPECT_THAT(bad("permit tcp from any port 90-80 to any"), HasSubstr("help: write it 80-90"));
  EXPECT_THAT(bad("drop from any to any"), HasSubstr("did you mean 'deny'?"));
  EXPECT_THAT(bad("permit tcpp from any to any"), HasSubstr("did you mean 'tcp'?"));
  EXPECT_THAT(bad("permit from 10.0.0.0/33 to any"), HasSubstr("t.acl:1:13: error: '10.0.0.0/33' is not an address"));
  EXPECT_THAT(bad("permit from 10.0.0.1 to ::1"), HasSubstr("different address families"));
  EXPECT_THAT(bad("permit tcp from any to any port htpp"), HasSubstr("did you mean 'http'?"));
  EXPECT_THAT(bad("permit from any"), HasSubstr("the line ends where 'to' should be"));
  EXPECT_THAT(bad("permit from any to any flags SYN/ACK"), HasSubstr("not in the mask"));
  EXPECT_THAT(bad("permit from any to any icmp-type 8"), HasSubstr("needs the protocol"));
  EXPECT_THAT(bad("define x = 80, 10.0.0.0/8"), HasSubstr("mixes"));
  EXPECT_THAT(bad("define tcp = 80"), HasSubstr("word of the language"));
  EXPECT_THAT(bad("src 10.0.0.0/8"), HasSubstr("an action"));
  const std::string all = bad("permit x\n\nfoo\ndeny from any to any dscp 64\n");
  EXPECT_THAT(all, HasSubstr("t.acl:1:"));
  EXPECT_THAT(all, HasSubstr("t.acl:3:1"));
  EXPECT_THAT(all, HasSubstr("t.acl:4:27"));
  EXPECT_THAT(all, HasSubstr("3 errors in t.acl"));
}

TEST(NativeRules, EveryPartOfALineIsReadForItself) {
  const std::string line = "  permitt tcpp from 1.0.0.0/33,x port 9-8 to any port htpp,70000 flags SIN dscp 64 logg\n";
  EXPECT_EQ(bad("permitt tcpp from 1.0.0.0/33,x port 9-8 to any port htpp,70000 flags SIN dscp 64 logg\n"),
            "t.acl:1:1: error: 'permitt' is not an action\n" + line +
                "  ^~~~~~~\n"
                "  expected: permit, deny or mark(N); or define, include, src, dst, action\n"
                "  help: did you mean 'permit'?\n"
                "t.acl:1:9: error: 'tcpp' is not a protocol\n" +
                line +
                "          ^~~~\n"
                "  expected: ip, tcp, udp, icmp, icmp6, ..., a number 0..255, or 0xV/0xM\n"
                "  help: did you mean 'tcp'?\n"
                "t.acl:1:19: error: '1.0.0.0/33' is not an address\n" +
                line +
                "                    ^~~~~~~~~~\n"
                "  expected: any, ADDRESS, PREFIX such as 10.0.0.0/8 or 2001:db8::/32, or a defined name\n"
                "t.acl:1:30: error: 'x' is not an address\n" +
                line +
                "                               ^\n"
                "  expected: any, ADDRESS, PREFIX such as 10.0.0.0/8 or 2001:db8::/32, or a defined name\n"
                "t.acl:1:37: error: port range 9-8 is empty\n" +
                line +
                "                                      ^~~\n"
                "  expected: LOW-HIGH with LOW <= HIGH\n"
                "  help: write it 8-9\n"
                "t.acl:1:53: error: 'htpp' is not a port\n" +
                line +
                "                                                      ^~~~\n"
                "  expected: 0..65535, LOW-HIGH, eq N, range LOW HIGH, gt N, lt N, any, a service or a defined name\n"
                "  help: did you mean 'http'?\n"
                "t.acl:1:58: error: '70000' is not a port\n" +
                line +
                "                                                           ^~~~~\n"
                "  expected: 0..65535, LOW-HIGH, eq N, range LOW HIGH, gt N, lt N, any, a service or a defined name\n"
                "t.acl:1:70: error: 'SIN' is not a TCP flag\n" +
                line +
                "                                                                       ^~~\n"
                "  expected: FIN, SYN, RST, PSH, ACK, URG, ECE or CWR\n"
                "  help: did you mean 'FIN'?\n"
                "t.acl:1:79: error: '64' is not a DSCP\n" +
                line +
                "                                                                                ^~\n"
                "  expected: 0..63, ef, af11..af43, cs0..cs7, va, le or default\n"
                "t.acl:1:82: error: 'logg' is not an option\n" +
                line +
                "                                                                                   ^~~~\n"
                "  expected: flags, tcp-flags, dscp, frag, no-frag, first-frag, later-frag, icmp-type, icmp-code, "
                "loose-ports, state, keep-state or log\n"
                "  help: did you mean 'log'?\n"
                "error: 10 errors in t.acl\n");
  // Only what is wrong for itself: the ICMP type needs a protocol, and the protocol is what could not be read.
  struct Case {
    const char* text;
    std::vector<const char*> places;
  };
  const Case cases[] = {
      {"permit icpm from any to any icmp-type 8 dscp 64", {"1:8:", "1:46:"}},
      {"permit from any too 10.0.0.300 dscp 64", {"1:17:", "1:37:"}},
      {"permit from any port 80 443 to 10.0.0.300", {"1:25:", "1:32:"}},
      {"permit tcp form 10.0.0.300 to 10.0.0.301 foo bar log baz", {"1:12:", "1:31:", "1:54:"}},
      {"permit from 10.0.0.1 to ::1 dscp 64", {"1:34:", "1:1:"}},
      {"permit from 10.0.0.1 to ::x dscp 64", {"1:25:", "1:34:"}},
      {"permit 10.0.0.0/8 to any", {"1:8:"}},
      {"permit from any to any dscp 64 foo bar log baz", {"1:29:", "1:32:", "1:44:"}},
      {"nonsense and more of it", {"1:1:"}},
      {"src 10.0.0.300 dport x proto tpc action dropp", {"1:5:", "1:22:", "1:30:", "1:41:"}},
      {"src 10.0.0.300 dport range a b", {"1:5:", "1:28:", "1:30:", "1:31:"}},
      {"define g = 80, x, 70000\ndefine h = g, 90000\npermit tcp from any to any port g,h\ndeny from z to any",
       {"1:16:", "1:19:", "2:15:", "4:11:"}},
      {"define 9 = 80, x", {"1:8:", "1:16:"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const auto set = parse_native_rules(c.text, "t.acl");
    ASSERT_FALSE(set.ok());
    std::vector<std::string> places;
    for (const Diagnostic& d : set.error().diagnostics)
      places.push_back(std::to_string(d.line) + ":" + std::to_string(d.column) + ":");
    EXPECT_EQ(places, std::vector<std::string>(c.places.begin(), c.places.end())) << to_string(set.error());
  }
}

TEST(NativeRules, ALineOfMistakesIsBounded) {
  std::string text = "permit tcp from ";
  for (int i = 0; i < 100000; ++i) text += "x,";
  const auto set = parse_native_rules(text + "x to any\n" + text, "t.acl");
  ASSERT_FALSE(set.ok());
  EXPECT_EQ(set.error().diagnostics.size(), Diagnostics::kLimit);
  EXPECT_EQ(set.error().hint, "only the first 100 are shown");
}

TEST(NativeRules, LongListsOfTwoFamiliesAreWalkedOnce) {
  // 60,000 by 60,000 pairs in each of 10 lines, of which 60,000 make a rule.
  std::string four = "define four = 10.0.0.0", six = "define six = 10.1.0.0";
  for (int i = 1; i < 60000; ++i) {
    four += ",10.0." + std::to_string(i >> 8) + "." + std::to_string(i & 255);
    six += ",2001:db8::" + std::to_string(i % 10000);
  }
  std::string text = four + "\n" + six + "\n";
  for (int i = 0; i < 10; ++i) text += "permit from four to six\n";
  const RuleSet set = good(text);
  EXPECT_EQ(set.rules.size(), 10u * 60000u);
  EXPECT_EQ(set.rules.back().line, 12u);
}

TEST(NativeRules, ValuesStayInsideTheirMasks) {
  EXPECT_EQ(bad("permit tcp from any to any flags 0x02/0x12\n"),
            "t.acl:1:34: error: these bits are below the TCP flags byte, and no packet has them\n"
            "  permit tcp from any to any flags 0x02/0x12\n"
            "                                   ^~~~~~~~~\n"
            "  expected: 16 bits with the TCP flags byte in the upper half, or names\n"
            "  help: write tcp-flags 0x02/0x12, or four digits\n"
            "error: 1 error in t.acl\n");
  EXPECT_EQ(bad("permit tcp from any to any tcp-flags 0x12/0x02\n"),
            "t.acl:1:38: error: the value has bits that the mask leaves out: 0x10\n"
            "  permit tcp from any to any tcp-flags 0x12/0x02\n"
            "                                       ^~~~~~~~~\n"
            "  expected: VALUE/MASK with every bit of VALUE in MASK\n"
            "  help: write 0x12/0x12 to test them too, 0x02/0x02 to leave them out\n"
            "error: 1 error in t.acl\n");
  EXPECT_THAT(bad("permit tcp from any to any flags 0x1200/0x0200"),
              HasSubstr("1:34: error: the value has bits that the mask leaves out: 0x1000\n"));
  EXPECT_THAT(bad("permit 0x06/0x04 from any to any"), HasSubstr("1:8: error: the value has bits"));
  EXPECT_THAT(bad("permit from any to any bits 0x06/0x04"), HasSubstr("1:29: error: the value has bits"));
  EXPECT_THAT(bad("permit icmp from any to any icmp-match 0x0801/0xff00"),
              HasSubstr("1:40: error: the value has bits"));
  EXPECT_THAT(bad("permit tcp from any to any flags 2/18"), HasSubstr("1:34: error: these bits are below"));
  // Four digits are taken at their word, and no flags at all is what ClassBench writes.
  const RuleSet set = good(
      "permit tcp from any to any flags 0x0002/0x0012\npermit tcp from any to any flags 0x00/0x00\n"
      "permit tcp from any to any flags 0x0200/0x1200\n");
  ASSERT_EQ(set.rules.size(), 3u);
  EXPECT_EQ(set.rules[0].flags_mask, 0x0012);
  EXPECT_EQ(set.rules[1].flags_mask, 0);
  EXPECT_EQ(set.rules[2].flags, 0x0200);
}

TEST(NativeRules, GroupBombsAreRefused) {
  std::string text = "define g = ";
  for (int i = 0; i < 600; ++i) text += std::to_string(i) + ", ";
  EXPECT_THAT(bad(text + "601\npermit tcp from any port g to any port g\n"),
              HasSubstr("the groups of this line make 361201 rules, more than 65536"));
}

// A text of a few lines that stands for more rules than there is room for: nothing of it is made, and it says how many
// they would be, of both families.
TEST(NativeRules, RulesAreCountedBeforeTheyAreMade) {
  std::string text = "define a = ";
  for (int i = 0; i < 100; ++i) text += "10.0.0." + std::to_string(i) + ", ";
  text += "2001:db8::1\n";
  for (int i = 0; i < 50; ++i) text += "permit tcp from a to a port " + std::to_string(i) + "\n";
  const IncludeReader none = [](const std::string&) -> Result<std::string> { return Error("no"); };
  const auto all = parse_native_rules(text, "bomb.acl", none);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->rules.size(), 50u * (100 * 100 + 1));
  ASSERT_TRUE(parse_native_rules(text, "bomb.acl", none, 500'050).ok());
  const auto few = parse_native_rules(text, "bomb.acl", none, 30'000);
  ASSERT_FALSE(few.ok());
  EXPECT_THAT(to_string(few.error()),
              HasSubstr("bomb.acl:4:1: error: too many rules from here on: 500050 in all, more than 30000"));
}

// "line action" of the rules that a text has for packets of the state.
std::string rules_for(ConnState state, const std::string& text) {
  bool stateful = false;
  const auto set = parse_native_rules(text, "s.acl", std::string(), nullptr, {.state = state, .stateful = &stateful});
  if (!set.ok()) return to_string(set.error());
  std::string t;
  for (const AclRule& r : set->rules)
    t += fmt::format("{}{}{} ", r.line, r.verb == AclVerb::kDeny ? "-" : "+", r.keep ? "k" : "");
  return t + (stateful ? "!" : "");
}

TEST(NativeRules, TheStateSelectsTheRules) {
  const std::string text =
      "permit from any to any state established,related\n"
      "deny from any to any log state invalid\n"
      "permit tcp from any to any port 22 keep-state log\n"
      "src any dport 53 proto udp state NEW keep-state action mark 7\n"
      "permit tcp from 10.0.0.1,10.0.0.2 to any state new,established,related,invalid\n"
      "deny from any to any\n";
  EXPECT_EQ(rules_for(ConnState::kNew, text), "3+k 4+k 5+ 5+ 6- !");
  EXPECT_EQ(rules_for(ConnState::kEstablished, text), "1+ 3+k 5+ 5+ 6- !");
  EXPECT_EQ(rules_for(ConnState::kRelated, text), "1+ 3+k 5+ 5+ 6- !");
  EXPECT_EQ(rules_for(ConnState::kInvalid, text), "2- 3+k 5+ 5+ 6- !");
  EXPECT_EQ(rules_for(ConnState::kNew, "permit from any to any\n"), "1+ ");
  EXPECT_EQ(rules_for(ConnState::kNew, "permit from any to any state invalid\n"), "!");
  const auto set = parse_native_rules(text, "s.acl", std::string(), nullptr, {.state = ConnState::kNew});
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(to_native(set->rules[0]), "permit tcp from any to any port 22 keep-state log");
  EXPECT_EQ(to_native(set->rules[1]), "mark(7) udp from any to any port 53 keep-state");
  // A list that was read for a state is written without it.
  const auto again = parse_native_rules(to_native(*set), "w.acl", {}, nullptr, {.keeps = true});
  ASSERT_TRUE(again.ok()) << to_string(again.error());
  EXPECT_EQ(to_native(*again), to_native(*set));
}

TEST(NativeRules, AStateIsAskedForWhereRulesLookAtIt) {
  bool stateful = false;
  const auto set = parse_native_rules("permit from any to any\ndeny from any to any state invalid keep-state\n",
                                      "s.acl", {}, nullptr, {.stateful = &stateful});
  ASSERT_FALSE(set.ok());
  EXPECT_TRUE(stateful);
  EXPECT_THAT(to_string(set.error()), HasSubstr("s.acl:2:22: error: the rule looks at the state of its connection\n"
                                                "  deny from any to any state invalid keep-state\n"
                                                "                       ^~~~~\n"
                                                "  expected: a state: FORMAT auto@new, or ConnTrack in front\n"));
  EXPECT_THAT(bad("permit from any to any keep-state"),
              HasSubstr("1:24: error: the rule keeps the state of its connection"));
}

TEST(NativeRules, StatesThatCannotBeMeant) {
  const auto finds = [](const std::string& text) {
    const auto set = parse_native_rules(text, "s.acl", std::string(), nullptr, {.state = ConnState::kEstablished});
    std::string t;
    if (!set.ok()) {
      for (const Diagnostic& d : set.error().diagnostics)
        t += fmt::format("{}: {}{}\n", d.column, d.message, d.suggestion.empty() ? "" : "; " + d.suggestion);
    }
    return t;
  };
  EXPECT_EQ(finds("permit from any to any state"), "29: the line ends where a state should be\n");
  EXPECT_EQ(finds("permit from any to any state establshed log"),
            "30: 'establshed' is not a state; did you mean 'established'?\n");
  EXPECT_EQ(finds("permit from any to any state new,,related"), "34: a state is missing in the list\n");
  EXPECT_EQ(finds("permit from any to any state new,related,new"), "42: 'new' stands twice\n");
  EXPECT_EQ(finds("permit from any to any state new log state new"), "38: 'state' stands twice\n");
  EXPECT_EQ(finds("permit from any to any keep-state keep-state"), "35: 'keep-state' stands twice\n");
  EXPECT_EQ(finds("src any state new state new action pass"), "19: 'state' stands twice\n");
  EXPECT_EQ(finds("deny from any to any keep-state"),
            "22: 'keep-state' stands in a rule that lets no packet through\n");
  EXPECT_EQ(finds("src any keep-state action drop"), "9: 'keep-state' stands in a rule that lets no packet through\n");
  EXPECT_EQ(finds("permit from any to any keep-state state established"),
            "24: 'keep-state' stands in a rule for packets that open no connection\n");
  // What makes no rule is looked at all the same.
  EXPECT_EQ(finds("permit from 10.0.0.1 to ::1 state new"),
            "1: the source and the destination are of different address families\n");
  EXPECT_EQ(finds("permit from any to any state new dscp 64"), "39: '64' is not a DSCP\n");
}

bool same_rules(const RuleSet& a, const RuleSet& b) {
  if (a.rules.size() != b.rules.size()) return false;
  for (size_t i = 0; i < a.rules.size(); ++i) {
    const AclRule &x = a.rules[i], &y = b.rules[i];
    if (!same_match(flatten(x, 1), flatten(y, 1)) || x.verb != y.verb || x.log != y.log || x.keep != y.keep)
      return false;
    if (x.verb == AclVerb::kMark && x.mark != y.mark) return false;
  }
  return true;
}

TEST(NativeRules, WritingAndReadingAgree) {
  const bool holds = rc::check("to_native then parse_native_rules", [](uint64_t seed) {
    acl_test::Random random(seed);
    auto set = acl_test::random_set(random, 40);
    for (AclRule& r : set.rules) r.keep = r.verb != AclVerb::kDeny && acl_test::chance(random, 30);
    const auto again = parse_native_rules(to_native(set), "w.acl", {}, nullptr, {.keeps = true});
    if (!again.ok()) RC_FAIL(to_string(again.error()));
    RC_ASSERT(same_rules(set, *again));
  });
  EXPECT_TRUE(holds);
}

TEST(ClassBenchText, WritingAndReadingAgree) {
  const bool holds = rc::check("to_classbench then parse_classbench", [](uint64_t seed) {
    acl_test::Random random(seed);
    RuleSet set;
    set.files = {"x"};
    while (set.rules.size() < 40) {
      AclRule rule = acl_test::random_rule(random, set.rules.size() % 2 == 0 ? 4 : 6);
      rule.dscp = AclRule::kAnyDscp;
      rule.bits_mask = rule.bits = 0;
      rule.icmp_mask = rule.icmp = 0;
      rule.needs_ports = rule.log = false;
      rule.verb = AclVerb::kPermit;
      set.rules.push_back(rule);
    }
    const auto text = to_classbench(set);
    RC_ASSERT(text.ok());
    const auto again = parse_classbench(*text, "w");
    if (!again.ok()) RC_FAIL(to_string(again.error()));
    RC_ASSERT(same_rules(set, *again));
    // The same matches in the native language.
    const auto native = parse_native_rules(to_native(set), "w.acl");
    RC_ASSERT(native.ok());
    RC_ASSERT(same_rules(set, *native));
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace sluice

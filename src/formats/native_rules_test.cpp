// The native language: what each form means, what is refused and how, and that writing and reading agree.
#include "formats/native_rules.h"

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

TEST(NativeRules, GroupBombsAreRefused) {
  std::string text = "define g = ";
  for (int i = 0; i < 600; ++i) text += std::to_string(i) + ", ";
  EXPECT_THAT(bad(text + "601\npermit tcp from any port g to any port g\n"), HasSubstr("more than 65536 rules"));
}

bool same_rules(const RuleSet& a, const RuleSet& b) {
  if (a.rules.size() != b.rules.size()) return false;
  for (size_t i = 0; i < a.rules.size(); ++i) {
    const AclRule &x = a.rules[i], &y = b.rules[i];
    if (!same_match(flatten(x, 1), flatten(y, 1)) || x.verb != y.verb || x.log != y.log) return false;
    if (x.verb == AclVerb::kMark && x.mark != y.mark) return false;
  }
  return true;
}

TEST(NativeRules, WritingAndReadingAgree) {
  rc::check("to_native then parse_native_rules", [](uint64_t seed) {
    acl_test::Random random(seed);
    const auto set = acl_test::random_set(random, 40);
    const auto again = parse_native_rules(to_native(set), "w.acl");
    if (!again.ok()) RC_FAIL(to_string(again.error()));
    RC_ASSERT(same_rules(set, *again));
  });
}

TEST(ClassBenchText, WritingAndReadingAgree) {
  rc::check("to_classbench then parse_classbench", [](uint64_t seed) {
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
}

TEST(RuleFormat, IsDetected) {
  EXPECT_EQ(detect_rule_format("# c\n\n  @1.2.3.4/32 ..."), RuleFormat::kClassBench);
  EXPECT_EQ(detect_rule_format("permit from any to any"), RuleFormat::kNative);
  EXPECT_EQ(detect_rule_format(""), RuleFormat::kNative);
  EXPECT_THAT(to_string(parse_rule_format("clasbench").error()), HasSubstr("did you mean 'classbench'?"));
  EXPECT_FALSE(read_rules_file("/nonexistent/rules").ok());
}

}  // namespace
}  // namespace sluice

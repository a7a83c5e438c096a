#include "formats/vpp_rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/filter_model.h"
#include "formats/native_rules.h"

namespace sluice {
namespace {

using filter_model::below;
using filter_model::chance;
using filter_model::Random;

// One rule as it is written; what it matches is said by `holds` in VPP's terms.
struct Written {
  bool permit = false;
  IpPrefix src, dst;
  unsigned protocol = 0;
  unsigned low[2] = {0, 0}, high[2] = {65535, 65535};
  unsigned flags = 0, mask = 0;
};

Written draw(Random& random, uint8_t family) {
  Written w;
  w.permit = chance(random, 50);
  w.src = filter_model::draw_prefix(random, family);
  w.dst = filter_model::draw_prefix(random, family);
  const unsigned icmp = family == 4 ? 1 : 58;
  w.protocol = std::array<unsigned, 5>{0, 6, 17, icmp, 47}[below(random, 5)];
  for (int i = 0; i < 2 && w.protocol != 0 && w.protocol != 47; ++i) {
    if (!chance(random, 50)) continue;
    w.low[i] = static_cast<unsigned>(below(random, 5));
    w.high[i] = w.low[i] + static_cast<unsigned>(below(random, 4));
  }
  if (w.protocol == 6 && chance(random, 40)) {
    w.mask = static_cast<unsigned>(below(random, 64));
    w.flags = static_cast<unsigned>(below(random, 64)) & w.mask;
  }
  return w;
}

std::string print(const Written& w, Random& random) {
  std::string t = fmt::format("{} src {} dst {}", w.permit ? "permit" : "deny", to_string(w.src), to_string(w.dst));
  if (w.protocol != 0) t += fmt::format(" proto {}", w.protocol);
  for (int i = 0; i < 2; ++i) {
    if (w.low[i] == 0 && w.high[i] == 65535) continue;
    t += i == 0 ? " sport " : " dport ";
    t += w.low[i] == w.high[i] ? fmt::format("{}", w.low[i]) : fmt::format("{}-{}", w.low[i], w.high[i]);
  }
  if (w.mask != 0) t += fmt::format(" tcpflags {}{} {}", w.flags, chance(random, 50) ? " mask" : "", w.mask);
  return t;
}

bool holds(const Written& w, const FlowKey& k, uint8_t family) {
  if (k.family != family) return false;
  if (!filter_model::inside(w.src, k.src_hi, k.src_lo) || !filter_model::inside(w.dst, k.dst_hi, k.dst_lo))
    return false;
  if (w.protocol == 0) return true;
  if (k.protocol != w.protocol || (k.bits & FlowKey::kLaterFragment) != 0) return false;
  const bool ports = k.protocol == 6 || k.protocol == 17;
  const bool wants = w.low[0] != 0 || w.high[0] != 65535 || w.low[1] != 0 || w.high[1] != 65535 || w.mask != 0;
  if (ports && wants && (k.bits & FlowKey::kHasPorts) == 0) return false;
  // A rule on a field that is cut off does not match.
  const auto asks = [&](int i) { return w.low[i] != 0 || w.high[i] < 255; };
  const bool no_flags = (k.bits & FlowKey::kNoFlags) != 0, no_type = (k.bits & FlowKey::kNoIcmpType) != 0;
  if (ports ? w.mask != 0 && no_flags : (asks(0) && no_type) || (asks(1) && no_flags)) return false;
  const unsigned a = ports ? k.src_port : k.icmp >> 8, b = ports ? k.dst_port : k.icmp & 255;
  return a >= w.low[0] && a <= w.high[0] && b >= w.low[1] && b <= w.high[1] && (k.flags >> 8 & w.mask) == w.flags;
}

TEST(VppRules, MatchWhatVppMatches) {
  size_t permits = 0, denies = 0, none = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const uint8_t family = chance(random, 70) ? 4 : 6;
    std::vector<Written> written;
    std::string text = "# lists\n";
    while (written.size() < 6) {
      std::string line = "set acl-plugin acl ";
      for (int i = 0; i < 2; ++i) {
        written.push_back(draw(random, family));
        line += (i == 0 ? "" : chance(random, 50) ? ", " : " ,") + print(written.back(), random);
      }
      text += line + " tag list\n";
    }
    const auto set = parse_vpp_rules(text, "vpp.conf");
    ASSERT_TRUE(set.ok()) << to_string(set.error());
    ASSERT_TRUE(check_rule_set(*set).ok());
    for (int i = 0; i < 300; ++i) {
      const FlowKey key = filter_model::draw_key(random, chance(random, 95) ? family : 10 - family);
      const Written* want = nullptr;
      for (const Written& w : written) {
        if (want == nullptr && holds(w, key, family)) want = &w;
      }
      const AclRule* got = nullptr;
      for (const AclRule& r : set->rules) {
        if (got == nullptr && matches(flatten(r, 1), key)) got = &r;
      }
      ASSERT_EQ(want == nullptr, got == nullptr) << text;
      if (want == nullptr) {
        ++none;
        continue;
      }
      ASSERT_EQ(want->permit, got->verb == AclVerb::kPermit) << text;
      (want->permit ? permits : denies) += 1;
    }
  }
  EXPECT_GT(permits, 1000u);
  EXPECT_GT(denies, 1000u);
  EXPECT_GT(none, 1000u);
}

std::string native(const std::string& text) {
  const auto set = parse_vpp_rules(text, "vpp.conf");
  if (set.ok()) return to_native(*set);
  std::string t;
  for (const Diagnostic& d : set.error().diagnostics) t += fmt::format("{}:{}: {}\n", d.line, d.column, d.message);
  return t;
}

TEST(VppRules, ReadAsNativeOnes) {
  EXPECT_EQ(native("set acl-plugin acl permit\n"), "permit from 0.0.0.0/0 to 0.0.0.0/0\n")
      << "IPv4 where nothing is said";
  EXPECT_EQ(native("set acl-plugin acl permit dst 2001:db8::/32 proto tcp dport 80 tcpflags 2 mask 18,deny src ::/0\n"),
            "permit tcp from ::/0 to 2001:db8::/32 port 80 flags 0x0200/0x1200\ndeny from ::/0 to ::/0\n");
  EXPECT_EQ(native("set acl-plugin acl permit src 10.0.0.0/8 proto 1 sport 8 dport 0-3\n"),
            "permit icmp from 10.0.0.0/8 to 0.0.0.0/0 bits 0x00/0x04 icmp-match 0x0800/0xfffc\n");
  EXPECT_EQ(native("set acl-plugin acl permit proto 1 sport 8-300\n"),
            native("set acl-plugin acl permit proto 1 sport 8-255\n"))
      << "types are bytes";
  const auto set = parse_vpp_rules("\n# one\nset acl-plugin acl deny, permit\n", "f");
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->rules.at(1).line, 3u);
}

TEST(VppRules, NameWhatTheyDoNotUnderstand) {
  EXPECT_EQ(
      native("set acl-plugin acl permit src 10.0.0.0/33, deny dst 1.2.3.4, permitt\n"
             "set acl-plugin interface eth0 input acl 0\n"
             "set acl-plugin acl permit+reflect src 10.0.0.0/8\n"
             "set acl-plugin acl permit dport 80\n"
             "set acl-plugin acl permit proto 17 tcpflags 2 mask 2\n"
             "set acl-plugin acl permit proto 132 sport 7\n"
             "set acl-plugin acl permit proto 6 sport 9-7\n"
             "set acl-plugin acl permit proto 6 tcpflags 3 mask 2\n"
             "set acl-plugin acl permit src 10.0.0.0/8 dst 2001:db8::/32\n"
             "set acl-plugin acl permit log\n"
             "set acl-plugin acl permit proto 1 sport 300\n"
             "set acl-plugin acl permit proto\n"),
      "1:31: '10.0.0.0/33' is not a prefix\n1:53: '1.2.3.4' is not a prefix\n1:62: 'permitt' is not an action\n2:1: "
      "'set acl-plugin interface eth0 input acl 0' is a command that is not understood\n3:20: 'permit+reflect' opens a "
      "session for the packets of the other direction\n4:33: ports without a protocol are not matched\n5:36: TCP flags "
      "are matched in TCP only\n6:43: ports are matched in TCP and UDP only\n7:41: port range 9-7 is empty\n8:44: the "
      "flags 3 have bits that the mask 2 leaves out: no packet matches\n9:20: the source and the destination are of "
      "different address families\n10:27: 'log' is not a part of a rule\n11:41: no ICMP type or code is in this "
      "range\n12:32: the line ends where a protocol should be\n");
}

}  // namespace
}  // namespace sluice

#include "elements/ip_filter/pattern.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <random>

#include "elements/ip_input/stage.h"
#include "elements/testing.h"
#include "formats/native_rules.h"
#include "net/text.h"

namespace sluice {
namespace {

using sluice::testing::expect;
using ::testing::HasSubstr;
using Random = std::mt19937_64;

uint64_t below(Random& random, uint64_t n) {
  return random() % n;
}

// ---- an evaluator that reads the bytes -----------------------------------------------------------------------------

// An untagged frame, IPv4 without options or IPv6 without extension headers but a fragment header.
struct Frame {
  std::vector<uint8_t> bytes;
  unsigned at(size_t i) const { return i < bytes.size() ? bytes[i] : 0; }
  bool six() const { return at(14) >> 4 == 6; }
  bool has_fragment_header() const { return six() && at(20) == 44; }
  unsigned protocol() const { return six() ? has_fragment_header() ? at(54) : at(20) : at(23); }
  unsigned l4() const { return six() ? has_fragment_header() ? 62 : 54 : 34; }
  unsigned offset() const {
    if (six()) return has_fragment_header() ? (at(56) << 8 | at(57)) >> 3 : 0;
    return (at(20) << 8 | at(21)) & 0x1fff;
  }
  bool more_fragments() const { return six() ? has_fragment_header() && (at(57) & 1) != 0 : (at(20) & 0x20) != 0; }
  bool fragment() const { return offset() != 0 || more_fragments(); }
  bool ports() const { return offset() == 0 && (protocol() == 6 || protocol() == 17); }
  unsigned port(bool source) const { return at(l4() + (source ? 0 : 2)) << 8 | at(l4() + (source ? 1 : 3)); }
  unsigned ttl() const { return six() ? at(21) : at(22); }
  unsigned tos() const { return six() ? ((at(14) & 15) << 4 | at(15) >> 4) : at(15); }
  std::string ether(bool source) const {
    const size_t from = source ? 6 : 0;
    return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", at(from), at(from + 1), at(from + 2), at(from + 3),
                       at(from + 4), at(from + 5));
  }
  std::string address(bool source) const {
    IpAddress a;
    a.family = six() ? 6 : 4;
    const size_t begin = six() ? (source ? 22 : 38) : (source ? 26 : 30);
    for (size_t i = 0; i < (six() ? 16u : 4u); ++i) {
      a.hi = a.hi << 8 | a.lo >> 56;
      a.lo = a.lo << 8 | at(begin + i);
    }
    if (!six()) a.hi = 0;
    return to_string(a);
  }
};

Frame draw_frame(Random& random) {
  const bool six = below(random, 4) == 0;
  auto address = [&] {
    return *parse_ip(six ? fmt::format("2001:db8::{}", 1 + below(random, 3))
                         : fmt::format("10.0.{}.{}", below(random, 2), 1 + below(random, 3)));
  };
  const auto protocol = std::array<uint8_t, 5>{6, 6, 17, static_cast<uint8_t>(six ? 58 : 1), 47}[below(random, 5)];
  const IpAddress src = address(), dst = address();
  PacketBuilder p = PacketBuilder::ip(src, dst, protocol);
  p.ttl(static_cast<uint8_t>(62 + below(random, 4)))
      .dscp(static_cast<uint8_t>(below(random, 3)))
      .ecn(static_cast<uint8_t>(below(random, 4)));
  p.id(static_cast<uint16_t>(below(random, 4))).payload(24);
  if (protocol == 6 || protocol == 17)
    p.ports(static_cast<uint16_t>(79 + below(random, 4)), static_cast<uint16_t>(79 + below(random, 4)));
  if (protocol == 6) p.tcp_flags(static_cast<uint8_t>(below(random, 64)));
  if (protocol == 1 || protocol == 58)
    p.icmp(static_cast<uint8_t>(below(random, 2) * 8), static_cast<uint8_t>(below(random, 2)));
  const uint64_t fragment = below(random, 8);
  if (fragment == 0) p.fragment(0, true);
  if (fragment == 1) p.fragment(64, below(random, 2) == 0);
  Frame frame{p.build()};
  frame.bytes[5] = static_cast<uint8_t>(1 + below(random, 3));
  frame.bytes[11] = static_cast<uint8_t>(1 + below(random, 3));
  return frame;
}

struct Tree {
  std::string text;
  std::function<bool(const Frame&)> holds;
  bool in_rules = true;  // a rule can say it
};

bool compare(unsigned value, std::string_view op, unsigned with) {
  return op == "==" || op == "=" ? value == with
         : op == "!="            ? value != with
         : op == "<"             ? value < with
         : op == ">"             ? value > with
         : op == "<="            ? value <= with
                                 : value >= with;
}

Tree draw_primitive(Random& random) {
  static constexpr const char* kOps[] = {"", "==", "=", "!=", "<", ">", "<=", ">="};
  std::string op = kOps[below(random, 8)];
  const auto value = static_cast<unsigned>(78 + below(random, 6));
  auto side = below(random, 5);  // src, dst, either (two ways), both
  const char* const words[] = {"src ", "dst ", "", "src or dst ", "dst and src "};
  auto of_sides = [side](const std::function<bool(bool)>& one) {
    return side == 0   ? one(true)
           : side == 1 ? one(false)
           : side == 4 ? one(true) && one(false)
                       : one(true) || one(false);
  };
  switch (below(random, 15)) {
    case 14: {
      const std::string a = draw_frame(random).ether(below(random, 2) == 0);
      const bool unequal = op == "!=";
      const char* const name[] = {"ether host ", "ether ", "host ", ""};
      return {fmt::format("{}{}{}{}", words[side], name[below(random, side == 2 ? 2 : 4)], unequal ? "!= " : "", a),
              [=](const Frame& f) { return of_sides([&](bool s) { return f.ether(s) == a; }) != unequal; }, false};
    }
    case 0: {
      const std::string a = below(random, 4) == 0 ? "2001:db8::1" : fmt::format("10.0.0.{}", 1 + below(random, 3));
      const bool unequal = op == "!=";
      return {fmt::format("{}host {}{}", words[side], unequal ? "!= " : "", a), [=](const Frame& f) {
                const bool same_family = f.six() == (a.find(':') != std::string::npos);
                return same_family && of_sides([&](bool s) { return f.address(s) == a; }) != unequal;
              }};
    }
    case 1:
      return {fmt::format("{}net 10.0.1.0{}", words[side], below(random, 2) == 0 ? "/24" : " mask 255.255.255.0"),
              [=](const Frame& f) { return of_sides([&](bool s) { return f.address(s).starts_with("10.0.1."); }); }};
    case 2:
      // Without a direction and `host` it would take the direction of an address before it.
      return {fmt::format("{}10.0.0.2", side == 2 ? "host " : words[side]),
              [=](const Frame& f) { return of_sides([&](bool s) { return f.address(s) == "10.0.0.2"; }); }};
    case 3:
    case 4: {
      const uint64_t transport = below(random, 3);
      return {fmt::format("{}{}port {} {}", words[side],
                          transport == 0   ? ""
                          : transport == 1 ? "tcp "
                                           : "udp ",
                          op, value),
              [=](const Frame& f) {
                if (!f.ports() || (transport == 1 && f.protocol() != 6) || (transport == 2 && f.protocol() != 17))
                  return false;
                if (op == "!=") return !of_sides([&](bool s) { return f.port(s) == value; });
                return of_sides([&](bool s) { return compare(f.port(s), op.empty() ? "==" : op, value); });
              }};
    }
    case 5:
      return {below(random, 2) == 0 ? "tcp" : "ip proto 6", [](const Frame& f) { return f.protocol() == 6; }};
    case 6: {
      const auto ttl = static_cast<unsigned>(62 + below(random, 4));
      return {fmt::format("ip ttl {} {}", op, ttl),
              [=](const Frame& f) { return compare(f.ttl(), op.empty() ? "==" : op, ttl); }, false};
    }
    case 7: {
      static constexpr const char* kNames[] = {"fin", "syn", "rst", "psh", "ack", "urg"};
      const auto bit = below(random, 6);
      return {fmt::format("tcp opt {}", kNames[bit]),
              [=](const Frame& f) { return f.protocol() == 6 && f.ports() && (f.at(f.l4() + 13) >> bit & 1) != 0; }};
    }
    case 8:
      return {below(random, 2) == 0 ? "icmp type echo" : "icmp type 8",
              [](const Frame& f) { return !f.six() && f.protocol() == 1 && f.offset() == 0 && f.at(f.l4()) == 8; }};
    case 9:
      return below(random, 2) == 0 ? Tree{"ip frag", [](const Frame& f) { return f.fragment(); }}
                                   : Tree{"ip unfrag", [](const Frame& f) { return !f.fragment(); }};
    case 10: {
      const auto v = static_cast<unsigned>(below(random, 12));
      return {fmt::format("ip tos & 0x0f {} {}", op, v),
              [=](const Frame& f) { return !f.six() && compare(f.tos() & 15, op.empty() ? "==" : op, v); }, false};
    }
    case 11: {
      const auto v = static_cast<unsigned>(below(random, 4));
      return {fmt::format("ip dscp {} {}", op, v),
              [=](const Frame& f) { return compare(f.tos() >> 2, op.empty() ? "==" : op, v); }};
    }
    case 12: {
      const auto v = static_cast<unsigned>(below(random, 256)), where = static_cast<unsigned>(below(random, 30));
      return {fmt::format("ip[{}:2]&0xff {} {}", where, op, v),
              [=](const Frame& f) {
                return 14 + where + 2 <= f.bytes.size() && compare(f.at(15 + where), op.empty() ? "==" : op, v);
              },
              false};
    }
    default:
      return below(random, 2) == 0 ? Tree{"true", [](const Frame&) { return true; }}
                                   : Tree{"ip vers 6", [](const Frame& f) { return f.six(); }};
  }
}

Tree draw_tree(Random& random, unsigned depth) {
  const uint64_t dice = depth == 0 ? 0 : below(random, 8);
  if (dice < 3) return draw_primitive(random);
  const Tree a = draw_tree(random, depth - 1);
  if (dice == 3)
    return {(below(random, 2) == 0 ? "not (" : "!(") + a.text + ")", [a](const Frame& f) { return !a.holds(f); },
            a.in_rules};
  const Tree b = draw_tree(random, depth - 1);
  if (dice < 6) {
    static constexpr const char* kAnd[] = {" and ", " && ", " "};
    return {"(" + a.text + ")" + kAnd[below(random, 3)] + "(" + b.text + ")",
            [a, b](const Frame& f) { return a.holds(f) && b.holds(f); }, a.in_rules && b.in_rules};
  }
  if (dice == 6) {
    return {"(" + a.text + (below(random, 2) == 0 ? ") or (" : ")||(") + b.text + ")",
            [a, b](const Frame& f) { return a.holds(f) || b.holds(f); }, a.in_rules && b.in_rules};
  }
  const Tree c = draw_tree(random, depth - 1);
  return {"((" + a.text + ") ? " + b.text + " : " + c.text + ")",
          [a, b, c](const Frame& f) { return a.holds(f) ? b.holds(f) : c.holds(f); },
          a.in_rules && b.in_rules && c.in_rules};
}

struct Parsed {
  std::vector<uint8_t> memory;
  Packet packet;
};
// The registers of a frame, with room around it.
Parsed parse(const Frame& frame) {
  Parsed p;
  p.memory.assign(kHeadroom + frame.bytes.size() + kTailroom, 0);
  std::copy(frame.bytes.begin(), frame.bytes.end(), p.memory.begin() + kHeadroom);
  p.packet.frame = p.memory.data() + kHeadroom;
  p.packet.end = p.packet.wire_end = static_cast<uint32_t>(frame.bytes.size());
  EXPECT_EQ(IpInputStage{.check_martians = 0}(p.packet), 0);
  return p;
}

uint8_t run(const PatternList& list, Packet packet) {
  uint32_t first = 0;
  const auto steps = list.program(&first);
  return PatternStage{steps.data(), static_cast<uint32_t>(steps.size()), first}(packet);
}

uint8_t by_rules(const RuleSet& set, const FlowKey& key) {
  for (const AclRule& rule : set.rules) {
    if (!matches(flatten(rule, 1), key)) continue;
    return rule.verb == AclVerb::kDeny ? kDropOutput : static_cast<uint8_t>(rule.mark);
  }
  return kDropOutput;
}

TEST(Patterns, ProgramsAndRulesAgreeWithTheBytes) {
  const char* scale = std::getenv("SLUICE_TEST_SCALE");
  const uint64_t rounds = 400 * static_cast<uint64_t>(scale != nullptr ? std::max(1, std::atoi(scale)) : 1);
  size_t hits = 0, as_rules = 0;
  for (uint64_t seed = 1; seed <= rounds; ++seed) {
    Random random(seed);
    std::vector<Tree> trees;
    PatternList list;
    bool in_rules = true;
    for (unsigned i = 0; i < 3; ++i) {
      trees.push_back(draw_tree(random, 3));
      const auto fault = list.add(trees.back().text, i == 1 ? kDropOutput : static_cast<uint8_t>(i));
      ASSERT_FALSE(fault) << fault->message << " at " << fault->offset << " of " << trees.back().text;
      in_rules = in_rules && trees.back().in_rules;
    }
    const auto rules = list.rules(20000);
    EXPECT_TRUE(!rules || in_rules || rules->rules.size() < 20000);
    if (in_rules) ++as_rules;
    for (int k = 0; k < 60; ++k) {
      const Frame frame = draw_frame(random);
      const Parsed p = parse(frame);
      uint8_t want = kDropOutput;
      for (uint8_t i = 0; i < 3; ++i) {
        if (!trees[i].holds(frame)) continue;
        want = i == 1 ? kDropOutput : i;
        ++hits;
        break;
      }
      SCOPED_TRACE(fmt::format("seed {}\n{}\n{}\n{}\n{:02x}", seed, trees[0].text, trees[1].text, trees[2].text,
                               fmt::join(frame.bytes, " ")));
      ASSERT_EQ(run(list, p.packet), want);
      if (rules) {
        ASSERT_EQ(by_rules(*rules, p.packet.key), want);
      }
    }
  }
  EXPECT_GT(hits, rounds * 20);
  EXPECT_GT(as_rules, rounds / 20);
}

bool matches_pattern(const std::string& pattern, const Frame& frame) {
  PatternList list;
  const auto fault = list.add(pattern, 0);
  EXPECT_FALSE(fault) << pattern << ": " << (fault ? fault->message : "");
  const bool program = run(list, parse(frame).packet) == 0;
  if (const auto rules = list.rules(20000)) {
    EXPECT_EQ(by_rules(*rules, parse(frame).packet.key) == 0, program) << pattern;
  }
  return program;
}

TEST(Patterns, CaseByCase) {
  const IpAddress a = *parse_ip("10.0.0.1"), b = *parse_ip("192.0.2.7");
  const Frame syn{
      PacketBuilder::ip(a, b, 6).ports(1234, 80).tcp_flags(2).ttl(9).id(77).dscp(46).ecn(3).payload(4).build()};
  const Frame udp{PacketBuilder::ip(b, a, 17).ports(53, 5353).payload(4).build()};
  const Frame later{PacketBuilder::ip(a, b, 17).fragment(64, false).payload(32).build()};
  const Frame six{PacketBuilder::ip(*parse_ip("2001:db8::1"), *parse_ip("2001:db8::2"), 58).icmp(128, 0).build()};
  for (const char* yes :
       {"tcp", "src 10.0.0.1", "host 192.0.2.7 and tcp dst port http", "src port 1234 && dst port 80",
        "tcp opt syn and not tcp opt ack", "tcp opt & 0x12 == 2", "ip ttl < 10", "ip id 77", "ip dscp ef", "ip ce",
        "ip ect or ip ce", "ip tos 0xbb", "ip hl 5", "ip len == 44", "ip vers 4", "port 80 or 443",
        "src port 80 or 1234", "src host 1.2.3.4 or 10.0.0.1", "ip[9] = 6", "ip[16:4] == 0xc0000207", "tcp[2:2] 80",
        "tcp[13] & 2 != 0", "transp[0:2] > 1000", "src net 10.0.0.0/8 dst net 192.0.2.0/24",
        "src and dst net 0.0.0.0/0", "udp ? false : tcp", "src port != 5", "-", "ip", "TCP AND SRC 10.0.0.1",
        "src or dst 10.0.0.1", "not udp", "tcp win 65535 or tcp win <= 65535", "(tcp)", "src port < 2000",
        "dst host 192.0.2.7", "dst port www", "dst www", "www or ssh", "tcp www", "src port ssh or 1234",
        "tcpudp port 80", "unfrag", "ip unfrag and not frag", "ip proto tcp", "ip proto != udp", "ip proto < 7",
        "ip hl >= 5", "ip hl & 4", "dst port & 0x50", "dst port & 0x50 and tcp", "dst port & 0x0f != 1", "tcp opt & 2",
        "ip id & 0xff00 == 0", "syn", "syn and not (ack or fin)", "host != 1.2.3.4", "src net 10.0.0.0 mask 255.0.0.0",
        "net 10.0.0.0/8", "10.0.0.0/8", "192.0.2.7", "any", "all", "true",
        // `not` binds closest, then `and`, then `or`, then the choice.
        "udp and udp or tcp", "tcp or udp and udp", "tcp or tcp and udp", "not udp and tcp", "not tcp and udp or tcp",
        "! udp && ! icmp", "udp or tcp ? true : false", "udp ? false : udp ? false : true"}) {
    EXPECT_TRUE(matches_pattern(yes, syn)) << yes;
  }
  for (const char* no : {"udp",
                         "dst 10.0.0.1",
                         "port 81",
                         "tcp opt ack",
                         "ip frag",
                         "icmp",
                         "src port 5",
                         "ip[9] != 6",
                         "none",
                         "ip[60000] 0",
                         "ip[60000] != 0",
                         "udp[0:2] 1234",
                         "src net 2001:db8::/32",
                         "src host != 10.0.0.1",
                         "ip vers 6",
                         "ip ttl > 9",
                         "src and dst host 10.0.0.1",
                         "dst host 1.2.3.4 or 10.0.0.1",
                         "src port 5 or 80",
                         "icmp type 0",
                         "tcp win < 0",
                         "frag",
                         "src www",
                         "ssh or smtp",
                         "tcp ssh",
                         "ip proto ipip",
                         "ip hl & 8",
                         "dst port & 0x0f",
                         "tcp opt & 0x10",
                         "ack",
                         "fin or rst or psh or urg",
                         "ip ect",
                         "net 11.0.0.0/8",
                         "192.0.2.8",
                         "icmp echo",
                         "sourcequench",
                         "not (udp or tcp)",
                         "not tcp or udp",
                         "(tcp or udp) and udp",
                         "tcp ? udp : tcp",
                         "false",
                         "transp[13] & 4"}) {
    EXPECT_FALSE(matches_pattern(no, syn)) << no;
  }
  const IpAddress c = *parse_ip("10.0.0.9");
  // Every name of a port, a protocol and an ICMP type that the manual of IPClassifier lists.
  for (const auto& [name, number] :
       {std::pair{"echo", 7}, {"discard", 9},      {"daytime", 13},      {"chargen", 19},      {"ftp-data", 20},
        {"ftp", 21},          {"ssh", 22},         {"telnet", 23},       {"smtp", 25},         {"domain", 53},
        {"dns", 53},          {"bootps", 67},      {"bootpc", 68},       {"tftp", 69},         {"finger", 79},
        {"www", 80},          {"pop3", 110},       {"sunrpc", 111},      {"auth", 113},        {"nntp", 119},
        {"ntp", 123},         {"netbios-ns", 137}, {"netbios-dgm", 138}, {"netbios-ssn", 139}, {"snmp", 161},
        {"snmp-trap", 162},   {"irc", 194},        {"imap3", 220},       {"https", 443},       {"rip", 520},
        {"route", 520},       {"imaps", 993},      {"pop3s", 995}}) {
    const auto port = static_cast<uint16_t>(number);
    const Frame there{PacketBuilder::ip(a, c, 17).ports(port, 40000).payload(4).build()};
    const Frame beside{PacketBuilder::ip(a, c, 17).ports(static_cast<uint16_t>(port + 1), 40000).payload(4).build()};
    EXPECT_TRUE(matches_pattern(fmt::format("src udp port {}", name), there)) << name;
    EXPECT_FALSE(matches_pattern(fmt::format("src udp port {}", name), beside)) << name;
    EXPECT_TRUE(matches_pattern(fmt::format("src {}", name), there)) << name;
  }
  for (const auto& [name, number] : {std::pair{"icmp", 1}, {"igmp", 2}, {"ipip", 4}, {"tcp", 6}, {"udp", 17}}) {
    const Frame there{PacketBuilder::ip(a, c, static_cast<uint8_t>(number)).payload(24).build()};
    for (const char* form : {"ip proto {}", "{}", "ip proto == {}"}) {
      const std::string pattern = fmt::format(fmt::runtime(form), name);
      EXPECT_TRUE(matches_pattern(pattern, there)) << pattern;
      EXPECT_EQ(matches_pattern(pattern, udp), number == 17) << pattern;
    }
  }
  for (const auto& [name, number] : {std::pair{"echo-reply", 0},
                                     {"unreachable", 3},
                                     {"sourcequench", 4},
                                     {"redirect", 5},
                                     {"echo", 8},
                                     {"routeradvert", 9},
                                     {"routersolicit", 10},
                                     {"timeexceeded", 11},
                                     {"parameterproblem", 12},
                                     {"timestamp", 13},
                                     {"timestamp-reply", 14},
                                     {"inforeq", 15},
                                     {"inforeq-reply", 16},
                                     {"maskreq", 17},
                                     {"maskreq-reply", 18}}) {
    const auto type = static_cast<uint8_t>(number);
    const Frame there{PacketBuilder::ip(a, c, 1).icmp(type, 0).build()};
    const Frame beside{PacketBuilder::ip(a, c, 1).icmp(static_cast<uint8_t>(type + 20), 0).build()};
    for (const char* form : {"icmp type {}", "icmp {}", "icmp type >= {}"}) {
      const std::string pattern = fmt::format(fmt::runtime(form), name);
      EXPECT_TRUE(matches_pattern(pattern, there)) << pattern;
      EXPECT_EQ(matches_pattern(pattern, beside), std::string_view(form).ends_with(">= {}")) << pattern;
      EXPECT_FALSE(matches_pattern(pattern, udp)) << pattern;
    }
  }
  for (const std::string& mac : {syn.ether(true), syn.ether(false)}) {
    const std::string side = mac == syn.ether(true) ? "src" : "dst";
    EXPECT_TRUE(matches_pattern(side + " " + mac, syn));
    EXPECT_TRUE(matches_pattern("ether " + side + " host " + mac + " and tcp", syn));
    EXPECT_TRUE(matches_pattern("src or dst ether host 0a:0b:0c:0d:0e:0f or " + mac, syn));
    EXPECT_FALSE(matches_pattern(side + " ether host != " + mac, syn));
  }
  EXPECT_FALSE(matches_pattern("ether 0a:0b:0c:0d:0e:0f", syn));
  EXPECT_TRUE(matches_pattern("udp port domain", udp));
  EXPECT_FALSE(matches_pattern("src port != 53", udp));
  // Later fragments have no ports, whatever is asked of them.
  EXPECT_FALSE(matches_pattern("src port != 53", later));
  EXPECT_TRUE(matches_pattern("!(src port == 53)", later));
  EXPECT_TRUE(matches_pattern("ip frag and udp", later));
  EXPECT_FALSE(matches_pattern("transp[0] >= 0", later));
  EXPECT_TRUE(matches_pattern("icmp6 type echo-request and net 2001:db8::/32", six));
  EXPECT_FALSE(matches_pattern("icmp type 128", six));
  EXPECT_FALSE(matches_pattern("src host != 10.0.0.1", six)) << "about IPv4 packets";
  EXPECT_TRUE(matches_pattern("not src host 10.0.0.1", six));
}

std::string fault(const std::string& pattern) {
  PatternList list;
  const auto f = list.add(pattern, 0);
  return f ? fmt::format("{}+{}: {}", f->offset, f->length, f->message) : "no fault";
}

TEST(Patterns, NameWhatIsWrong) {
  EXPECT_EQ(fault("src hots 10.0.0.1"), "4+4: 'hots' is not a primitive");
  EXPECT_EQ(fault("src port 70000"), "9+5: '70000' is not a value of this field");
  EXPECT_EQ(fault("tcp and"), "7+0: the pattern ends where a primitive should be");
  EXPECT_EQ(fault("tcp )"), "4+1: unexpected ')'");
  EXPECT_EQ(fault("(tcp"), "4+0: the pattern ends where ')' should be");
  EXPECT_EQ(fault("src host 10.0.0.0/8"), "9+10: '10.0.0.0/8' is not an address");
  EXPECT_EQ(fault("ip[0:5] 1"), "5+1: '5' is not a length");
  EXPECT_EQ(fault("icmp port 5"), "10+1: protocol 1 has no ports");
  EXPECT_EQ(fault("tcp opt sny"), "8+3: 'sny' is not a TCP flag");
  EXPECT_EQ(fault("ether src 10.0.0.1"), "10+8: '10.0.0.1' is not an Ethernet address");
  EXPECT_EQ(fault("tcp 02:00:00:00:00:01"), "4+17: an Ethernet address has no protocol");
  EXPECT_EQ(fault("src dst port 5"), "4+3: there are two directions");
  EXPECT_EQ(fault("tcp ? udp"), "9+0: the pattern ends where ':' should be");
  EXPECT_EQ(fault("80"), "0+2: '80' is not a primitive");
  EXPECT_EQ(fault("src port 80-81"), "9+5: '80-81' is not a value of this field") << "there are no ranges";
  EXPECT_EQ(fault("echo"), "0+4: 'echo' is a port and an ICMP type");
  EXPECT_EQ(fault("src host www"), "9+3: 'www' is not an address");
  EXPECT_EQ(fault("net 10.0.0.0 mask 255.0.255.0"), "18+11: '255.0.255.0' is not a mask");
  EXPECT_EQ(fault("src host & 255.0.0.0 10.0.0.0"), "11+9: '255.0.0.0' is not a mask");
  EXPECT_EQ(fault("src host & 7 10.0.0.1"), "13+8: addresses are equal or not");
  EXPECT_EQ(fault("src host < 10.0.0.1"), "11+8: addresses are equal or not");
  EXPECT_EQ(fault("ip ttl 256"), "7+3: '256' is not a value of this field");
  EXPECT_EQ(fault("ip vers 16"), "8+2: '16' is not a value of this field");
  EXPECT_EQ(fault("ip dscp 64"), "8+2: '64' is not a value of this field");
  EXPECT_EQ(fault("ip proto nosuch"), "9+6: 'nosuch' is not a value of this field");
  EXPECT_EQ(fault("icmp type nosuch"), "10+6: 'nosuch' is not a value of this field");
  EXPECT_EQ(fault("ip ttl"), "6+0: the pattern ends where a value should be");
  EXPECT_EQ(fault("ip ttl & x 5"), "9+1: 'x' is not a mask");
  EXPECT_EQ(fault("udp opt syn"), "8+3: only TCP has this field");
  EXPECT_EQ(fault("tcp type 3"), "9+1: only ICMP has types");
  EXPECT_EQ(fault("ip[x] 1"), "3+1: 'x' is not an offset");
  EXPECT_EQ(fault("ip[4 1"), "5+1: '1' is not ']'");
  EXPECT_EQ(fault("ether host < 02:00:00:00:00:01"), "13+17: addresses are equal or not");
  EXPECT_EQ(fault("tcp or or udp"), "7+2: 'or' is not a primitive");
  EXPECT_EQ(fault("not"), "3+0: the pattern ends where a primitive should be");
  EXPECT_EQ(fault(""), "0+0: the pattern is empty");
}

TEST(Patterns, HaveLimits) {
  EXPECT_THAT(fault(std::string(300, '(') + "tcp" + std::string(300, ')')), HasSubstr("more than 100 levels"));
  std::string many = "src 10.0.0.1";
  for (int i = 0; i < 8000; ++i) many += " or 10.0.0.2";
  EXPECT_THAT(fault(many), HasSubstr("more than 30000 parts"));
  std::string fits = "tcp";
  for (int i = 0; i < 10000; ++i) fits += " or udp";
  EXPECT_EQ(fault(fits), "no fault");
  PatternList list;
  ASSERT_FALSE(list.add("not (src port 5 and dst port 7) and not net 10.0.0.0/8 and ip proto != 6", 0));
  EXPECT_FALSE(list.rules(10).has_value());
  EXPECT_TRUE(list.rules(10000).has_value());
}

// ---- the elements --------------------------------------------------------------------------------------------------

TEST(IpFilter, AllowsDeniesAndSends) {
  const auto web = PacketBuilder::ip(*parse_ip("10.0.0.1"), *parse_ip("192.0.2.7"), 6).ports(1234, 80).build();
  const auto dns = PacketBuilder::ip(*parse_ip("10.0.0.1"), *parse_ip("192.0.2.7"), 17).ports(1234, 53).build();
  const std::string filter = "f :: IPFilter(allow tcp dst port 80, deny udp, 1 all); f[1] -> Discard;";
  expect(web).through("IPInput -> f", filter).passes();
  expect(dns).through("IPInput -> f", filter).drops(DropReason::kAclDeny);
  expect(web).through("IPInput -> IPFilter(allow udp)").drops(DropReason::kClassifierNoMatch);
  expect(dns).through("IPInput -> c", "c :: IPClassifier(tcp, udp, -); c[1] -> Discard; c[2] -> Discard;").leaves_by(1);
}

// The Ethernet header that a packet leaves with, wherever it lies; without one no address matches.
TEST(IpFilter, LooksAtTheEthernetHeaderThatIsThere) {
  const auto bare = udp4("10.0.0.1", "192.0.2.7").no_link().build();
  const auto framed = udp4("10.0.0.1", "192.0.2.7").macs({{2, 0, 0, 0, 0, 8}}, {{2, 0, 0, 0, 0, 9}}).build();
  const std::string encap = "EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02)";
  for (const char* yes : {"ether src 02:00:00:00:00:01", "ether dst 02:00:00:00:00:02",
                          "ether host != 02:00:00:00:00:09", "ether host 02:00:00:00:00:02"}) {
    const std::string filter = "IPFilter(allow " + std::string(yes) + ")";
    expect(bare).through("CheckIPHeader -> " + encap + " -> " + filter).passes();
    expect(framed).through("CheckIPHeader(14) -> Strip(14) -> " + encap + " -> " + filter).passes();
    expect(bare).through("CheckIPHeader -> " + filter).drops(DropReason::kClassifierNoMatch);
    expect(framed).through("CheckIPHeader(14) -> " + filter).drops(DropReason::kClassifierNoMatch);
  }
  const std::string own = "IPFilter(allow ether src 02:00:00:00:00:09 and ether dst 02:00:00:00:00:08)";
  expect(framed).through("IPInput -> " + own).passes();
  expect(framed).through("IPInput -> Strip(14) -> " + own).passes();
  // The outer header of two is what the packet starts with.
  expect(framed).through("IPInput -> " + encap + " -> IPFilter(allow ether src 02:00:00:00:00:01)").passes();
  expect(framed).through("IPInput -> " + encap + " -> " + own).drops(DropReason::kClassifierNoMatch);
}

// So many patterns that they are looked up as an access list.
TEST(IpFilter, LongListsAreTables) {
  std::string patterns = "deny ip frag";
  for (int i = 0; i < 40; ++i) patterns += fmt::format(", {} dst host 192.0.2.{} and tcp port 80", i % 3, i);
  std::string before = "f :: IPFilter(" + patterns + "); f[1] -> Discard; f[2] -> Discard;";
  for (int i = 0; i < 45; ++i) {
    const auto packet =
        PacketBuilder::ip(*parse_ip("10.0.0.1"), *parse_ip(fmt::format("192.0.2.{}", i)), 6).ports(80, 1).build();
    const auto passage = expect(packet).through("IPInput -> f", before);
    ASSERT_EQ(passage.error, "");
    if (i >= 40) {
      passage.drops(DropReason::kClassifierNoMatch);
    } else {
      EXPECT_EQ(passage.output, i % 3);
      EXPECT_EQ(passage.packet.rule, 0u) << "no access list was passed";
      EXPECT_EQ(passage.packet.mark, 0u);
    }
  }
  const auto part =
      PacketBuilder::ip(*parse_ip("10.0.0.1"), *parse_ip("192.0.2.1"), 6).fragment(64, true).payload(16).build();
  expect(part).through("IPInput -> f", before).drops(DropReason::kAclDeny);
}

TEST(IpFilter, ReportsAtThePlace) {
  EXPECT_THAT(sluice::testing::findings_of("IPFilter(allow tcp, permit udp)"), HasSubstr("'permit' is not an action"));
  EXPECT_THAT(sluice::testing::findings_of("IPClassifier(tcp prot 80)"), HasSubstr("'prot' is not a primitive"));
  EXPECT_THAT(sluice::testing::findings_of("IPFilter()"), HasSubstr("PATTERN"));
}

}  // namespace
}  // namespace sluice

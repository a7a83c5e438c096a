#include "formats/filter_chains.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/filter_model.h"
#include "formats/match_builder.h"

namespace sluice::filter_chains_test {
namespace {

using namespace filter_model;
using Kind = Condition::Kind;
using Target = Rule::Target;

// ---- a model as the readers hand it over
// -----------------------------------------------------------------------------

FilterRule rule_of(const Model& m, const Rule& r, uint32_t line) {
  MatchBuilder match(m.family == 4 ? AclRegion::kIpv4 : AclRegion::kIpv6);
  uint64_t work = 0;
  for (const Condition& c : r.conditions) {
    AclRegion within;
    std::vector<AclRegion> values;
    auto value = [&]() -> AclRegion& { return values.emplace_back(); };
    switch (c.kind) {
      case Kind::kSrc:
        for (const IpPrefix& p : c.prefixes) value().only_src(p);
        break;
      case Kind::kDst:
        for (const IpPrefix& p : c.prefixes) value().only_dst(p);
        break;
      case Kind::kProtocol:
        value().only_protocol(static_cast<uint8_t>(c.protocol));
        break;
      case Kind::kSrcPort:
      case Kind::kDstPort:
        within = with_ports(protocol_region(static_cast<uint8_t>(c.protocol)));
        for (const auto& [low, high] : c.ranges)
          (c.kind == Kind::kSrcPort ? value().src_port : value().dst_port) = {static_cast<uint16_t>(low),
                                                                              static_cast<uint16_t>(high)};
        break;
      case Kind::kFlags:
        within = with_flags(protocol_region(6));
        value().flags = {static_cast<uint16_t>(c.value << 8), static_cast<uint16_t>(c.mask << 8)};
        break;
      case Kind::kIcmp:
        within = with_icmp_type(protocol_region(m.family == 4 ? 1 : 58));
        value().icmp = {static_cast<uint16_t>(c.value << 8), 0xff00};
        break;
      case Kind::kLater:
        value().only_bits(FlowKey::kLaterFragment, FlowKey::kLaterFragment);
        break;
      case Kind::kDscp:
        value().dscp = uint64_t{1} << c.value;
        break;
      case Kind::kState:
        break;
    }
    EXPECT_TRUE(match.keep({within}, values, c.negated, &work));
  }
  FilterRule rule;
  match.put_into(rule);
  constexpr FilterRule::Target kTargets[] = {FilterRule::Target::kContinue, FilterRule::Target::kAccept,
                                             FilterRule::Target::kDrop,     FilterRule::Target::kReturn,
                                             FilterRule::Target::kJump,     FilterRule::Target::kGoto};
  rule.target = kTargets[static_cast<size_t>(r.target)];
  rule.chain = r.chain;
  rule.log = r.log;
  if (r.marks) rule.mark = r.mark;
  rule.line = line;
  return rule;
}

// Lines count from 1 through the chains; the policy's is 0.
std::optional<FlattenProblem> flatten_model(const Model& m, RuleSet& set) {
  std::vector<FilterChain> chains;
  uint32_t line = 0;
  for (const auto& rules : m.chains) {
    FilterChain& chain = chains.emplace_back();
    for (const Rule& r : rules) chain.rules.push_back(rule_of(m, r, ++line));
  }
  FilterPolicy policy;
  policy.verb = m.drop_policy ? AclVerb::kDeny : AclVerb::kPermit;
  policy.families = m.family == 4 ? AclRegion::kIpv4 : AclRegion::kIpv6;
  set.files = {"model"};
  return flatten_chains(chains, 0, policy, 0, set);
}

// ---- lists as people write them
// --------------------------------------------------------------------------------------

// Hosts and nets of a site: some close to each other, some not.
IpPrefix host(uint8_t family, unsigned site, unsigned n) {
  if (family == 4) return {{0, 0x0a000000u + site * 0x10507u + n * 3, 4}, 32};
  return {{0x20010db800000000ull + site * 0x100001ull, 0x5000 + n * 0x11ull, 6}, 128};
}
IpPrefix net(uint8_t family, unsigned site) {
  if (family == 4) return {{0, 0x0a000000u + (site << 16), 4}, 16};
  return {{0x20010db800000000ull + (uint64_t{site} << 16), 0, 6}, 48};
}

Condition source(std::vector<IpPrefix> p, bool negated = false) {
  return {.kind = Kind::kSrc, .negated = negated, .prefixes = std::move(p)};
}
Condition destination(std::vector<IpPrefix> p, bool negated = false) {
  return {.kind = Kind::kDst, .negated = negated, .prefixes = std::move(p)};
}
Condition protocol(unsigned p, bool negated = false) {
  return {.kind = Kind::kProtocol, .negated = negated, .protocol = p};
}
Condition port(unsigned p, unsigned n, bool negated = false) {
  return {.kind = Kind::kDstPort, .negated = negated, .protocol = p, .ranges = {{n, n}}};
}
Rule rule(std::vector<Condition> conditions, Target target, size_t chain = 0) {
  return {.conditions = std::move(conditions), .target = target, .chain = chain};
}
Rule service(unsigned p, unsigned n, Target target) {
  return rule({protocol(p), port(p, n)}, target);
}
Rule marking(std::vector<Condition> conditions, unsigned mark) {
  return {.conditions = std::move(conditions), .marks = true, .mark = mark};
}
Rule logging(std::vector<Condition> conditions) {
  return {.conditions = std::move(conditions), .log = true};
}

// What a router's forward chain has: services of servers, and some for all.
std::vector<Rule> services(uint8_t family, unsigned count) {
  std::vector<Rule> out;
  for (unsigned i = 0; i < count; ++i) {
    Rule r = service(i % 3 == 0 ? 17 : 6, 20 + i, i % 7 == 6 ? Target::kDrop : Target::kAccept);
    if (i % 4 != 0) r.conditions.push_back(destination({host(family, 40 + i, i)}));
    if (i % 5 == 4) r.conditions.push_back(source({net(family, i)}));
    out.push_back(std::move(r));
  }
  return out;
}

struct Shape {
  std::string name;
  Model model;
  size_t most = 20;  // rules of the list for each one that is written
};

Model model_of(uint8_t family, std::vector<std::vector<Rule>> chains, bool drop_policy = false) {
  Model m;
  m.family = family;
  m.drop_policy = drop_policy;
  m.chains = std::move(chains);
  return m;
}
void append(std::vector<Rule>& to, const std::vector<Rule>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::vector<Shape> shapes() {
  std::vector<Shape> out;
  for (const uint8_t family : {uint8_t{4}, uint8_t{6}}) {
    auto add = [&](std::string name, std::vector<std::vector<Rule>> chains, bool drop = false, size_t most = 20) {
      out.push_back({fmt::format("{}, IPv{}", name, family), model_of(family, std::move(chains), drop), most});
    };
    add("two negated addresses and a port",
        {{rule(
            {source({net(family, 1)}, true), destination({host(family, 2, 5)}, true), protocol(6), port(6, 22, true)},
            Target::kDrop)}});
    add("two negated hosts before services", [&] {
      std::vector<Rule> base{
          rule({source({host(family, 1, 1)}, true), destination({host(family, 2, 5)}, true)}, Target::kDrop)};
      append(base, services(family, 30));
      return std::vector<std::vector<Rule>>{base};
    }());
    for (const bool alike : {false, true}) {
      std::vector<Rule> ports, plain, marks, thrice;
      for (unsigned i = 0; i < 50; ++i) {
        const IpPrefix a = host(family, alike ? 3 : i, 7);
        ports.push_back(rule({source({a}, true), protocol(6), port(6, 100 + i)}, Target::kDrop));
        plain.push_back(rule({source({a}, true), destination({net(family, i)})}, Target::kAccept));
        thrice.push_back(
            rule({source({a}, true), destination({host(family, 60 + i, 1)}, true), protocol(6), port(6, 100 + i, true)},
                 Target::kDrop));
        marks.push_back(marking({source({a}, true), destination({host(family, i, 1)}, true)}, i + 1));
      }
      const char* which = alike ? "the same host" : "50 hosts";
      add(fmt::format("50 ports for all but {}", which), {ports});
      add(fmt::format("50 rules for all but {}, a host and a port", which), {thrice});
      add(fmt::format("50 nets for all but {}", which), {plain}, true);
      marks.push_back(rule({destination({net(family, 1)}, true)}, Target::kDrop));
      add(fmt::format("50 marks for all but {}", which), {marks});
    }
    for (const unsigned caller : {1u, 20u, 100u}) {
      // Trusted sources and destinations, in turn.
      std::vector<Rule> trusted;
      for (unsigned i = 0; i < 6; ++i) {
        trusted.push_back(rule({source({host(family, i, 7)})}, Target::kReturn));
        trusted.push_back(rule({destination({host(family, 20 + i, 11)})}, Target::kReturn));
      }
      trusted.push_back(rule({}, Target::kDrop));
      std::vector<Rule> base{rule({}, Target::kJump, 1)};
      append(base, services(family, caller));
      add(fmt::format("6 and 6 trusted in a chain, {} rules behind", caller), {base, trusted});
      add(fmt::format("6 and 6 trusted in the base chain, {} rules before", caller), [&] {
        std::vector<Rule> all = services(family, caller);
        append(all, trusted);
        return std::vector<std::vector<Rule>>{all};
      }());
      // A desk of neighbours.
      std::vector<Rule> desk;
      for (unsigned i = 0; i < 40; ++i) desk.push_back(rule({source({host(family, 3, i)})}, Target::kReturn));
      desk.push_back(rule({}, Target::kDrop));
      add(fmt::format("40 trusted neighbours, {} rules behind", caller), {base, desk}, true);
      // Nested: SSH is for the trusted, who are logged; what comes back goes to a second chain.
      std::vector<Rule> ssh{rule({source({net(family, 9)})}, Target::kReturn), logging({}), rule({}, Target::kJump, 2),
                            rule({protocol(6, true)}, Target::kReturn),
                            rule({source({host(family, 8, 1)}, true)}, Target::kDrop)};
      std::vector<Rule> inner{
          rule({source({host(family, 1, 7)})}, Target::kReturn),
          rule({destination({host(family, 2, 1), host(family, 2, 2)}, true), protocol(17, true)}, Target::kReturn),
          rule({}, Target::kDrop)};
      std::vector<Rule> nested{rule({protocol(6), port(6, 22)}, Target::kJump, 1), service(17, 53, Target::kAccept),
                               rule({source({net(family, 4)}, true)}, Target::kGoto, 2)};
      append(nested, services(family, caller));
      add(fmt::format("nested returns, {} rules behind", caller), {nested, ssh, inner}, true);
      // A set of allowed sources.
      std::vector<IpPrefix> near, far;
      for (unsigned i = 0; i < 20; ++i) {
        near.push_back(host(family, 3, 2 * i));
        far.push_back(host(family, i, i));
      }
      for (const auto& [what, set] : {std::pair("near", near), std::pair("far", far)}) {
        std::vector<Rule> negated{rule({source(set, true), protocol(6)}, Target::kDrop)};
        append(negated, services(family, caller));
        add(fmt::format("all but 20 {} addresses, {} rules behind", what, caller), {negated}, true);
        std::vector<Rule> both{rule({source(set, true), destination(set, true)}, Target::kJump, 1)};
        append(both, services(family, caller));
        add(fmt::format("a chain for all but 20 {} addresses, {} rules behind", what, caller),
            {both, {service(6, 25, Target::kDrop), service(17, 53, Target::kAccept)}}, true);
      }
    }
    // As container engines and ban lists write them.
    std::vector<Rule> base{rule({}, Target::kJump, 1), rule({}, Target::kJump, 2)}, user, stage1, stage2, bans;
    for (unsigned i = 0; i < 12; ++i) {
      user.push_back(rule({source({net(family, i)}, true), destination({net(family, 30 + i)})}, Target::kDrop));
      stage1.push_back(
          rule({source({net(family, 50 + i)}), destination({net(family, 50 + i)}, true)}, Target::kJump, 3));
      stage2.push_back(rule({destination({net(family, 50 + i)})}, Target::kDrop));
      base.push_back(rule({source({net(family, 50 + i)}), destination({net(family, 50 + i)}, true)}, Target::kAccept));
    }
    for (unsigned i = 0; i < 200; ++i) bans.push_back(rule({source({host(family, i, 3)})}, Target::kDrop));
    for (auto* chain : {&user, &stage1, &stage2, &bans}) chain->push_back(rule({}, Target::kReturn));
    base.insert(base.begin(), rule({protocol(6), port(6, 22)}, Target::kJump, 4));
    append(base, services(family, 10));
    add("containers and bans", {base, user, stage1, stage2, bans}, true);
  }
  return out;
}

// Chains know fields, and nothing of how a program walks the headers of a packet.
FlowKey plain_key(Random& random, const Model& m) {
  FlowKey k = draw_key(random, m.family);
  k.bits &= static_cast<uint8_t>(~FlowKey::kAfterAh);
  return k;
}

// A packet about which the list may say something: its addresses and ports are of the list, or next to one.
FlowKey key_near(Random& random, const Model& m) {
  FlowKey k = plain_key(random, m);
  const auto& chain = m.chains[below(random, m.chains.size())];
  for (uint64_t i = below(random, 5); i > 0; --i) {
    const auto& rules = chance(random, 50) ? chain : m.chains[below(random, m.chains.size())];
    if (rules.empty()) continue;
    for (const Condition& c : rules[below(random, rules.size())].conditions) {
      if (chance(random, 20)) continue;
      const uint64_t off = chance(random, 70) ? 0 : below(random, 5) - 2;
      if (c.kind == Kind::kSrc || c.kind == Kind::kDst) {
        const IpPrefix& p = c.prefixes[below(random, c.prefixes.size())];
        (c.kind == Kind::kSrc ? k.src_hi : k.dst_hi) = p.address.hi;
        (c.kind == Kind::kSrc ? k.src_lo : k.dst_lo) =
            m.family == 4 ? static_cast<uint32_t>(p.address.lo + off) : p.address.lo + off;
      } else if (c.kind == Kind::kDstPort) {
        k.protocol = static_cast<uint8_t>(c.protocol);
        k.bits = FlowKey::kHasPorts;
        k.dst_port = static_cast<uint16_t>(c.ranges[0].first + off);
        k.icmp = k.flags = 0;
      }
    }
  }
  return k;
}

size_t written(const Model& m) {
  size_t n = 1;
  for (const auto& chain : m.chains) {
    for (const Rule& r : chain) {
      ++n;
      for (const Condition& c : r.conditions) n += c.prefixes.empty() ? 0 : c.prefixes.size() - 1;
    }
  }
  return n;
}

TEST(FilterChains, NegationsAndReturnsDoNotMultiply) {
  for (const Shape& shape : shapes()) {
    RuleSet set;
    const auto problem = flatten_model(shape.model, set);
    ASSERT_FALSE(problem) << shape.name << ": " << problem->message;
    ASSERT_TRUE(check_rule_set(set).ok());
    RecordProperty(shape.name, fmt::format("{} {}", written(shape.model), set.rules.size()));
    EXPECT_LE(set.rules.size(), shape.most * written(shape.model)) << shape.name;
    std::vector<AclMatchRule> flat;
    for (const AclRule& r : set.rules) flat.push_back(flatten(r, 1));
    Random random(7);
    size_t permits = 0;
    for (int i = 0; i < 2000; ++i) {
      const FlowKey key = key_near(random, shape.model);
      const Verdict want = verdict_of(shape.model, key);
      const auto at = std::find_if(flat.begin(), flat.end(), [&](const AclMatchRule& r) { return matches(r, key); });
      ASSERT_NE(at, flat.end()) << shape.name;
      const AclRule& rule = set.rules[static_cast<size_t>(at - flat.begin())];
      const bool marked = rule.verb == AclVerb::kMark;
      const Verdict got{rule.verb != AclVerb::kDeny, rule.log, marked, marked ? rule.mark : 0};
      ASSERT_EQ(want, got) << shape.name << ", line " << rule.line;
      permits += want.permit;
    }
    EXPECT_GT(permits, size_t{0}) << shape.name;
    EXPECT_LT(permits, size_t{2000}) << shape.name;
  }
}

// Random chains of random length, several times as long as those that the readers are compared with.
TEST(FilterChains, DecideAsTheChainsDo) {
  size_t rules = 0, made = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Random random(seed);
    Model m;
    m.family = chance(random, 50) ? 4 : 6;
    m.sets = chance(random, 50);
    m.drop_policy = chance(random, 50);
    m.chains.resize(2 + below(random, 5));
    for (size_t c = 0; c < m.chains.size(); ++c) {
      for (uint64_t r = 1 + below(random, 8); r > 0; --r)
        m.chains[c].push_back(draw_rule(random, m, c, m.chains.size()));
    }
    RuleSet set;
    const auto problem = flatten_model(m, set);
    ASSERT_FALSE(problem) << "seed " << seed << ": " << problem->message;
    rules += rules_in(m);
    made += set.rules.size();
    EXPECT_LE(set.rules.size(), 300 * rules_in(m)) << "seed " << seed;
    for (int i = 0; i < 200; ++i) {
      const FlowKey key = chance(random, 50) ? key_near(random, m) : plain_key(random, m);
      ASSERT_EQ(verdict_of(m, key), verdict_of(set, key)) << "seed " << seed;
    }
  }
  EXPECT_LE(made, 20 * rules);
}

// A list of many kinds of rules at once; how much is negated and returned is drawn, too.
Model draw_list(Random& random) {
  Model m;
  m.family = chance(random, 50) ? 4 : 6;
  m.drop_policy = chance(random, 50);
  m.chains.resize(1 + below(random, 4));
  const auto negated = static_cast<unsigned>(below(random, 60)), returns = static_cast<unsigned>(below(random, 30)),
             nets = static_cast<unsigned>(below(random, 100)), sites = 3 + static_cast<unsigned>(below(random, 30));
  const auto addresses = [&](unsigned first) {
    std::vector<IpPrefix> out;
    for (uint64_t n = chance(random, 15) ? 1 + below(random, 5) : 1; n > 0; --n) {
      const unsigned site = first + static_cast<unsigned>(below(random, sites));
      out.push_back(chance(random, nets) ? net(m.family, site)
                                         : host(m.family, site, static_cast<unsigned>(below(random, 5))));
    }
    return out;
  };
  for (size_t c = 0; c < m.chains.size(); ++c) {
    for (uint64_t n = c == 0 ? 10 + below(random, 60) : 5 + below(random, 20); n > 0; --n) {
      Rule r;
      if (chance(random, 45)) r.conditions.push_back(source(addresses(0), chance(random, negated)));
      if (chance(random, 45)) r.conditions.push_back(destination(addresses(40), chance(random, negated)));
      if (chance(random, 60) || r.conditions.empty()) {
        const unsigned p = chance(random, 70) ? 6 : 17;
        r.conditions.push_back(protocol(p, chance(random, 8)));
        if (!r.conditions.back().negated && chance(random, 70))
          r.conditions.push_back(port(p, 20 + static_cast<unsigned>(below(random, 30)), chance(random, negated / 2)));
      }
      const uint64_t dice = below(random, 100);
      if (dice < returns && c > 0) {
        r.target = Target::kReturn;
      } else if (dice < 85) {
        r.target = dice < 50 ? Target::kAccept : Target::kDrop;
      } else if (dice < 93 && c + 1 < m.chains.size()) {
        r.target = chance(random, 85) ? Target::kJump : Target::kGoto;
        r.chain = c + 1 + below(random, m.chains.size() - c - 1);
      } else if (dice < 97) {
        r.log = true;
      } else {
        r.marks = true;
        r.mark = static_cast<unsigned>(below(random, 5));
      }
      m.chains[c].push_back(std::move(r));
    }
  }
  return m;
}

TEST(FilterChains, ListsOfAllKindsStayShort) {
  size_t made = 0, rules = 0, longer = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    Random random(seed);
    const Model m = draw_list(random);
    RuleSet set;
    const auto problem = flatten_model(m, set);
    ASSERT_FALSE(problem) << "seed " << seed << ": " << problem->message;
    made += set.rules.size();
    rules += written(m);
    longer += set.rules.size() > 20 * written(m);
    EXPECT_LE(set.rules.size(), 60 * written(m)) << "seed " << seed;
    std::vector<AclMatchRule> flat;
    for (const AclRule& r : set.rules) flat.push_back(flatten(r, 1));
    for (int i = 0; i < 100; ++i) {
      const FlowKey key = key_near(random, m);
      const auto at = std::find_if(flat.begin(), flat.end(), [&](const AclMatchRule& r) { return matches(r, key); });
      ASSERT_NE(at, flat.end());
      RuleSet one;
      one.rules.push_back(set.rules[static_cast<size_t>(at - flat.begin())]);
      ASSERT_EQ(verdict_of(m, key), verdict_of(one, key)) << "seed " << seed;
    }
  }
  EXPECT_LE(made, 5 * rules);
  EXPECT_LE(longer, size_t{2});
}

// The line that a packet's rule names is the one that decides it in the chains.
TEST(FilterChains, NameTheLineThatDecides) {
  for (const uint8_t family : {uint8_t{4}, uint8_t{6}}) {
    const IpPrefix friends = host(family, 1, 1), other = host(family, 2, 2);
    // 1: jump, 2: drop port 25, 3: return of a friend, 4: drop all but another one.
    const Model m =
        model_of(family, {{rule({}, Target::kJump, 1), service(6, 25, Target::kDrop)},
                          {rule({source({friends})}, Target::kReturn), rule({source({other}, true)}, Target::kDrop)}});
    RuleSet set;
    ASSERT_FALSE(flatten_model(m, set));
    auto line = [&](const IpPrefix& from, uint16_t port) {
      FlowKey k;
      k.family = family;
      k.src_hi = from.address.hi;
      k.src_lo = from.address.lo;
      k.protocol = 6;
      k.bits = FlowKey::kHasPorts;
      k.dst_port = port;
      for (const AclRule& r : set.rules) {
        if (matches(flatten(r, 1), k)) return r.line;
      }
      return ~0u;
    };
    EXPECT_EQ(line(friends, 25), 2u);
    EXPECT_EQ(line(friends, 80), 0u);
    EXPECT_EQ(line(other, 25), 2u);
    EXPECT_EQ(line(other, 80), 0u);
    EXPECT_EQ(line(host(family, 3, 3), 25), 4u);
    EXPECT_EQ(line(host(family, 3, 3), 80), 4u);
    EXPECT_LE(set.rules.size(), 8u);
  }
}

}  // namespace
}  // namespace sluice::filter_chains_test

// For tests: filter chains as plain values, a way to draw them, and what they do to a packet by walking them. The
// readers of iptables and nft are compared with it; each test prints the model in its own language.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "formats/conn_state.h"
#include "net/text.h"
#include "tables/acl/rule_set.h"

namespace sluice::filter_model {

using Random = std::mt19937_64;
inline uint64_t below(Random& random, uint64_t n) {
  return random() % n;
}
inline bool chance(Random& random, unsigned percent) {
  return below(random, 100) < percent;
}

struct Condition {
  enum class Kind { kSrc, kDst, kProtocol, kSrcPort, kDstPort, kFlags, kIcmp, kLater, kDscp, kState };
  Kind kind;
  bool negated = false;
  std::vector<IpPrefix> prefixes;                     // kSrc, kDst: one or a set
  unsigned protocol = 0;                              // kProtocol, and of ports
  std::vector<std::pair<unsigned, unsigned>> ranges;  // ports
  unsigned value = 0, mask = 0;                       // kFlags; kIcmp and kDscp: value; kState: how it is written
  unsigned states = 0;                                // kState: bits of ConnState; 16: untracked, as no packet is
};
struct Rule {
  enum class Target { kNothing, kAccept, kDrop, kReturn, kJump, kGoto };
  std::vector<Condition> conditions;
  Target target = Target::kNothing;
  size_t chain = 0;
  bool log = false;
  bool marks = false;
  unsigned mark = 0;
};
struct Model {
  uint8_t family = 4;
  // iptables: walks past an Authentication Header of IPv6, and a rule that needs a header drops a packet that ends in
  // it. nft does neither.
  bool iptables = false;
  bool drop_policy = false;
  bool sets = false;                      // conditions may have sets of addresses
  bool stateful = false;                  // conditions may be on the state of the connection
  ConnState state = ConnState::kNew;      // of the packets that walk the chains
  std::vector<std::vector<Rule>> chains;  // 0 is the base chain; jumps go to later ones
};

struct Verdict {
  bool permit = false;
  bool log = false;
  bool marked = false;
  unsigned mark = 0;
  bool keep = false;
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

// ---- drawing -------------------------------------------------------------------------------------------------------

inline IpPrefix draw_prefix(Random& random, uint8_t family) {
  const unsigned width = family == 4 ? 32 : 128;
  IpPrefix p;
  p.address.family = family;
  p.length = static_cast<uint8_t>(chance(random, 5) ? 0 : width - below(random, 4));
  if (p.length != 0)
    p.address.lo = (family == 4 ? 0x0a000000u : 0u) + (below(random, 8) & (~0ull << (width - p.length)));
  if (p.length != 0 && family == 6) p.address.hi = 0x20010db800000000ull;
  return p;
}

inline Rule draw_rule(Random& random, const Model& model, size_t chain, size_t chains) {
  using Kind = Condition::Kind;
  Rule r;
  auto add = [&](Kind kind) -> Condition& {
    r.conditions.push_back({.kind = kind, .negated = chance(random, 25)});
    return r.conditions.back();
  };
  for (const Kind kind : {Kind::kSrc, Kind::kDst}) {
    if (!chance(random, 40)) continue;
    Condition& c = add(kind);
    c.negated |= chance(random, 10);
    for (uint64_t n = model.sets ? 1 + below(random, 4) : 1; n > 0; --n)
      c.prefixes.push_back(draw_prefix(random, model.family));
  }
  if (model.stateful && chance(random, 40)) {
    Condition& c = add(Kind::kState);
    for (uint64_t n = 1 + below(random, 3); n > 0; --n) c.states |= 1u << below(random, 5);
    c.value = static_cast<unsigned>(below(random, 2));
  }
  const unsigned icmp = model.family == 4 ? 1 : 58;
  if (chance(random, 60)) {
    Condition& p = add(Kind::kProtocol);
    p.protocol = std::array<unsigned, 4>{6, 17, icmp, 47}[below(random, 4)];
    const unsigned protocol = p.protocol;
    const bool ports = !p.negated && (protocol == 6 || protocol == 17);
    const bool tcp = !p.negated && protocol == 6, is_icmp = !p.negated && protocol == icmp;
    for (Kind kind : {Kind::kSrcPort, Kind::kDstPort}) {
      if (!ports || !chance(random, 40)) continue;
      Condition& c = add(kind);
      c.protocol = protocol;
      for (uint64_t n = 1 + below(random, 3); n > 0; --n) {
        const auto low = static_cast<unsigned>(below(random, 6));
        c.ranges.emplace_back(low, chance(random, 50) ? low : low + static_cast<unsigned>(below(random, 3)));
      }
    }
    if (tcp && chance(random, 40)) {
      Condition& c = add(Kind::kFlags);
      c.mask = static_cast<unsigned>(below(random, 64));
      c.value = static_cast<unsigned>(below(random, 64)) & c.mask;
    }
    if (is_icmp && chance(random, 60)) add(Kind::kIcmp).value = static_cast<unsigned>(below(random, 3));
  }
  if (model.family == 4 && chance(random, 10)) add(Kind::kLater);
  if (chance(random, 10)) add(Kind::kDscp).value = static_cast<unsigned>(below(random, 3));
  const auto dice = below(random, 100);
  if (dice < 35) {
    r.target = Rule::Target::kAccept;
  } else if (dice < 60) {
    r.target = Rule::Target::kDrop;
  } else if (dice < 70) {
    r.target = Rule::Target::kReturn;
  } else if (dice < 90 && chain + 1 < chains) {
    r.target = dice < 84 ? Rule::Target::kJump : Rule::Target::kGoto;
    r.chain = chain + 1 + below(random, chains - chain - 1);
  } else if (dice < 96) {
    r.log = true;
  } else {
    r.marks = true;
    r.mark = static_cast<unsigned>(below(random, 1000));
  }
  return r;
}

inline Model draw_model(Random& random, bool iptables, bool stateful) {
  Model m;
  m.stateful = stateful;
  m.iptables = iptables;
  m.sets = !iptables;
  m.family = chance(random, 50) ? 4 : 6;
  m.drop_policy = chance(random, 50);
  m.chains.resize(1 + below(random, 4));
  for (size_t c = 0; c < m.chains.size(); ++c) {
    const uint64_t rules = 1 + below(random, 5);
    for (uint64_t r = 0; r < rules; ++r) m.chains[c].push_back(draw_rule(random, m, c, m.chains.size()));
  }
  return m;
}

// A key as the parser would make it.
inline FlowKey draw_key(Random& random, uint8_t family) {
  FlowKey k;
  k.family = family;
  auto address = [&](uint64_t& hi, uint64_t& lo) {
    hi = family == 6 && chance(random, 90) ? 0x20010db800000000ull : 0;
    lo = (family == 4 ? chance(random, 90) ? 0x0a000000u : 0x0b000000u : 0u) + below(random, 9);
  };
  address(k.src_hi, k.src_lo);
  address(k.dst_hi, k.dst_lo);
  k.protocol = std::array<uint8_t, 5>{6, 17, static_cast<uint8_t>(family == 4 ? 1 : 58), 47, 132}[below(random, 5)];
  k.dscp = static_cast<uint8_t>(below(random, 4));
  if (family == 6 && chance(random, 10)) k.bits |= FlowKey::kAfterAh;
  const uint64_t fragment = below(random, 8);
  if (fragment <= 1) k.bits |= FlowKey::kFragment;
  if (fragment == 1) {
    k.bits |= FlowKey::kLaterFragment;
    return k;
  }
  // How many bytes there are behind the IP header.
  const bool tcp = k.protocol == 6, icmp = k.protocol == 1 || k.protocol == 58, ports = !icmp && k.protocol != 47;
  const uint64_t whole = tcp ? 20 : icmp ? 8 : k.protocol == 132 ? 12 : ports ? 8 : 0;
  const uint64_t bytes = whole != 0 && chance(random, 15) ? below(random, whole) : whole;
  if (bytes < whole) k.bits |= FlowKey::kShortL4;
  if (ports && bytes >= 4) {
    k.bits |= FlowKey::kHasPorts;
    k.src_port = static_cast<uint16_t>(below(random, 8));
    k.dst_port = static_cast<uint16_t>(below(random, 8));
  }
  if (tcp && bytes >= 14) k.flags = static_cast<uint16_t>(below(random, 64) << 8);
  if (icmp && bytes >= 1) k.icmp = static_cast<uint16_t>(below(random, 4) << 8);
  if (icmp && bytes >= 2) k.icmp |= static_cast<uint16_t>(below(random, 2));
  if (icmp && bytes == 0) k.bits |= FlowKey::kNoIcmpType;
  if ((tcp && bytes < 14) || (icmp && bytes < 2)) k.bits |= FlowKey::kNoFlags;
  return k;
}

// ---- what it does --------------------------------------------------------------------------------------------------

inline bool inside(const IpPrefix& p, uint64_t hi, uint64_t lo) {
  for (unsigned i = 0; i < p.length; ++i) {
    const unsigned at = (p.address.family == 4 ? 31 : 127) - i;
    const uint64_t a = at >= 64 ? hi >> (at - 64) : lo >> at,
                   b = at >= 64 ? p.address.hi >> (at - 64) : p.address.lo >> at;
    if ((a & 1) != (b & 1)) return false;
  }
  return true;
}

inline bool needs_header(const Condition& c) {
  using Kind = Condition::Kind;
  return c.kind == Kind::kSrcPort || c.kind == Kind::kDstPort || c.kind == Kind::kFlags || c.kind == Kind::kIcmp;
}

inline bool holds(const Model& m, const Condition& c, const FlowKey& k) {
  using Kind = Condition::Kind;
  const bool later = (k.bits & FlowKey::kLaterFragment) != 0;
  const bool ends = !m.iptables && (k.bits & FlowKey::kAfterAh) != 0;
  if (needs_header(c) && ends) return false;
  const bool ports = (k.bits & FlowKey::kHasPorts) != 0;
  const unsigned protocol = ends ? 51 : k.protocol;
  auto in_ranges = [&](unsigned port) {
    for (const auto& [low, high] : c.ranges) {
      if (port >= low && port <= high) return true;
    }
    return false;
  };
  auto in_prefixes = [&](uint64_t hi, uint64_t lo) {
    return std::any_of(c.prefixes.begin(), c.prefixes.end(), [&](const IpPrefix& p) { return inside(p, hi, lo); });
  };
  switch (c.kind) {
    case Kind::kSrc:
      return in_prefixes(k.src_hi, k.src_lo) != c.negated;
    case Kind::kDst:
      return in_prefixes(k.dst_hi, k.dst_lo) != c.negated;
    case Kind::kProtocol:
      return (protocol == c.protocol) != c.negated;
    case Kind::kSrcPort:  // a packet without the header does not match, whatever '!' says
      return ports && k.protocol == c.protocol && in_ranges(k.src_port) != c.negated;
    case Kind::kDstPort:
      return ports && k.protocol == c.protocol && in_ranges(k.dst_port) != c.negated;
    case Kind::kFlags:
      return !later && (k.bits & FlowKey::kNoFlags) == 0 && ((k.flags >> 8 & c.mask) == c.value) != c.negated;
    case Kind::kIcmp:
      return !later && (k.bits & FlowKey::kNoIcmpType) == 0 && ((k.icmp >> 8) == c.value) != c.negated;
    case Kind::kLater:
      return later != c.negated;
    case Kind::kDscp:
      return (k.dscp == c.value) != c.negated;
    case Kind::kState:
      return ((c.states & bit_of(m.state)) != 0) != c.negated;
  }
  return false;
}

// Whether a rule that packets may get to looks at the state.
inline bool looks_at_state(const Model& m, size_t chain = 0) {
  return std::any_of(m.chains[chain].begin(), m.chains[chain].end(), [&](const Rule& r) {
    const bool jumps = r.target == Rule::Target::kJump || r.target == Rule::Target::kGoto;
    return (jumps && looks_at_state(m, r.chain)) ||
           std::any_of(r.conditions.begin(), r.conditions.end(),
                       [](const Condition& c) { return c.kind == Condition::Kind::kState; });
  });
}

enum class Walk { kCameBack, kDecided };

inline Walk walk(const Model& m, size_t chain, const FlowKey& k, Verdict& v) {
  for (const Rule& r : m.chains[chain]) {
    bool matched = true, cut = m.iptables && (k.bits & FlowKey::kShortL4) != 0, needs = false;
    for (const Condition& c : r.conditions) {
      matched &= holds(m, c, k);
      cut &= needs_header(c) || holds(m, c, k);
      needs |= needs_header(c);
    }
    if (cut && needs) {
      v.permit = false;
      return Walk::kDecided;
    }
    if (!matched) continue;
    v.log |= r.log;
    if (r.marks) {
      v.marked = true;
      v.mark = r.mark;
    }
    switch (r.target) {
      case Rule::Target::kNothing:
        break;
      case Rule::Target::kAccept:
      case Rule::Target::kDrop:
        v.permit = r.target == Rule::Target::kAccept;
        return Walk::kDecided;
      case Rule::Target::kReturn:
        return Walk::kCameBack;
      case Rule::Target::kJump:
        if (walk(m, r.chain, k, v) == Walk::kDecided) return Walk::kDecided;
        break;
      case Rule::Target::kGoto:
        return walk(m, r.chain, k, v);
    }
  }
  return Walk::kCameBack;
}

inline Verdict verdict_of(const Model& m, const FlowKey& k) {
  Verdict v;
  if (walk(m, 0, k, v) == Walk::kCameBack) v.permit = !m.drop_policy;
  if (!v.permit) v.marked = false;  // nobody sees it
  if (!v.marked) v.mark = 0;
  v.keep = v.permit && m.state == ConnState::kNew && looks_at_state(m);
  return v;
}

inline Verdict verdict_of(const RuleSet& set, const FlowKey& k) {
  for (const AclRule& rule : set.rules) {
    if (!matches(flatten(rule, 1), k)) continue;
    const bool marked = rule.verb == AclVerb::kMark;
    return {rule.verb != AclVerb::kDeny, rule.log, marked, marked ? rule.mark : 0, rule.keep};
  }
  return {false, false, true, ~0u};  // every chain has a policy: never equal to a model's
}

inline size_t rules_in(const Model& m) {
  size_t n = 1;  // the policy
  for (const auto& chain : m.chains) n += chain.size();
  return n;
}

// Draws models, has them read back from their text by `read`, and compares what both do to packets; of models that look
// at states for each state. No list may be long. The reader of iptables may drop more of the packets that end inside a
// header.
template <typename Print, typename Read>
void compare_with_model(int rounds, bool iptables, bool stateful, Print print, Read read) {
  size_t permits = 0, denies = 0, written = 0, made = 0;
  for (int i = 0; i < rounds; ++i) {
    Random random(static_cast<uint64_t>(i) + 1);
    Model model = draw_model(random, iptables, stateful);
    const std::string text = print(model);
    const bool looks = looks_at_state(model);
    ASSERT_EQ(read(text, StateReading()).ok(), !looks) << text;
    for (const auto& named : kConnStates) {
      if (!stateful && named.value != 0) break;
      model.state = static_cast<ConnState>(named.value);
      bool found = false;
      const Result<RuleSet> set = read(text, StateReading{.state = model.state, .stateful = &found});
      ASSERT_TRUE(set.ok()) << to_string(set.error()) << text;
      ASSERT_TRUE(check_rule_set(*set).ok());
      ASSERT_EQ(found, looks) << text;
      written += rules_in(model);
      made += set->rules.size();
      EXPECT_LE(set->rules.size(), 60 * rules_in(model)) << "seed " << i + 1 << "\n" << text;
      for (int k = 0; k < 300; ++k) {
        const FlowKey key = draw_key(random, model.family);
        const Verdict want = verdict_of(model, key), got = verdict_of(*set, key);
        (want.permit ? permits : denies) += 1;
        if (iptables && (key.bits & FlowKey::kShortL4) != 0 && !got.permit) continue;
        ASSERT_EQ(want, got) << "seed " << i + 1 << ", " << named.name << ", " << want.permit << want.log << want.mark
                             << want.keep << " against " << got.permit << got.log << got.mark << got.keep << "\n"
                             << text;
      }
    }
  }
  EXPECT_LE(made, 20 * written);
  EXPECT_GT(permits, size_t{1000});
  EXPECT_GT(denies, size_t{1000});
}

}  // namespace sluice::filter_model

// Trees of primitives as rules of an access list, where rules can say the same.
#include <algorithm>

#include "elements/ip_filter/pattern.h"
#include "formats/match_builder.h"

namespace sluice {
namespace {

// The regions of one comparison, where rules can say it.
bool test_regions(const PatternStep& s, std::vector<AclRegion>& out) {
  AclRegion r;
  auto holds = [&](uint32_t value) { return ((value & s.mask) - s.low <= s.span) != (s.outside != 0); };
  const uint64_t high = uint64_t{s.low} + s.span;
  std::vector<AclRegion> inside;
  switch (s.source) {
    case PatternSource::kFamily:
      r.only_families(static_cast<uint8_t>((holds(4) ? AclRegion::kIpv4 : 0) | (holds(6) ? AclRegion::kIpv6 : 0)));
      if (r.families != 0) out.push_back(r);
      return true;
    case PatternSource::kProtocol: {
      uint64_t any = 0;
      for (uint32_t p = 0; p < 256; ++p) {
        if (!holds(p)) r.protocols[p / 64] &= ~(uint64_t{1} << p % 64);
      }
      for (uint64_t word : r.protocols) any |= word;
      if (any != 0) out.push_back(r);
      return true;
    }
    case PatternSource::kDscp:
      for (uint32_t d = 0; d < 64; ++d) {
        if (!holds(d)) r.dscp &= ~(uint64_t{1} << d);
      }
      if (r.dscp != 0) out.push_back(r);
      return true;
    case PatternSource::kBits:
      for (size_t i = 0; i < AclRegion::kOccurring.size(); ++i) {
        if (!holds(AclRegion::kOccurring[i])) r.bits &= ~(uint32_t{1} << i);
      }
      if (r.bits != 0) out.push_back(r);
      return true;
    case PatternSource::kSrcPort:
    case PatternSource::kDstPort: {
      if ((s.mask & 0xffff) != 0xffff) return false;
      if (s.low > 65535) break;
      const AclRegion::Range ports{static_cast<uint16_t>(s.low), static_cast<uint16_t>(high > 65535 ? 65535 : high)};
      (s.source == PatternSource::kSrcPort ? r.src_port : r.dst_port) = ports;
      inside.push_back(r);
      break;
    }
    case PatternSource::kTcpFlags: {
      if (s.span != 0) return false;
      const uint32_t mask = s.mask & 0xff;
      r.flags = {static_cast<uint16_t>(s.low << 8), static_cast<uint16_t>(mask << 8)};
      if ((s.low & ~mask) == 0) inside.push_back(r);
      break;
    }
    case PatternSource::kIcmpType:
    case PatternSource::kIcmpCode: {
      if ((s.mask & 0xff) != 0xff) return false;
      const unsigned shift = s.source == PatternSource::kIcmpType ? 8 : 0;
      if (s.low > 255) break;
      for (const IpPrefix& p : prefixes_of_range({0, s.low, 4}, {0, std::min<uint64_t>(high, 255), 4})) {
        r.icmp = {static_cast<uint16_t>(p.address.lo << shift),
                  static_cast<uint16_t>((high_mask32(p.length) & 0xff) << shift)};
        inside.push_back(r);
      }
      break;
    }
    default:
      return false;
  }
  if (s.outside == 0) {
    out = std::move(inside);
    return true;
  }
  out.assign(1, AclRegion{});
  return take_away(out, inside, MatchBuilder::kLimit);
}

}  // namespace

bool PatternList::regions(uint32_t node, std::vector<AclRegion>& out, size_t limit) const {
  const PatternNode& n = nodes_[node];
  out.clear();
  switch (n.kind) {
    case PatternNode::Kind::kConst:
      if (n.value) out.emplace_back();
      return true;
    case PatternNode::Kind::kTest:
      return test_regions(n.test, out);
    case PatternNode::Kind::kPrefix:
      out.emplace_back();
      n.source ? out.back().only_src(n.prefix) : out.back().only_dst(n.prefix);
      return true;
    case PatternNode::Kind::kNot: {
      std::vector<AclRegion> inner;
      if (!regions(n.a, inner, limit)) return false;
      out.emplace_back();
      return take_away(out, inner, limit);
    }
    case PatternNode::Kind::kAnd: {
      std::vector<AclRegion> other;
      return regions(n.a, out, limit) && regions(n.b, other, limit) && keep_only(out, other, limit);
    }
    case PatternNode::Kind::kOr: {
      std::vector<AclRegion> other;
      if (!regions(n.a, out, limit) || !regions(n.b, other, limit)) return false;
      // The longer one stays where it is, so that a long chain of "or" is not copied again with each of its parts.
      if (other.size() > 64 && other.size() > out.size()) out.swap(other);
      out.insert(out.end(), other.begin(), other.end());
      return out.size() <= limit;
    }
    case PatternNode::Kind::kIf: {
      std::vector<AclRegion> condition, yes;
      if (!regions(n.a, condition, limit) || !regions(n.b, yes, limit) || !regions(n.c, out, limit)) return false;
      if (!keep_only(yes, condition, limit) || !take_away(out, condition, limit)) return false;
      out.insert(out.end(), yes.begin(), yes.end());
      return out.size() <= limit;
    }
  }
  return false;
}

std::optional<RuleSet> PatternList::rules(size_t limit) const {
  RuleSet set;
  std::vector<AclRegion> of_pattern;
  AclRule like;
  for (const Pattern& pattern : patterns_) {
    ++like.line;
    like.verb = pattern.output == kDropOutput ? AclVerb::kDeny : AclVerb::kMark;
    like.mark = pattern.output == kDropOutput ? 0 : pattern.output;
    if (!regions(pattern.root, of_pattern, limit)) return std::nullopt;
    for (const AclRegion& region : of_pattern) {
      if (set.rules.size() + rule_count(region) > limit) return std::nullopt;
      append_rules(region, like, set.rules);
    }
  }
  return set;
}

}  // namespace sluice

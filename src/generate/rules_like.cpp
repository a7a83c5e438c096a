#include "generate/rules_like.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>
#include <vector>

#include "generate/random.h"

namespace sluice {
namespace {

constexpr uint32_t kMaxCount = 1'000'000;
constexpr unsigned kKept = 3;    // first bits of an address that stay: 2000::/3, multicast
constexpr unsigned kMoves = 4;   // maps that are tried for a copy
constexpr unsigned kPorts = 16;  // other ports that are tried

// Flips each bit past the first three or not, as a hash of the bits before it says: a permutation of all addresses that
// keeps how many leading bits two of them share (as Xu, Fan, Ammar and Moon's, "Prefix-preserving IP address
// anonymization", Computer Networks 46:2, 2004). Map 0 moves nothing.
IpPrefix moved(const IpPrefix& p, uint64_t map) {
  if (map == 0 || p.length == 0) return p;
  IpPrefix out = p;
  const unsigned base = p.address.family == 4 ? 96 : 0;
  for (unsigned bit = base + kKept; bit < base + p.length; ++bit) {
    const uint64_t hi = p.address.hi & high_mask64(std::min(bit, 64u));
    const uint64_t lo = p.address.lo & high_mask64(bit > 64 ? bit - 64 : 0);
    const uint64_t flip = mix64(map ^ mix64(hi + bit) ^ lo * 0x9fb21c651e98df25ull) & 1;
    (bit < 64 ? out.address.hi : out.address.lo) ^= flip << (63 - bit % 64);
  }
  return out;
}

struct MatchHash {
  size_t operator()(const AclMatchRule& r) const {
    uint64_t words[sizeof r / 8], h = 0;
    std::memcpy(words, &r, sizeof words);
    for (const uint64_t w : words) h = mix64(h ^ w);
    return h;
  }
};
struct SameMatch {
  bool operator()(const AclMatchRule& a, const AclMatchRule& b) const { return same_match(a, b); }
};

class Maker {
 public:
  Maker(const RuleSet& set, const LikeOptions& options) : set_(set), options_(options), random_(options.seed, 13) {
    for (const AclRule& r : set.rules) {
      if (r.src_port_low == r.src_port_high) ports_[0].push_back(r.src_port_low);
      if (r.dst_port_low == r.dst_port_high) ports_[1].push_back(r.dst_port_low);
    }
  }

  bool run(RuleSet& out) {
    const size_t n = set_.rules.size();
    seen_.reserve(size_t{options_.count} * 2);
    std::vector<std::vector<AclRule>> copies(n);
    uint32_t made = 0;
    for (const AclRule& r : set_.rules) seen_.insert(flatten(r, 0));
    for (uint64_t copy = 1; n + made < options_.count; ++copy) {
      // The last copy is a sample of the list.
      size_t wanted = std::min<size_t>(options_.count - n - made, n);
      for (size_t i = 0; i < n && wanted > 0; ++i) {
        if (random_.below(n - i) >= wanted) continue;
        --wanted;
        size_t of = i;
        for (unsigned failures = 0; !add(of, copy, copies); of = random_.below(n)) {
          if (++failures > kMaxFailures) return false;
        }
        ++made;
      }
    }
    for (size_t i = 0; i < n; ++i) {
      out.rules.push_back(set_.rules[i]);
      out.rules.insert(out.rules.end(), copies[i].begin(), copies[i].end());
    }
    return true;
  }

 private:
  static constexpr unsigned kMaxFailures = 1000;

  bool add(size_t of, uint64_t copy, std::vector<std::vector<AclRule>>& copies) {
    AclRule rule = set_.rules[of];
    const auto take = [&] {
      if (!seen_.insert(flatten(rule, 0)).second) return false;
      copies[of].push_back(rule);
      return true;
    };
    for (uint64_t move = 0; move < kMoves; ++move) {
      const uint64_t map = mix64(options_.seed ^ mix64(copy * kMoves + move));
      rule.src = moved(set_.rules[of].src, map);
      rule.dst = moved(set_.rules[of].dst, map);
      if (take()) return true;
    }
    const bool exact[2] = {rule.src_port_low == rule.src_port_high, rule.dst_port_low == rule.dst_port_high};
    for (unsigned i = 0; i < kPorts && (exact[0] || exact[1]); ++i) {
      if (exact[0]) rule.src_port_low = rule.src_port_high = ports_[0][random_.below(ports_[0].size())];
      if (exact[1]) rule.dst_port_low = rule.dst_port_high = ports_[1][random_.below(ports_[1].size())];
      if (take()) return true;
    }
    return false;
  }

  const RuleSet& set_;
  const LikeOptions& options_;
  Random random_;
  std::vector<uint16_t> ports_[2];  // exact ones: source, destination
  std::unordered_set<AclMatchRule, MatchHash, SameMatch> seen_;
};

}  // namespace

Result<RuleSet> generate_rules_like(const RuleSet& set, const LikeOptions& options) {
  if (options.count > kMaxCount) return Error(fmt::format("{} rules: the limit is {}", options.count, kMaxCount));
  if (auto ok = check_rule_set(set); !ok) return std::move(ok).error();
  RuleSet out;
  out.files = set.files;
  const size_t n = set.rules.size();
  if (n == 0 && options.count > 0) return Error("the --like list has no rules");
  out.rules.reserve(options.count);
  if (options.count <= n) {
    // A sample without repetition in the list's order (Knuth, TAOCP 2, 3.4.2, algorithm S).
    Random random(options.seed, 13);
    uint64_t left = options.count;
    for (size_t i = 0; i < n && left > 0; ++i) {
      if (random.below(n - i) >= left) continue;
      out.rules.push_back(set.rules[i]);
      --left;
    }
    return out;
  }
  if (!Maker(set, options).run(out)) return Error("the --like list has no room for so many different rules");
  return out;
}

}  // namespace sluice

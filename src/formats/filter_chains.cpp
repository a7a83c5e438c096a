#include "formats/filter_chains.h"

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxRules = size_t{1} << 20;
constexpr size_t kMaxRegions = 65536;
constexpr size_t kMaxSteps = size_t{1} << 23;

// What has happened to the packets of a region on their way.
struct Effects {
  bool log = false;
  std::optional<uint32_t> mark;
  bool any() const { return log || mark.has_value(); }
};
struct Group {
  AclRegion region;
  Effects effects;
};
using Groups = std::vector<Group>;

class Flattener {
 public:
  Flattener(const std::vector<FilterChain>& chains, uint32_t file, RuleSet& set) : chains_(chains), set_(set) {
    like_.file = file;
    effects_.assign(chains.size(), kUnknown);
  }

  bool run(size_t base, const FilterPolicy& policy) {
    Groups all(1);
    all[0].region.families = policy.families;
    const Groups start = all;
    stack_.push_back(base);
    if (!chain(base, std::move(all))) return false;
    // Packets that reach the policy with an effect first: the last rule is for those without.
    FilterRule last;
    last.line = policy.line;
    last.target = policy.verb == AclVerb::kDeny ? FilterRule::Target::kDrop : FilterRule::Target::kAccept;
    for (const Group& group : back_) {
      if (group.effects.any() && !emit(group, last)) return false;
    }
    return emit(start[0], last);
  }

  std::optional<FlattenProblem> problem;

 private:
  enum : uint8_t { kUnknown, kWalking, kNone, kSome };

  bool fail(const FilterRule& rule, std::string message, std::string expected) {
    problem = FlattenProblem{std::move(message), std::move(expected), rule.at, rule.length};
    return false;
  }
  bool step(const FilterRule& rule, size_t n) {
    steps_ += n;
    return steps_ <= kMaxSteps || fail(rule, "the chains take more steps than are allowed to write out as a list",
                                       "fewer jumps to chains of many rules");
  }

  // Whether packets can come back from the chain with effects.
  bool has_effects(size_t c, size_t depth) {
    if (effects_[c] != kUnknown) return effects_[c] != kNone;  // in a circle: to be safe, yes
    effects_[c] = kWalking;
    bool some = false;
    for (const FilterRule& rule : chains_[c].rules) {
      const bool jumps = rule.target == FilterRule::Target::kJump || rule.target == FilterRule::Target::kGoto;
      if (jumps && depth < kMaxDepth) some |= has_effects(rule.chain, depth + 1);
      const bool goes_on =
          jumps || rule.target == FilterRule::Target::kContinue || rule.target == FilterRule::Target::kReturn;
      some |= goes_on && (rule.log || rule.mark.has_value());
    }
    effects_[c] = some ? kSome : kNone;
    return some;
  }

  bool emit(const Group& group, const FilterRule& rule) {
    if (set_.rules.size() + rule_count(group.region) > kMaxRules) {
      return fail(rule,
                  fmt::format("the chains make more than {} rules when they are written out as a list", kMaxRules),
                  "fewer jumps, negations and returns");
    }
    like_.line = rule.line;
    like_.log = group.effects.log;
    like_.verb = rule.target == FilterRule::Target::kDrop ? AclVerb::kDeny
                 : group.effects.mark                     ? AclVerb::kMark
                                                          : AclVerb::kPermit;
    like_.mark = like_.verb == AclVerb::kMark ? *group.effects.mark : 0;
    append_rules(group.region, like_, set_.rules);
    return true;
  }

  // The packets of `live` that the rule matches, with its effects on them.
  bool hits(const FilterRule& rule, const Groups& live, Groups& out) {
    if (!step(rule, live.size() * rule.match.size() + 1)) return false;
    for (const Group& group : live) {
      for (const AclRegion& match : rule.match) {
        const auto common = intersect(group.region, match);
        if (!common) continue;
        if (out.size() >= kMaxRegions) return too_many(rule);
        Group hit{*common, group.effects};
        hit.effects.log |= rule.log;
        if (rule.mark) hit.effects.mark = rule.mark;
        out.push_back(hit);
      }
    }
    return true;
  }
  // The packets of `live` that it does not match.
  bool misses(const FilterRule& rule, const Groups& live, Groups& out) {
    std::vector<AclRegion> left;
    for (const Group& group : live) {
      left.assign(1, group.region);
      for (const AclRegion& match : rule.match) {
        if (!step(rule, left.size() + 1)) return false;
        if (!take_away(left, {&match, 1}, kMaxRegions)) return too_many(rule);
      }
      for (const AclRegion& region : left) out.push_back({region, group.effects});
      if (out.size() > kMaxRegions) return too_many(rule);
    }
    return true;
  }
  bool too_many(const FilterRule& rule) {
    return fail(rule, fmt::format("the packets that get past this rule make more than {} regions", kMaxRegions),
                "simpler conditions on returns, logs, marks and negations");
  }

  // Writes out chain c for the packets of `live`. Those that come back are in back_; a packet that was decided may be
  // among them too, which does no harm: the rule that decided it stands before all that is written about it later.
  bool chain(size_t c, Groups live) {
    Groups returned;
    for (const FilterRule& rule : chains_[c].rules) {
      if (live.empty()) break;
      switch (rule.target) {
        case FilterRule::Target::kAccept:
        case FilterRule::Target::kDrop: {
          Groups hit;
          if (!hits(rule, live, hit)) return false;
          for (const Group& group : hit) {
            if (!emit(group, rule)) return false;
          }
          break;
        }
        case FilterRule::Target::kContinue: {
          if (!rule.log && !rule.mark) break;
          Groups next;
          if (!hits(rule, live, next) || !misses(rule, live, next)) return false;
          live = std::move(next);
          break;
        }
        case FilterRule::Target::kReturn: {
          Groups next;
          if (!hits(rule, live, returned) || !misses(rule, live, next)) return false;
          live = std::move(next);
          break;
        }
        case FilterRule::Target::kJump:
        case FilterRule::Target::kGoto: {
          Groups hit;
          if (!hits(rule, live, hit)) return false;
          const bool changes = rule.log || rule.mark || has_effects(rule.chain, 0);
          if (!hit.empty()) {
            if (!enter(rule, std::move(hit))) return false;
          } else {
            back_.clear();
          }
          Groups came_back = std::move(back_);
          const bool away = rule.target == FilterRule::Target::kGoto;
          if (!away && !changes) break;  // they go on as they were
          Groups next;
          if (!misses(rule, live, next)) return false;
          Groups& to = away ? returned : next;
          to.insert(to.end(), came_back.begin(), came_back.end());
          if (to.size() > kMaxRegions) return too_many(rule);
          live = std::move(next);
          break;
        }
      }
    }
    returned.insert(returned.end(), live.begin(), live.end());
    back_ = std::move(returned);
    return true;
  }

  bool enter(const FilterRule& rule, Groups hit) {
    for (size_t c : stack_) {
      if (c == rule.chain) {
        return fail(rule, fmt::format("chain '{}' is called from within itself", chains_[rule.chain].name),
                    "chains that do not call each other in a circle");
      }
    }
    if (stack_.size() >= kMaxDepth)
      return fail(rule, fmt::format("jumps are nested deeper than {}", kMaxDepth), "fewer levels");
    stack_.push_back(rule.chain);
    const bool good = chain(rule.chain, std::move(hit));
    stack_.pop_back();
    return good;
  }

  const std::vector<FilterChain>& chains_;
  RuleSet& set_;
  AclRule like_;
  std::vector<uint8_t> effects_;
  std::vector<size_t> stack_;
  Groups back_;
  size_t steps_ = 0;
};

}  // namespace

std::optional<FlattenProblem> flatten_chains(const std::vector<FilterChain>& chains, size_t base,
                                             const FilterPolicy& policy, uint32_t file, RuleSet& set) {
  Flattener flattener(chains, file, set);
  if (flattener.run(base, policy)) return std::nullopt;
  return std::move(flattener.problem);
}

}  // namespace sluice

#include "formats/filter_chains.h"

#include <fmt/format.h>

#include <algorithm>

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
    all[0].region.only_families(policy.families);
    const Groups start = all;
    policy_.line = policy.line;
    policy_.target = policy.verb == AclVerb::kDeny ? FilterRule::Target::kDrop : FilterRule::Target::kAccept;
    stack_.push_back(base);
    if (!chain(base, std::move(all))) return false;
    // The last rule is for packets without an effect that shows; up to the last group with one, all are written.
    size_t groups = back_.size();
    auto shows = [&](const Effects& e) { return e.log || (e.mark && policy.verb != AclVerb::kDeny); };
    while (groups > 0 && !shows(back_[groups - 1].effects)) --groups;
    for (size_t i = 0; i < groups; ++i) {
      if (!emit(back_[i], policy_)) return false;
    }
    return emit(start[0], policy_);
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
    if (!rule.rest) return too_many(rule);
    if (!step(rule, live.size() * rule.rest->size() + 1)) return false;
    for (const Group& group : live) {
      for (const AclRegion& other : *rule.rest) {
        const auto common = intersect(group.region, other);
        if (!common) continue;
        if (out.size() >= kMaxRegions) return too_many(rule);
        out.push_back({*common, group.effects});
      }
    }
    return true;
  }
  bool too_many(const FilterRule& rule) {
    return fail(rule, fmt::format("the packets that get past this rule make more than {} regions", kMaxRegions),
                "simpler conditions on returns, logs, marks and negations");
  }

  bool decide(const Groups& groups, const FilterRule& rule) {
    for (size_t i = 0; i < groups.size(); ++i) {
      // Of few groups those are left out that others before them contain: effects make many of them.
      const auto last = groups.begin() + static_cast<std::ptrdiff_t>(i);
      if (i < 64 &&
          std::any_of(groups.begin(), last, [&](const Group& g) { return contains(g.region, groups[i].region); })) {
        continue;
      }
      if (!emit(groups[i], rule)) return false;
    }
    return true;
  }
  static void put_before(Groups& live, Groups first) {
    first.insert(first.end(), live.begin(), live.end());
    live = std::move(first);
  }

  // Writes out chain c for the packets of `live`. Groups overlap: a packet is in the first one that contains it, as it
  // will meet the first rule that is written about it. So an effect puts groups in front and takes nothing away, and
  // only packets that leave the chain undecided are taken out of the rest. Those that come back are in back_, in
  // order too; a packet that was decided may be among them, which does no harm: what decided it stands before.
  bool chain(size_t c, Groups live) {
    const bool is_base = stack_.size() == 1;  // what comes back from there meets the policy
    Groups returned;
    for (const FilterRule& rule : chains_[c].rules) {
      if (live.empty()) break;
      Groups hit;
      if (!hits(rule, live, hit)) return false;
      switch (rule.target) {
        case FilterRule::Target::kAccept:
        case FilterRule::Target::kDrop:
          if (!decide(hit, rule)) return false;
          break;
        case FilterRule::Target::kContinue:
          if (rule.log || rule.mark) put_before(live, std::move(hit));
          break;
        case FilterRule::Target::kReturn:
          if (!away(rule, is_base, live, std::move(hit), returned)) return false;
          break;
        case FilterRule::Target::kJump:
        case FilterRule::Target::kGoto: {
          if (hit.empty()) break;
          const bool changes = rule.log || rule.mark || has_effects(rule.chain, 0);
          if (!enter(rule, std::move(hit))) return false;
          Groups came_back = std::move(back_);
          if (rule.target == FilterRule::Target::kGoto) {
            if (!away(rule, is_base, live, std::move(came_back), returned)) return false;
          } else if (changes) {
            put_before(live, std::move(came_back));
          }
          break;
        }
      }
      if (live.size() + returned.size() > kMaxRegions) return too_many(rule);
    }
    returned.insert(returned.end(), live.begin(), live.end());
    back_ = std::move(returned);
    return true;
  }

  // Takes the rule's packets out of the chain; `groups` is what is known of those that go back.
  bool away(const FilterRule& rule, bool is_base, Groups& live, Groups groups, Groups& returned) {
    if (is_base) {
      FilterRule decided = policy_;
      decided.line = rule.line;
      return decide(groups, decided);
    }
    Groups next;
    if (!misses(rule, live, next)) return false;
    live = std::move(next);
    returned.insert(returned.end(), groups.begin(), groups.end());
    return true;
  }

  bool enter(const FilterRule& rule, Groups hit) {
    for (size_t c : stack_) {
      if (c == rule.chain) {
        return fail(rule, fmt::format("chain '{}' is called from within itself", chains_[rule.chain].name),
                    "chains that do not call each other in a loop");
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
  FilterRule policy_;
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

#include "formats/filter_chains.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <span>

namespace sluice {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxRules = size_t{1} << 20;
constexpr size_t kMaxGroups = 65536;
constexpr size_t kMaxSteps = size_t{1} << 27;
constexpr size_t kStretchSteps = 128;  // what a stretch of the list counts as

// What makes the list shorter is tried within these limits; without it the list is right as well.
constexpr size_t kNear = 64;                       // groups that one is compared with
constexpr size_t kBefore = 256;                    // regions that are decided before
constexpr size_t kInTheWay = 16;                   // regions
constexpr size_t kDecided = 4096;                  // in between
constexpr size_t kPieces = 4096;                   // of a complement
constexpr size_t kAhead = size_t{1} << 25;         // regions that are looked at for estimates
constexpr size_t kMaxEstimate = size_t{1} << 14;   // rules
constexpr size_t kFew = 4;                         // values of conditions that are looked at one by one
constexpr size_t kSamples = 8;                     // values that are estimated for many
constexpr size_t kMaxClustered = size_t{1} << 14;  // values

// What has happened to the packets of a region on their way.
struct Effects {
  bool log = false;
  std::optional<uint32_t> mark;
  friend bool operator==(const Effects&, const Effects&) = default;
};

// A stretch of the list, which grows at its end and has other stretches before and behind it.
struct Stretch {
  std::vector<AclRule> rules;
  std::vector<AclRegion> decided;  // what the rules are about
};
using Place = std::list<Stretch>::iterator;

// Packets that are not decided yet. `level` says in which of the chains that are being walked they go on; the rules
// about them come to the end of the stretch at `place`.
struct Group {
  AclRegion region;
  Effects effects;
  size_t level = 0;
  Place place;
  bool copy = false;  // another group meets the same rules
  bool fresh = true;  // not looked at by merge()
  // Rules before decide all of it. What is written about it is for whoever looks for rules that can go.
  bool over = false;
};

// The packets of a rule in parts, of which the first that has a packet counts.
struct RulePart {
  std::vector<AclRegion> regions;
  bool hit = false;
};

class Flattener {
 public:
  Flattener(const std::vector<FilterChain>& chains, uint32_t file, RuleSet& set) : chains_(chains), set_(set) {
    like_.file = file;
  }

  bool run(size_t base, const FilterPolicy& policy) {
    AclRegion all;
    all.only_families(policy.families);
    keep_ = policy.keep;
    policy_.line = policy.line;
    policy_.target = policy.verb == AclVerb::kDeny ? FilterRule::Target::kDrop : FilterRule::Target::kAccept;
    list_.emplace_back();
    groups_.push_back({all, {}, 1, list_.begin()});
    if (!walk(base, 0)) return false;
    // The last rule is for all packets of the families. Effects that do not show there are none.
    for (Group& group : groups_) {
      if (policy.verb == AclVerb::kDeny) group.effects.mark.reset();
    }
    for (Group& group : groups_) group.fresh = true;
    groups_.push_back({all, {}, 0, list_.emplace(list_.end())});
    merge(0, groups_.size());
    for (const Group& group : groups_) {
      const bool last = &group == &groups_.back();
      if (!last && (group.over || dead(group.region, group.place))) continue;
      if (!emit(group.region, group.effects, group.place, policy_)) return false;
    }
    for (const Stretch& stretch : list_)
      set_.rules.insert(set_.rules.end(), stretch.rules.begin(), stretch.rules.end());
    return true;
  }

  std::optional<FlattenProblem> problem;

 private:
  using Target = FilterRule::Target;
  // A chain that is being walked: level 1 is the base chain. Packets that leave it undecided go to level `back`; 0 is
  // the policy.
  struct Frame {
    size_t chain = 0, next = 0, back = 0;
  };

  bool fail(const FilterRule& rule, std::string message, std::string expected) {
    problem = FlattenProblem{std::move(message), std::move(expected), rule.at, rule.length};
    return false;
  }
  bool step(const FilterRule& rule, size_t n) {
    steps_ += n;
    return steps_ <= kMaxSteps || fail(rule, "the chains take more steps than are allowed to write out as a list",
                                       "fewer jumps to chains of many rules");
  }

  // ---- the list ----------------------------------------------------------------------------------------------------
  bool emit(const AclRegion& region, const Effects& effects, Place place, const FilterRule& rule) {
    written_ += rule_count(region);
    if (set_.rules.size() + written_ > kMaxRules) {
      return fail(rule,
                  fmt::format("the chains make more than {} rules when they are written out as a list", kMaxRules),
                  "fewer jumps, negations and returns");
    }
    like_.line = rule.line;
    like_.log = effects.log;
    like_.verb = rule.target == Target::kDrop ? AclVerb::kDeny : effects.mark ? AclVerb::kMark : AclVerb::kPermit;
    like_.keep = keep_ && like_.verb != AclVerb::kDeny;
    like_.mark = like_.verb == AclVerb::kMark ? *effects.mark : 0;
    append_rules(region, like_, place->rules);
    place->decided.push_back(region);
    return true;
  }

  // Whether the list up to the end of the stretch is known to decide the whole region.
  bool dead(const AclRegion& region, Place place) {
    for (size_t left = kBefore;; --place) {
      for (auto d = place->decided.rbegin(); d != place->decided.rend(); ++d) {
        if (left-- == 0) return false;
        if (contains(*d, region)) return true;
      }
      if (place == list_.begin() || left-- == 0) return false;
    }
  }
  // Takes from the region what the list up to the end of the stretch decides, where one region is left that makes no
  // more rules. False: nothing is left.
  bool shrink(AclRegion& region, Place place) {
    for (bool again = true; again;) {
      again = false;
      size_t left = kBefore;
      for (Place at = place;; --at) {
        for (auto d = at->decided.rbegin(); d != at->decided.rend() && left != 0; ++d, --left) {
          if (!overlap(*d, region)) continue;
          std::vector<AclRegion> rest;
          subtract(region, *d, rest);
          if (rest.empty()) return false;
          if (rest.size() > 1 || rule_count(rest[0]) > rule_count(region)) continue;
          region = rest[0];
          again = true;
        }
        if (at == list_.begin() || left == 0 || --left == 0) break;
      }
    }
    return true;
  }

  // What stands between the group and one behind it that is in the same state and contains it, and does something else
  // with some of its packets: these packets. Nothing when there is no such group, or all or many are in the way.
  std::optional<std::vector<AclRegion>> in_the_way(size_t i) {
    const Group& group = groups_[i];
    std::vector<AclRegion> found;
    const auto add = [&](const AclRegion& region) {
      const auto common = intersect(region, group.region);
      if (!common || std::any_of(found.begin(), found.end(), [&](const AclRegion& f) { return contains(f, *common); }))
        return true;
      found.push_back(*common);
      return found.size() <= kInTheWay && !contains(*common, group.region);
    };
    const size_t end = std::min(groups_.size(), i + 1 + kNear);
    for (size_t j = i + 1; j < end; ++j) {
      const Group& other = groups_[j];
      const bool same = other.level == group.level && other.effects == group.effects && !other.over;
      if (!same && !add(other.region)) return std::nullopt;
      if (!same || !contains(other.region, group.region)) continue;
      size_t left = kDecided;
      for (Place place = group.place; place != other.place;) {
        ++place;
        if (left-- == 0 || place->decided.size() > left) return std::nullopt;
        left -= place->decided.size();
        for (const AclRegion& region : place->decided) {
          if (!add(region)) return std::nullopt;
        }
      }
      return found;
    }
    return std::nullopt;
  }

  // Of the fresh groups from `first` to before `last`, only those packets stay with which something else would be done
  // if they were left to a group behind. Returns where the groups that stay end.
  size_t merge(size_t first, size_t last) {
    std::vector<Group> kept;
    for (size_t i = first; i < last; ++i) {
      Group& group = groups_[i];
      const auto parts = group.fresh ? in_the_way(i) : std::nullopt;
      group.fresh = false;
      size_t apart = 0;
      if (parts && !parts->empty()) {
        const size_t whole = group.level <= frames_.size() ? ahead(group.region, group.level, kMaxEstimate) : 0;
        for (size_t p = 0; p < parts->size() && apart < whole; ++p)
          apart += ahead((*parts)[p], group.level, kMaxEstimate);
        if (apart >= whole) {
          kept.push_back(std::move(group));
          continue;
        }
      }
      if (!parts) {
        kept.push_back(std::move(group));
        continue;
      }
      for (const AclRegion& part : *parts) {
        kept.push_back(group);
        kept.back().region = part;
      }
    }
    const auto at = groups_.begin() + static_cast<std::ptrdiff_t>(first);
    groups_.insert(groups_.erase(at, at + static_cast<std::ptrdiff_t>(last - first)), kept.begin(), kept.end());
    return first + kept.size();
  }

  // ---- estimates ---------------------------------------------------------------------------------------------------
  // Where packets go on: in a chain from a rule on, and then there.
  struct Next {
    size_t chain, from, depth;
    const Next* then;  // nullptr: the policy
  };
  // Counts, up to `limit`, about how many rules the rest of the chain makes for packets of the region, with those for
  // packets that leave it by a return; true when all others are decided there.
  bool look(const AclRegion& region, const Next& at, size_t limit, size_t& count) {
    const std::vector<FilterRule>& rules = chains_[at.chain].rules;
    for (size_t r = at.from; r < rules.size() && count < limit; ++r) {
      const FilterRule& rule = rules[r];
      if (rule.target == Target::kContinue) continue;
      if ((looked_ += rule.match.size() + 1) > kAhead) return true;
      // What the conditions leave out; many are taken for none.
      std::vector<AclRegion> out;
      bool none = false;
      for (const auto& condition : rule.except) {
        looked_ += condition->size();
        for (size_t i = 0; i < condition->size() && !none && out.size() <= kFew; ++i) {
          if (const auto value = intersect((*condition)[i], region)) out.push_back(*value);
          none = contains((*condition)[i], region);
        }
      }
      if (none) continue;
      for (const AclRegion& match : rule.match) {
        if (count >= limit) break;
        const auto inner = intersect(match, region);
        if (!inner) continue;
        const bool most = contains(match, region), all = rule.except.empty() && most;
        if (rule.target == Target::kAccept || rule.target == Target::kDrop) {
          ++count;
          if (all) return true;
          if (!most) continue;
          // What few values leave out goes on alone.
          if (out.size() > kFew) continue;
          const Next behind{at.chain, r + 1, at.depth, at.then};
          for (const AclRegion& value : out) follow(value, &behind, limit, count);
          return true;
        } else if (rule.target == Target::kReturn) {
          if (all) return false;
          follow(*inner, at.then, limit, count);
        } else if (at.depth < kMaxDepth) {
          const Next behind{at.chain, r + 1, at.depth, at.then};
          const bool away = rule.target == Target::kGoto;
          const bool decided = look(*inner, {rule.chain, 0, at.depth + 1, away ? at.then : &behind}, limit, count);
          if (all && (decided || away)) return decided;
        }
      }
    }
    return false;
  }
  void follow(const AclRegion& region, const Next* at, size_t limit, size_t& count) {
    for (; at != nullptr && count < limit; at = at->then) {
      if (look(region, *at, limit, count)) return;
    }
    ++count;
  }
  // Calls f with where packets of the level go on.
  template <typename F>
  void with_next(size_t level, F&& f) const {
    std::vector<Next> chain;
    for (; level != 0; level = frames_[level - 1].back)
      chain.push_back({frames_[level - 1].chain, frames_[level - 1].next, 0, nullptr});
    for (size_t i = 0; i + 1 < chain.size(); ++i) chain[i].then = &chain[i + 1];
    f(chain.empty() ? nullptr : chain.data());
  }
  // About how many rules are still to be written about packets of the region that go on at the level; at most `limit`.
  size_t ahead(const AclRegion& region, size_t level, size_t limit) {
    size_t count = 0;
    with_next(level, [&](const Next* at) { follow(region, at, limit, count); });
    return std::min(count, limit);
  }
  // The same for packets that the rule, of the chain that is being walked, matches.
  size_t after_hit(const FilterRule& rule, const AclRegion& region) {
    const size_t level = frames_.size();
    switch (rule.target) {
      case Target::kAccept:
      case Target::kDrop:
        return 1;
      case Target::kContinue:
        return ahead(region, level, kMaxEstimate);
      case Target::kReturn:
        return ahead(region, frames_.back().back, kMaxEstimate);
      case Target::kJump:
      case Target::kGoto: {
        size_t count = 0;
        with_next(rule.target == Target::kJump ? level : frames_.back().back, [&](const Next* at) {
          const Next inner{rule.chain, 0, 1, at};
          follow(region, &inner, kMaxEstimate, count);
        });
        return count;
      }
    }
    return 1;
  }

  // ---- one rule ----------------------------------------------------------------------------------------------------
  static size_t count_rules(const std::vector<AclRegion>& regions) {
    size_t n = 0;
    for (const AclRegion& r : regions) n += rule_count(r);
    return n;
  }

  // Values that only source or only destination addresses of one family tell from each other and from the frame, and
  // what is known to be cheaper than a part for each of them: ranges of addresses around several of them.
  struct Clusters {
    AclRegion::Addresses AclRegion::*field = nullptr;
    AclRegion frame;
    std::vector<AclRegion::Addresses> values;    // what they say
    std::vector<AclRegion::Addresses> clusters;  // none: not worth it
  };
  // Takes such values out of `values`. A packet of a value costs `inside` more rules, one near it `outside`.
  template <typename Inside>
  Clusters clusters_of(std::vector<AclRegion>& values, const AclRegion& frame, Inside&& inside, size_t outside) {
    Clusters best;
    if (values.size() < 2 || values.size() > kMaxClustered) return best;
    std::vector<bool> best_in;
    for (const uint8_t family : {AclRegion::kIpv4, AclRegion::kIpv6}) {
      if ((frame.families & family) == 0) continue;
      AclRegion within = frame;
      within.only_families(family);
      for (auto field : {&AclRegion::src, &AclRegion::dst}) {
        Clusters found{field, within, {}, {}};
        std::vector<bool> in(values.size());
        for (size_t i = 0; i < values.size(); ++i) {
          AclRegion wide = values[i];
          wide.*field = within.*field;
          if (!contains(wide, within)) continue;
          const AclRegion::Addresses cut{std::max((values[i].*field).low, (within.*field).low),
                                         std::min((values[i].*field).high, (within.*field).high)};
          if (cut.high < cut.low) continue;
          found.values.push_back(cut);
          in[i] = true;
        }
        if (found.values.size() <= best.values.size()) continue;
        best = std::move(found);
        best_in = std::move(in);
      }
    }
    if (best.values.size() < 2) return {};
    size_t cost = 0, samples = 0;
    for (size_t i = 0; i < best.values.size(); i += (best.values.size() + kSamples - 1) / kSamples, ++samples) {
      AclRegion one = best.frame;
      one.*best.field = best.values[i];
      cost += inside(one);
    }
    cost = std::max<size_t>(1, cost / samples);
    best.clusters = cluster_addresses(best.values, best.frame.families == AclRegion::kIpv4 ? 4 : 6, cost, outside);
    if (best.clusters.empty()) return {};
    for (size_t i = values.size(); i-- > 0;) {
      if (best_in[i]) values.erase(values.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return best;
  }
  // Two parts: what the clusters have besides their values, of `regions`; and the clusters.
  static void add_clusters(const Clusters& c, const std::vector<AclRegion>& regions, bool values_hit,
                           std::vector<RulePart>& parts) {
    RulePart near{{}, !values_hit}, whole{{}, values_hit};
    std::vector<AclRegion> values;
    for (const AclRegion::Addresses& v : c.values) {
      values.push_back(c.frame);
      values.back().*c.field = v;
    }
    for (const AclRegion::Addresses& range : c.clusters) {
      AclRegion cluster = c.frame;
      cluster.*c.field = range;
      whole.regions.push_back(cluster);
      for (const AclRegion& region : regions) {
        const auto common = intersect(cluster, region);
        if (!common) continue;
        std::vector<AclRegion> left{*common};
        if (take_away(left, values, kMaxGroups)) near.regions.insert(near.regions.end(), left.begin(), left.end());
      }
    }
    parts.push_back(std::move(near));
    parts.push_back(std::move(whole));
  }

  // How to tell packets of the frame that the rule matches from others. For each condition the cheaper of two: what it
  // leaves out as a part of its own, which goes on; or its complement in what the rule matches.
  std::vector<RulePart> parts_of(const FilterRule& rule, const AclRegion& frame) {
    std::vector<AclRegion> hit;
    for (const AclRegion& match : rule.match) {
      if (const auto common = intersect(match, frame)) hit.push_back(*common);
    }
    std::vector<RulePart> parts;
    const size_t level = frames_.size();
    if (rule.except.empty()) {
      if (rule.target == Target::kReturn && hit.size() > 1) {
        const auto back = [&](const AclRegion& r) { return after_hit(rule, r); };
        const Clusters clusters = clusters_of(hit, frame, back, ahead(frame, level, kMaxEstimate));
        if (!clusters.clusters.empty()) {
          parts.push_back({std::move(hit), true});
          // A cluster may be wider than the frame.
          add_clusters(clusters, {AclRegion()}, true, parts);
          return parts;
        }
      }
      parts.push_back({std::move(hit), true});
      return parts;
    }
    const size_t each_hit = after_hit(rule, frame);
    const auto on = [&](const AclRegion& r) { return ahead(r, level, kMaxEstimate); };
    RulePart misses;
    Clusters clusters;
    for (const auto& condition : rule.except) {
      std::vector<AclRegion> values;
      for (const AclRegion& value : *condition) {
        if (const auto common = intersect(value, frame)) values.push_back(*common);
      }
      if (values.empty()) continue;
      std::vector<AclRegion> pieces = hit;
      if (values.size() <= kPieces && take_away(pieces, values, kPieces)) {
        const size_t before = count_rules(hit), now = count_rules(pieces);
        const size_t more = now <= before ? 0 : (now - before) * each_hit;
        // Each group is looked at by each rule behind.
        size_t apart = values.size() * (groups_.size() / kNear);
        for (size_t i = 0; i < values.size() && apart < more; ++i) apart += on(values[i]);
        if (more <= apart) {
          hit = std::move(pieces);
          continue;
        }
      }
      if (clusters.clusters.empty()) clusters = clusters_of(values, frame, on, each_hit * hit.size());
      misses.regions.insert(misses.regions.end(), values.begin(), values.end());
    }
    if (hit.empty()) return parts;
    parts.push_back(std::move(misses));
    if (!clusters.clusters.empty()) add_clusters(clusters, hit, false, parts);
    parts.push_back({std::move(hit), true});
    return parts;
  }

  // The smallest region around the packets that the groups have and the rule may match; nothing when there are none.
  static std::optional<AclRegion> frame_of(const FilterRule& rule, std::span<const Group> groups) {
    std::optional<AclRegion> frame;
    for (const Group& group : groups) {
      for (const AclRegion& match : rule.match) {
        if (const auto common = intersect(group.region, match)) frame = frame ? hull(*frame, *common) : *common;
      }
    }
    return frame;
  }
  static Effects with(Effects effects, const FilterRule& rule) {
    effects.log |= rule.log;
    if (rule.mark) effects.mark = rule.mark;
    return effects;
  }

  // What of the groups no part took away stands behind.
  void keep_rest(std::span<const Group> run, const std::vector<bool>& gone, const std::vector<bool>& over, bool decides,
                 Place place, std::vector<Group>& made) {
    for (size_t g = 0; g < run.size(); ++g) {
      if (gone[g] && (!over[g] || run[g].copy)) continue;
      made.push_back(run[g]);
      made.back().place = place;
      if (decides && run[g].copy && !shrink(made.back().region, place)) {
        made.pop_back();
        continue;
      }
      made.back().over |= over[g];
    }
  }

  // Applies the rule to the groups from `i` to before `end`, which stand at one place, in order; returns where what
  // they have become ends, nothing after a problem.
  std::optional<size_t> apply(const FilterRule& rule, size_t i, size_t end) {
    const std::span<const Group> run(groups_.data() + i, end - i);
    if (!step(rule, run.size() * rule.match.size() + 1)) return std::nullopt;
    const bool stays = rule.target == Target::kContinue;
    if (stays &&
        std::all_of(run.begin(), run.end(), [&](const Group& g) { return with(g.effects, rule) == g.effects; }))
      return end;
    const auto frame = frame_of(rule, run);
    if (!frame) return end;
    const std::vector<RulePart> parts = parts_of(rule, *frame);

    const Frame& here = frames_.back();
    const size_t level = frames_.size();
    const bool decides = rule.target == Target::kAccept || rule.target == Target::kDrop ||
                         (rule.target == Target::kReturn && here.back == 0);
    const bool jumps = rule.target == Target::kJump || rule.target == Target::kGoto;
    FilterRule verdict = rule.target == Target::kReturn ? policy_ : FilterRule();
    verdict.line = rule.line;
    if (rule.target != Target::kReturn) verdict.target = rule.target;
    const size_t to = stays ? level : rule.target == Target::kReturn ? here.back : level + 1;

    // Each part has a stretch of its own, in order, and then what is in none. Effects alone take nothing away and
    // decide nothing, so that there the order of the groups says enough.
    Place place = groups_[i].place;
    bool used = false;
    auto next_place = [&] {
      if (used && !stays) {
        place = list_.emplace(std::next(place));
        steps_ += kStretchSteps;
      }
      used = true;
    };
    std::vector<Group> made;
    std::vector<bool> gone(run.size()), over(run.size());
    for (const RulePart& part : parts) {
      const size_t first = made.size();
      bool any = false;
      for (size_t g = 0; g < run.size(); ++g) {
        if (run[g].over && !(part.hit && (decides || jumps))) continue;
        if (!step(rule, part.regions.size())) return std::nullopt;
        for (size_t r = 0; r < part.regions.size() && !gone[g]; ++r) {
          const auto common = intersect(run[g].region, part.regions[r]);
          if (!common) continue;
          gone[g] = !run[g].over && contains(part.regions[r], run[g].region);
          over[g] = gone[g] && part.hit && decides;
          // What an earlier one of the same part contains is there already.
          const size_t from = std::max(first, made.size() - std::min(made.size(), kNear));
          if (std::any_of(made.begin() + static_cast<std::ptrdiff_t>(from), made.end(),
                          [&](const Group& m) { return contains(m.region, *common); }))
            continue;
          if (!any) next_place();
          any = true;
          const bool copy = run[g].copy || !part.hit || (rule.target == Target::kReturn && !gone[g]);
          Group group{*common, run[g].effects, level, place, copy, true, run[g].over};
          if (part.hit) {
            group.effects = with(group.effects, rule);
            group.level = to;
          }
          made.push_back(std::move(group));
          if (made.size() + groups_.size() > kMaxGroups && !decides) return too_many(rule);
          if (made.size() > kMaxRules) return too_many(rule);
        }
      }
      if (!any) continue;
      if (part.hit && decides) {
        for (size_t m = first; m < made.size(); ++m) {
          if (made[m].copy && dead(made[m].region, place)) continue;
          if (!emit(made[m].region, made[m].effects, place, verdict)) return std::nullopt;
        }
        made.resize(first);
        used = false;  // others may stand behind the rules
      } else if (!part.hit || rule.target == Target::kReturn) {
        made.erase(std::remove_if(made.begin() + static_cast<std::ptrdiff_t>(first), made.end(),
                                  [&](Group& m) { return m.copy && !shrink(m.region, place); }),
                   made.end());
      }
    }
    next_place();
    keep_rest(run, gone, over, decides, place, made);
    const auto at = groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(i),
                                  groups_.begin() + static_cast<std::ptrdiff_t>(end));
    groups_.insert(at, made.begin(), made.end());
    if (groups_.size() > kMaxGroups) return too_many(rule);
    // What does not go into a chain is compared with what comes back from it.
    return jumps ? i + made.size() : merge(i, i + made.size());
  }
  std::nullopt_t too_many(const FilterRule& rule) {
    fail(rule, fmt::format("the packets that get past this rule make more than {} groups", kMaxGroups),
         "simpler conditions on returns, logs, marks and negations");
    return std::nullopt;
  }

  // ---- chains ------------------------------------------------------------------------------------------------------
  bool apply_to_all(const FilterRule& rule) {
    const size_t level = frames_.size();
    if (rule.match.empty()) return true;
    AclRegion around = rule.match[0];
    for (const AclRegion& match : rule.match) around = hull(around, match);
    if (!step(rule, groups_.size() / kNear + rule.match.size())) return false;
    for (size_t i = 0; i < groups_.size();) {
      if (groups_[i].level != level || !overlap(groups_[i].region, around)) {
        ++i;
        continue;
      }
      size_t end = i;
      while (end < groups_.size() && groups_[end].level == level && groups_[end].place == groups_[i].place) ++end;
      const auto next = apply(rule, i, end);
      if (!next) return false;
      i = *next;
    }
    return true;
  }
  bool any_at(size_t level) const {
    return std::any_of(groups_.begin(), groups_.end(), [&](const Group& g) { return g.level == level; });
  }

  // Walks the chain with the groups of the level behind the last; what comes out of it undecided is at level `back`.
  bool walk(size_t c, size_t back) {
    frames_.push_back({c, 0, back});
    const size_t level = frames_.size();
    const std::vector<FilterRule>& rules = chains_[c].rules;
    for (size_t r = 0; r < rules.size() && any_at(level); r = frames_.back().next) {
      const FilterRule* rule = &rules[r];
      size_t& next = frames_.back().next;
      next = r + 1;
      // Returns that follow each other are one.
      FilterRule returns;
      const auto plain = [](const FilterRule& f) {
        return f.target == Target::kReturn && f.except.empty() && !f.log && !f.mark;
      };
      if (back != 0 && plain(*rule) && next < rules.size() && plain(rules[next])) {
        returns = *rule;
        for (; next < rules.size() && plain(rules[next]); ++next)
          returns.match.insert(returns.match.end(), rules[next].match.begin(), rules[next].match.end());
        rule = &returns;
      }
      if (!apply_to_all(*rule)) return false;
      if ((rule->target == Target::kJump || rule->target == Target::kGoto) && any_at(level + 1) && !enter(*rule, back))
        return false;
    }
    frames_.pop_back();
    for (Group& group : groups_) {
      if (group.level != level) continue;
      group.level = back;
      group.fresh = true;
    }
    const auto fresh = [](const Group& group) { return group.fresh; };
    const auto first = std::find_if(groups_.begin(), groups_.end(), fresh);
    const auto last = std::find_if(groups_.rbegin(), groups_.rend(), fresh).base();
    if (back != 0 && first < last)
      merge(static_cast<size_t>(first - groups_.begin()), static_cast<size_t>(last - groups_.begin()));
    return true;
  }

  bool enter(const FilterRule& rule, size_t back) {
    for (const Frame& frame : frames_) {
      if (frame.chain == rule.chain) {
        return fail(rule, fmt::format("chain '{}' is called from within itself", chains_[rule.chain].name),
                    "chains that do not call each other in a loop");
      }
    }
    if (frames_.size() >= kMaxDepth)
      return fail(rule, fmt::format("jumps are nested deeper than {}", kMaxDepth), "fewer levels");
    const bool away = rule.target == Target::kGoto;
    if (!walk(rule.chain, away ? back : frames_.size())) return false;
    if (!away || back != 0) return true;
    // Out of the base chain: the policy, by way of this rule.
    FilterRule verdict = policy_;
    verdict.line = rule.line;
    for (const Group& group : groups_) {
      if (group.level == 0 && !group.over && !dead(group.region, group.place) &&
          !emit(group.region, group.effects, group.place, verdict))
        return false;
    }
    std::erase_if(groups_, [](const Group& group) { return group.level == 0; });
    return true;
  }

  const std::vector<FilterChain>& chains_;
  RuleSet& set_;
  AclRule like_;
  bool keep_ = false;
  FilterRule policy_;
  std::list<Stretch> list_;
  // In the order of the list: a packet belongs to the first group that has it.
  std::vector<Group> groups_;
  std::vector<Frame> frames_;
  size_t written_ = 0, steps_ = 0, looked_ = 0;
};

}  // namespace

std::optional<FlattenProblem> flatten_chains(const std::vector<FilterChain>& chains, size_t base,
                                             const FilterPolicy& policy, uint32_t file, RuleSet& set) {
  Flattener flattener(chains, file, set);
  if (flattener.run(base, policy)) return std::nullopt;
  return std::move(flattener.problem);
}

}  // namespace sluice

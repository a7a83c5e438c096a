#include "tables/acl/shadow.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "tables/acl/region.h"

namespace sluice {
namespace {

constexpr unsigned kDraws = 24;

// The rules of one family by one of their prefixes: which of them meet a prefix.
class PrefixIndex {
 public:
  using Field = AclRegion::Prefix AclRegion::*;

  PrefixIndex(const std::vector<AclRegion>& regions, std::vector<uint32_t> rules, Field field)
      : regions_(regions), rules_(std::move(rules)), field_(field) {
    std::sort(rules_.begin(), rules_.end(), [&](uint32_t a, uint32_t b) {
      const Prefix &x = regions_[a].*field_, &y = regions_[b].*field_;
      return std::tuple(x.hi, x.lo, x.length, a) < std::tuple(y.hi, y.lo, y.length, b);
    });
    for (uint32_t rule : rules_) lengths_[(regions_[rule].*field_).length] = true;
  }

  // Calls f(first, last) for runs of rules that together are exactly those that meet the prefix.
  template <typename F>
  void each_run(const AclRegion& region, F&& f) const {
    const Prefix prefix = region.*field_;
    // Those inside of it, itself among them, and shorter ones that begin where it begins.
    Prefix end = prefix;
    end.hi |= ~high_mask64(std::min<unsigned>(prefix.length, 64));
    end.lo |= ~high_mask64(prefix.length > 64 ? prefix.length - 64u : 0);
    auto below = [&](uint32_t rule, const Prefix& p) {
      const Prefix& x = regions_[rule].*field_;
      return std::tuple(x.hi, x.lo, x.length) < std::tuple(p.hi, p.lo, p.length);
    };
    auto above = [&](const Prefix& p, uint32_t rule) {
      const Prefix& x = regions_[rule].*field_;
      return std::tuple(p.hi, p.lo, p.length) < std::tuple(x.hi, x.lo, x.length);
    };
    Prefix begin = prefix;
    begin.length = 0;
    end.length = 255;
    const auto first = std::lower_bound(rules_.begin(), rules_.end(), begin, below);
    f(first, std::upper_bound(first, rules_.end(), end, above));
    // Those around it that begin before it.
    for (unsigned length = 0; length < prefix.length; ++length) {
      if (!lengths_[length]) continue;
      Prefix around = prefix;
      around.length = static_cast<uint8_t>(length);
      around.hi &= high_mask64(std::min(length, 64u));
      around.lo &= high_mask64(length > 64 ? length - 64 : 0);
      if (around.hi == prefix.hi && around.lo == prefix.lo) continue;
      const auto at = std::lower_bound(rules_.begin(), rules_.end(), around, below);
      f(at, std::upper_bound(at, rules_.end(), around, above));
    }
  }

 private:
  using Prefix = AclRegion::Prefix;
  const std::vector<AclRegion>& regions_;
  std::vector<uint32_t> rules_;
  Field field_;
  std::array<bool, 256> lengths_{};
};

class Finder {
 public:
  Finder(const AclRulesView& rules, const AclActionsView& actions, const ShadowOptions& options)
      : actions_(actions), options_(options) {
    std::vector<uint32_t> of_family[2];
    for (uint32_t r = 0; r < rules.size(); ++r) {
      const auto region = region_of(rules.rule(r + 1));
      regions_.push_back(region.value_or(AclRegion{}));
      state_.push_back(region ? State::kKept : State::kImpossible);
      if (!region) continue;
      if (region->families == 3) {
        either_.push_back(r);
      } else {
        of_family[region->families == AclRegion::kIpv4 ? 0 : 1].push_back(r);
      }
    }
    for (const auto& list : of_family) {
      by_src_.emplace_back(regions_, list, &AclRegion::src);
      by_dst_.emplace_back(regions_, list, &AclRegion::dst);
    }
  }

  std::vector<RuleFinding> run(const std::function<bool(size_t)>& progress) {
    const auto count = static_cast<uint32_t>(regions_.size());
    bool stopped = false;
    // First what nothing reaches: all of it can go, so that the second question is asked without it.
    for (const bool redundant : {false, true}) {
      for (uint32_t r = 0; r < count; ++r) {
        if (progress && !stopped && r % 256 == 0) stopped = !progress((redundant ? count : 0) / 2 + r / 2);
        if (state_[r] == State::kImpossible && !redundant) {
          report(r, RuleFinding::Kind::kImpossible, {});
        } else if (state_[r] == State::kKept) {
          steps_left_ = stopped ? 0 : std::min(options_.rule_steps, options_.steps - spent_);
          const uint64_t before = steps_left_;
          redundant ? look_below(r) : look_above(r);
          spent_ += before - steps_left_;
        }
      }
    }
    std::sort(findings_.begin(), findings_.end(),
              [](const RuleFinding& a, const RuleFinding& b) { return a.rule < b.rule; });
    return std::move(findings_);
  }

 private:
  enum class State : uint8_t { kKept, kGone, kImpossible, kUndecided };

  bool spend(uint64_t n) {
    if (steps_left_ < n) {
      steps_left_ = 0;
      return false;
    }
    steps_left_ -= n;
    return true;
  }

  AclAction action(uint32_t r) const { return actions_.action(r + 1); }

  void report(uint32_t r, RuleFinding::Kind kind, const std::vector<uint32_t>& by) {
    RuleFinding f;
    f.rule = r + 1;
    f.kind = kind;
    f.by_count = static_cast<uint32_t>(by.size());
    for (size_t i = 0; i < by.size() && i < RuleFinding::kMaxBy; ++i) {
      f.by.push_back(by[i] + 1);
      f.conflict |= kind == RuleFinding::Kind::kShadowed && action(by[i]) != action(r);
    }
    findings_.push_back(std::move(f));
    state_[r] = kind == RuleFinding::Kind::kUndecided ? State::kUndecided : State::kGone;
  }

  // The rules that are still there and meet rule r, in order. False: past the limits.
  bool meeting(uint32_t r, std::vector<uint32_t>& out) {
    out.clear();
    const AclRegion& region = regions_[r];
    auto take = [&](auto first, auto last) {
      if (!spend(static_cast<uint64_t>(last - first))) return;
      for (auto it = first; it != last; ++it) {
        if (*it != r && state_[*it] != State::kGone && intersect(regions_[*it], region)) out.push_back(*it);
      }
    };
    take(either_.begin(), either_.end());
    for (size_t f = 0; f < 2; ++f) {
      if ((region.families >> f & 1) == 0) continue;
      uint64_t sizes[2] = {0, 0};
      by_src_[f].each_run(region, [&](auto a, auto b) { sizes[0] += static_cast<uint64_t>(b - a); });
      by_dst_[f].each_run(region, [&](auto a, auto b) { sizes[1] += static_cast<uint64_t>(b - a); });
      (sizes[0] < sizes[1] ? by_src_ : by_dst_)[f].each_run(region, take);
    }
    std::sort(out.begin(), out.end());
    return steps_left_ != 0;
  }

  // Takes the rules in `by` away from `pieces`; those that took something go to `used`. False: past the limits.
  bool subtract_all(std::vector<AclRegion>& pieces, const std::vector<uint32_t>& by, std::vector<uint32_t>* used) {
    std::vector<AclRegion> left;
    for (uint32_t j : by) {
      if (pieces.empty()) return true;
      if (!spend(pieces.size())) return false;
      bool took = false;
      left.clear();
      for (const AclRegion& piece : pieces) {
        if (!intersect(piece, regions_[j])) {
          left.push_back(piece);
          continue;
        }
        took = true;
        subtract(piece, regions_[j], left);
        if (left.size() > options_.pieces) return false;
      }
      pieces.swap(left);
      if (took && used != nullptr) used->push_back(j);
    }
    return true;
  }

  void look_above(uint32_t r) {
    if (!meeting(r, met_)) return report(r, RuleFinding::Kind::kUndecided, {});
    std::vector<uint32_t> above(met_.begin(), std::lower_bound(met_.begin(), met_.end(), r));
    const AclRegion& region = regions_[r];
    if (!spend(above.size() * (kDraws + 1))) return report(r, RuleFinding::Kind::kUndecided, {});
    for (uint32_t j : above) {
      if (contains(regions_[j], region)) return report(r, RuleFinding::Kind::kShadowed, {j});
    }
    for (unsigned draw = 0; draw < kDraws; ++draw) {
      if (first_of(above, key_of(region, draw)) == nullptr) return;  // a packet of its own
    }
    std::vector<AclRegion> pieces{region};
    std::vector<uint32_t> used;
    if (!subtract_all(pieces, above, &used)) return report(r, RuleFinding::Kind::kUndecided, {});
    if (pieces.empty()) report(r, RuleFinding::Kind::kShadowed, used);
  }

  const uint32_t* first_of(const std::vector<uint32_t>& list, const FlowKey& key) const {
    for (const uint32_t& j : list) {
      if (contains(regions_[j], key)) return &j;
    }
    return nullptr;
  }

  void look_below(uint32_t r) {
    const AclAction own = action(r);
    AclAction unmatched;
    unmatched.verb = options_.unmatched;
    if (!meeting(r, met_)) return report(r, RuleFinding::Kind::kUndecided, {});
    const auto middle = std::lower_bound(met_.begin(), met_.end(), r);
    const std::vector<uint32_t> above(met_.begin(), middle), below(middle, met_.end());
    const bool a_twin =
        own == unmatched || std::any_of(below.begin(), below.end(), [&](uint32_t j) { return action(j) == own; });
    if (!a_twin) return;
    const AclRegion& region = regions_[r];
    if (!spend(met_.size() * kDraws)) return report(r, RuleFinding::Kind::kUndecided, {});
    for (unsigned draw = 0; draw < kDraws; ++draw) {
      const FlowKey key = key_of(region, draw);
      if (first_of(above, key) != nullptr) continue;
      const uint32_t* next = first_of(below, key);
      if ((next != nullptr ? action(*next) : unmatched) != own) return;  // its verdict would change
    }
    std::vector<AclRegion> pieces{region};
    if (!subtract_all(pieces, above, nullptr)) return report(r, RuleFinding::Kind::kUndecided, {});
    std::vector<uint32_t> used;
    std::vector<uint32_t> one(1);
    for (uint32_t j : below) {
      if (pieces.empty()) break;
      if (action(j) != own) {
        if (!spend(pieces.size())) return report(r, RuleFinding::Kind::kUndecided, {});
        for (const AclRegion& piece : pieces) {
          if (intersect(piece, regions_[j])) return;
        }
        continue;
      }
      one[0] = j;
      if (!subtract_all(pieces, one, &used)) return report(r, RuleFinding::Kind::kUndecided, {});
    }
    if (pieces.empty() || own == unmatched) report(r, RuleFinding::Kind::kRedundant, used);
  }

  const AclActionsView& actions_;
  const ShadowOptions& options_;
  std::vector<AclRegion> regions_;
  std::vector<State> state_;
  std::vector<uint32_t> either_;  // rules of both families
  std::vector<PrefixIndex> by_src_, by_dst_;
  std::vector<uint32_t> met_;
  std::vector<RuleFinding> findings_;
  uint64_t steps_left_ = 0;
  uint64_t spent_ = 0;
};

}  // namespace

std::vector<RuleFinding> find_shadowed(const AclRulesView& rules, const AclActionsView& actions,
                                       const ShadowOptions& options, const std::function<bool(size_t)>& progress) {
  return Finder(rules, actions, options).run(progress);
}

}  // namespace sluice

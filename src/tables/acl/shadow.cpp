#include "tables/acl/shadow.h"

#include <algorithm>
#include <array>
#include <compare>
#include <utility>

#include "tables/acl/region.h"

namespace sluice {
namespace {

constexpr unsigned kDraws = 24;
constexpr unsigned kMaxDepth = 1000;
constexpr size_t kTried = 16;  // rules that are tried before one cuts a region

// The rules of one family by one of their prefixes: which of them meet a prefix.
struct Prefix {
  uint64_t hi = 0, lo = 0;
  unsigned length = 0;
  friend auto operator<=>(const Prefix&, const Prefix&) = default;
};
class PrefixIndex {
 public:
  void add(uint32_t rule, const Prefix& prefix) { entries_.emplace_back(prefix, rule); }
  void settle() {
    std::sort(entries_.begin(), entries_.end());
    for (const auto& [prefix, rule] : entries_) lengths_[prefix.length] = true;
  }

  // Calls f(first, last) for runs of entries that together are exactly those that meet the prefix.
  template <typename F>
  void each_run(const Prefix& prefix, F&& f) const {
    // Those inside of it, itself among them, and shorter ones that begin where it begins.
    Prefix begin = prefix, end = prefix;
    begin.length = 0;
    end.hi |= ~high_mask64(std::min(prefix.length, 64u));
    end.lo |= ~high_mask64(prefix.length > 64 ? prefix.length - 64 : 0);
    end.length = 255;
    f(lower(begin), lower(end));
    // Those around it that begin before it.
    for (unsigned length = 0; length < prefix.length; ++length) {
      if (!lengths_[length]) continue;
      Prefix around{prefix.hi & high_mask64(std::min(length, 64u)),
                    prefix.lo & high_mask64(length > 64 ? length - 64 : 0), length};
      if (around.hi == prefix.hi && around.lo == prefix.lo) continue;
      const auto first = lower(around);
      ++around.length;
      f(first, lower(around));
    }
  }

 private:
  using Entry = std::pair<Prefix, uint32_t>;
  std::vector<Entry>::const_iterator lower(const Prefix& prefix) const {
    return std::lower_bound(entries_.begin(), entries_.end(), prefix,
                            [](const Entry& e, const Prefix& p) { return e.first < p; });
  }
  std::vector<Entry> entries_;
  std::array<bool, 256> lengths_{};
};

class Finder {
 public:
  Finder(const AclRulesView& rules, const AclActionsView& actions, const ShadowOptions& options)
      : actions_(actions), options_(options) {
    for (uint32_t r = 0; r < rules.size(); ++r) {
      const AclMatchRule& rule = rules.rule(r + 1);
      const auto region = region_of(rule);
      regions_.push_back(region.value_or(AclRegion{}));
      state_.push_back(region ? State::kKept : State::kImpossible);
      // With the bits past its length cut off.
      src_.push_back({regions_.back().src.low.hi, regions_.back().src.low.lo, rule.src_length});
      dst_.push_back({regions_.back().dst.low.hi, regions_.back().dst.low.lo, rule.dst_length});
      if (!region) continue;
      if (region->families == 3) {
        either_.push_back(r);
      } else {
        const size_t f = region->families == AclRegion::kIpv4 ? 0 : 1;
        by_src_[f].add(r, src_[r]);
        by_dst_[f].add(r, dst_[r]);
      }
    }
    for (size_t f = 0; f < 2; ++f) {
      by_src_[f].settle();
      by_dst_[f].settle();
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
    auto take = [&](uint32_t other) {
      if (other != r && state_[other] != State::kGone && intersect(regions_[other], region)) out.push_back(other);
    };
    if (!spend(either_.size())) return false;
    for (uint32_t other : either_) take(other);
    for (size_t f = 0; f < 2; ++f) {
      if ((region.families >> f & 1) == 0) continue;
      uint64_t by_src = 0, by_dst = 0;
      by_src_[f].each_run(src_[r], [&](auto first, auto last) { by_src += static_cast<uint64_t>(last - first); });
      by_dst_[f].each_run(dst_[r], [&](auto first, auto last) { by_dst += static_cast<uint64_t>(last - first); });
      if (!spend(std::min(by_src, by_dst))) return false;
      (by_src < by_dst ? by_src_ : by_dst_)[f].each_run(by_src < by_dst ? src_[r] : dst_[r],
                                                        [&](auto first, auto last) {
                                                          for (; first != last; ++first) take(first->second);
                                                        });
    }
    std::sort(out.begin(), out.end());
    return true;
  }

  enum class Answer : uint8_t { kYes, kNo, kLimit };

  // Whether every packet of `piece` that no rule of `above` takes meets, of `below`, first a rule that acts as `own`
  // does; without `own`, whether there is no such packet. A piece that a rule of `above` contains is done with; else
  // one of them cuts it, and what it leaves is asked about. Rules that were needed are put into used_.
  Answer look(const AclRegion& piece, const std::vector<uint32_t>& above, const std::vector<uint32_t>& below,
              const AclAction* own, unsigned depth) {
    if (!spend(above.size() + below.size() + 1) || depth > kMaxDepth) return Answer::kLimit;
    std::vector<uint32_t> cutting;
    for (uint32_t j : above) {
      if (contains(regions_[j], piece)) {
        if (own == nullptr) used_.push_back(j);
        return Answer::kYes;
      }
      if (intersect(regions_[j], piece)) cutting.push_back(j);
    }
    std::vector<uint32_t> deciding;
    for (uint32_t j : below) {
      if (intersect(regions_[j], piece)) deciding.push_back(j);
    }
    std::vector<AclRegion> left;
    if (!cutting.empty()) {
      // The rule that leaves the fewest pieces.
      std::vector<AclRegion> tried;
      uint32_t best = cutting[0];
      if (!spend(std::min<size_t>(cutting.size(), kTried))) return Answer::kLimit;
      for (size_t i = 0; i < cutting.size() && i < kTried; ++i) {
        tried.clear();
        subtract(piece, regions_[cutting[i]], tried);
        if (!left.empty() && tried.size() >= left.size()) continue;
        left.swap(tried);
        best = cutting[i];
      }
      if (own == nullptr) used_.push_back(best);
    } else {
      if (own == nullptr) return Answer::kNo;
      if (deciding.empty()) {
        AclAction unmatched;
        unmatched.verb = options_.unmatched;
        return *own == unmatched ? Answer::kYes : Answer::kNo;
      }
      if (action(deciding[0]) != *own) return Answer::kNo;
      used_.push_back(deciding[0]);
      subtract(piece, regions_[deciding[0]], left);
    }
    for (const AclRegion& rest : left) {
      const Answer answer = look(rest, cutting, deciding, own, depth + 1);
      if (answer != Answer::kYes) return answer;
    }
    return Answer::kYes;
  }

  const std::vector<uint32_t>& used() {
    std::sort(used_.begin(), used_.end());
    used_.erase(std::unique(used_.begin(), used_.end()), used_.end());
    return used_;
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
    used_.clear();
    const Answer answer = look(region, above, {}, nullptr, 0);
    if (answer == Answer::kLimit) return report(r, RuleFinding::Kind::kUndecided, {});
    if (answer == Answer::kYes) report(r, RuleFinding::Kind::kShadowed, used());
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
    used_.clear();
    const Answer answer = look(region, above, below, &own, 0);
    if (answer == Answer::kLimit) return report(r, RuleFinding::Kind::kUndecided, {});
    if (answer == Answer::kYes) report(r, RuleFinding::Kind::kRedundant, used());
  }

  const AclActionsView& actions_;
  const ShadowOptions& options_;
  std::vector<AclRegion> regions_;
  std::vector<State> state_;
  std::vector<uint32_t> either_;       // rules of both families
  std::vector<Prefix> src_, dst_;      // of each rule
  PrefixIndex by_src_[2], by_dst_[2];  // IPv4, IPv6
  std::vector<uint32_t> met_, used_;
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

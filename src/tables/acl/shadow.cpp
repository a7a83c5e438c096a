#include "tables/acl/shadow.h"

#include <algorithm>
#include <utility>

#include "tables/acl/pair_index.h"
#include "tables/acl/region.h"

namespace sluice {
namespace {

constexpr unsigned kDraws = 24;
constexpr unsigned kMaxDepth = 1000;
constexpr std::ptrdiff_t kAhead = 12;  // members of a run between the one that is compared and the one that is fetched
constexpr size_t kTried = 16;          // rules that are tried before one cuts a region

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
      for (size_t f = 0; f < 2; ++f) {
        if ((region->families >> f & 1) != 0) index_[f].add(r, src_[r], dst_[r]);
      }
    }
    for (PairIndex& of_family : index_) of_family.settle();
    other_.resize(regions_.size());
    for (auto r = static_cast<uint32_t>(other_.size()); r-- > 0;)
      other_[r] = r + 1 < other_.size() && action(r + 1) == action(r) ? other_[r + 1] : r + 1;
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

  // Calls f(rule) for rules that are still there and whose prefixes contain these, until it returns false; end() as
  // PairIndex has it. False: past the limits.
  template <typename End, typename F>
  bool each_around(size_t family, const WidePrefix& src, const WidePrefix& dst, End&& end, F&& f) {
    uint64_t work = index_[family].groups();
    index_[family].each_around(src, dst, end, [&](const PairIndex::Member* first, const PairIndex::Member* last) {
      for (; first != last && first->rule < end(); ++first) {
        ++work;
        if (state_[first->rule] != State::kGone && !f(first->rule)) return false;
      }
      return true;
    });
    return spend(work);
  }

  // The first rule that is still there, is not `r` and has the key; `count` when there is none. One of those above r
  // is as good as another.
  bool first_with(const FlowKey& key, uint32_t r, uint32_t& first) {
    first = static_cast<uint32_t>(regions_.size());
    const WidePrefix src{key.src_hi, key.src_lo, 128}, dst{key.dst_hi, key.dst_lo, 128};
    return each_around(
        key.family == 4 ? 0 : 1, src, dst, [&] { return first; },
        [&](uint32_t other) {
          if (other != r && contains(regions_[other], key)) first = other;
          return first > r;
        });
  }

  // The first rule from `from` on that contains rule r and, with `alike`, does the same; `end` when there is none.
  bool container(uint32_t r, uint32_t from, uint32_t end, bool alike, uint32_t& first) {
    first = end;
    const AclRegion& region = regions_[r];
    // One that contains a rule of both families is in both indexes.
    return each_around(
        region.families == AclRegion::kIpv6 ? 1 : 0, src_[r], dst_[r], [&] { return first; },
        [&](uint32_t other) {
          if (other >= from && other != r && (!alike || action(other) == action(r)) &&
              contains(regions_[other], region))
            first = other;
          return true;
        });
  }

  // The rules before `end` that are still there and meet rule r, in order. False: past the limits.
  bool meeting(uint32_t r, uint32_t end, std::vector<uint32_t>& out) {
    out.clear();
    const AclRegion& region = regions_[r];
    bool within = true;
    for (size_t f = 0; f < 2 && within; ++f) {
      if ((region.families >> f & 1) == 0) continue;
      within = spend(index_[f].groups());
      index_[f].each_near(src_[r], dst_[r], end, [&](const PairIndex::Member* first, const PairIndex::Member* last) {
        within = within && spend(static_cast<uint64_t>(last - first));
        for (; within && first != last; ++first) {
          const uint32_t other = first->rule;
          if (last - first > kAhead) __builtin_prefetch(&regions_[first[kAhead].rule]);
          if (other < end && other != r && state_[other] != State::kGone && overlap(regions_[other], region))
            out.push_back(other);
        }
        return within;
      });
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return within;
  }

  enum class Answer : uint8_t { kYes, kNo, kLimit };

  // Whether every packet of `piece` that no rule of `above` takes meets, of `below`, first a rule that acts as `own`
  // does; without `own`, whether there is no such packet. A piece that a rule of `above` contains is done with; else
  // one of them cuts it, and what it leaves is asked about. Rules that were needed are put into used_.
  Answer look(const AclRegion& piece, const std::vector<uint32_t>& above, const std::vector<uint32_t>& below,
              const AclAction* own, unsigned depth) {
    if (!spend(above.size() + below.size() + 1) || depth > kMaxDepth) return Answer::kLimit;
    std::vector<uint32_t> deciding;
    bool alike = true;
    for (uint32_t j : below) {
      if (!overlap(regions_[j], piece)) continue;
      deciding.push_back(j);
      alike = alike && action(j) == *own;
      if (!contains(regions_[j], piece)) continue;
      // What comes after it decides nothing here; when all up to it do the same, what is above does not matter.
      if (!alike) break;
      used_.insert(used_.end(), deciding.begin(), deciding.end());
      return Answer::kYes;
    }
    std::vector<uint32_t> cutting;
    for (uint32_t j : above) {
      if (!overlap(regions_[j], piece)) continue;
      cutting.push_back(j);
      if (!contains(regions_[j], piece)) continue;
      if (own == nullptr) used_.push_back(j);
      return Answer::kYes;
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
    const auto undecided = [&] { report(r, RuleFinding::Kind::kUndecided, {}); };
    uint32_t first = 0;
    if (!container(r, 0, r, false, first)) return undecided();
    if (first < r) return report(r, RuleFinding::Kind::kShadowed, {first});
    const AclRegion& region = regions_[r];
    for (unsigned draw = 0; draw < kDraws; ++draw) {
      if (!first_with(key_of(region, draw), r, first)) return undecided();
      if (first > r) return;  // a packet of its own
    }
    if (!meeting(r, r, met_)) return undecided();
    used_.clear();
    const Answer answer = look(region, met_, {}, nullptr, 0);
    if (answer == Answer::kLimit) return undecided();
    if (answer == Answer::kYes) report(r, RuleFinding::Kind::kShadowed, used());
  }

  void look_below(uint32_t r) {
    const auto undecided = [&] { report(r, RuleFinding::Kind::kUndecided, {}); };
    const AclAction own = action(r);
    AclAction unmatched;
    unmatched.verb = options_.unmatched;
    const auto count = static_cast<uint32_t>(regions_.size());
    // Nothing between the two does anything else.
    uint32_t first = 0;
    if (!container(r, r, other_[r], true, first)) return undecided();
    if (first < other_[r]) return report(r, RuleFinding::Kind::kRedundant, {first});
    const AclRegion& region = regions_[r];
    for (unsigned draw = 0; draw < kDraws; ++draw) {
      if (!first_with(key_of(region, draw), r, first)) return undecided();
      if (first < r) continue;
      if ((first < count ? action(first) : unmatched) != own) return;  // its verdict would change
    }
    // The rules after the first that contains it decide none of its packets.
    if (!container(r, r, count, false, first) || !meeting(r, std::min(first, count - 1) + 1, met_)) return undecided();
    const auto middle = std::lower_bound(met_.begin(), met_.end(), r);
    const std::vector<uint32_t> above(met_.begin(), middle), below(middle, met_.end());
    used_.clear();
    const Answer answer = look(region, above, below, &own, 0);
    if (answer == Answer::kLimit) return undecided();
    if (answer == Answer::kYes) report(r, RuleFinding::Kind::kRedundant, used());
  }

  const AclActionsView& actions_;
  const ShadowOptions& options_;
  std::vector<AclRegion> regions_;
  std::vector<State> state_;
  std::vector<WidePrefix> src_, dst_;  // of each rule
  PairIndex index_[2];                 // IPv4, IPv6; rules of both families stand in both
  std::vector<uint32_t> other_;        // the next rule that does something else
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

// host only
#include "api/positions.h"

#include <algorithm>
#include <optional>

#include "tables/replica.h"

namespace sluice::api {

// Numbers that are no rule's have ports that no packet has.
void RulePositions::look(const AclRulesView& rules, uint32_t first, uint32_t last) {
  for (uint32_t n = std::max(first, 1u); n <= last; ++n) {
    const AclMatchRule& rule = rules.rule(n);
    const uint64_t bit = uint64_t{1} << (n % 64);
    used_[n / 64] = rule.src_port_low <= rule.src_port_high ? used_[n / 64] | bit : used_[n / 64] & ~bit;
  }
}

RulePositions::RulePositions(const Image& image, const AclRulesView& rules, const RulePositions* before)
    : log_(image.patches()), version_(image.version()) {
  const size_t words = rules.size() / 64 + 1;
  std::optional<std::vector<Patch>> changed;
  if (before != nullptr && before->log_ == log_ && before->used_.size() == words && before->version_ <= version_)
    changed = log_->between(before->version_, version_);
  if (changed) {
    used_ = before->used_;
    // The rule of number n lies at n - 1.
    const uint64_t begin = AclSections::places(image).rules, end = begin + rules.size() * sizeof(AclMatchRule);
    for (const Patch& patch : *changed) {
      const uint64_t from = std::max(patch.offset, begin), to = std::min(patch.offset + patch.bytes, end);
      if (from >= to) continue;
      look(rules, static_cast<uint32_t>((from - begin) / sizeof(AclMatchRule)) + 1,
           static_cast<uint32_t>((to - 1 - begin) / sizeof(AclMatchRule)) + 1);
    }
  } else {
    used_.resize(words);
    look(rules, 1, rules.size());
  }
  before_.resize(words + 1);
  for (size_t i = 0; i < words; ++i) before_[i + 1] = before_[i] + static_cast<uint32_t>(std::popcount(used_[i]));
}

uint32_t RulePositions::number(uint32_t position) const {
  // The last word with fewer rules before it.
  const size_t word =
      static_cast<size_t>(std::lower_bound(before_.begin(), before_.end(), position) - before_.begin()) - 1;
  uint64_t bits = used_[word];
  for (uint32_t left = position - before_[word]; left > 1; --left) bits &= bits - 1;
  return static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(std::countr_zero(bits));
}

}  // namespace sluice::api

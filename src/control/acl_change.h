// host only
// Changes of access lists in text (live_tables.h says how they are written).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/rule_list.h"

namespace sluice {

// One step; steps follow one another, and positions are those of their moment.
struct AclStep {
  enum class Verb : uint8_t { kAdd, kDelete, kReplace } verb = Verb::kAdd;
  uint32_t at = 0;  // 1-based; kAdd: where the rule will stand, 0: at the end. kDelete: 0: the first that is `rule`
  AclRule rule;     // kDelete with a position: not used
  uint32_t line = 0;
};

// A change may be a few lines whose groups stand for many rules.
inline constexpr size_t kMaxChangeRules = size_t{1} << 20;

// `keeps`: connections begin by the list, so that rules that come may have `keep-state`; those that go may always.
// Errors: every line that is wrong; more than `max_rules` rules, which are counted before they are made; cancelled().
Result<std::vector<AclStep>> parse_acl_change(std::string_view text, const std::string& name,
                                              size_t max_rules = kMaxChangeRules, bool keeps = true);

// Takes the steps that were read from `text`, or none of them. Errors: positions that are not there, rules that are not
// there, by line. RuleList::begin() was called by then.
Result<void> take_acl_steps(RuleList& list, const std::vector<AclStep>& steps, std::string_view text,
                            const std::string& name);

}  // namespace sluice

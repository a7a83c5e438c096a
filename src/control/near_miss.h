// host only
// Why a rule does not match a packet, in words.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "net/flow_key.h"
#include "tables/acl/rule_set.h"

namespace sluice {

// The fields of the rule that the packet does not fit, in the order in which a reader looks. Empty: it matches.
std::vector<std::string> misfits(const AclMatchRule& rule, const FlowKey& key);

// Calls take(rule, why) for `most` rules at most that one field alone keeps from matching, from `last` down to `first`.
// A line that makes several rules is one near miss, and that of the rule `matched` (0: none) is none. rule_at(rule) is
// an AclMatchRule, line_of(rule) its {file, line}; line 0: none.
template <typename RuleAt, typename LineOf, typename Take>
void each_near_miss(const FlowKey& key, uint32_t matched, uint32_t last, uint32_t first, size_t most, RuleAt&& rule_at,
                    LineOf&& line_of, Take&& take) {
  std::set<decltype(line_of(matched))> lines;
  if (matched != 0) lines.insert(line_of(matched));
  for (uint32_t r = last; r >= first && r != 0 && most != 0; --r) {
    const auto no = misfits(rule_at(r), key);
    if (no.size() != 1) continue;
    if (const auto line = line_of(r); line.second != 0 && !lines.insert(line).second) continue;
    take(r, no[0]);
    --most;
  }
}

}  // namespace sluice

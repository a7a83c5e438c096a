// Makes a larger or smaller list of rules like a given one.
#pragma once

#include "base/result.h"
#include "generate/like.h"
#include "tables/acl/rule_set.h"

namespace sluice {

// Fewer rules are a sample of the list, in its order. More are its rules and copies of them at other addresses: a copy
// of the whole list moves all its prefixes, of both sides, by one map that keeps lengths, the first three bits and who
// contains whom, so pairs of prefix lengths, ports, protocols, flags, actions and nesting keep their shares. The copies
// of a rule follow it, so what is specific still comes before what is general. No two rules that are made match the
// same; a rule that cannot be moved apart (no address, or short ones) gets other exact ports of the list, or another
// rule stands in for it.
//
// Deterministic in `set` and `options`. Rules keep their file and line. Errors: more than a million rules, an empty
// list, no room for so many.
Result<RuleSet> generate_rules_like(const RuleSet& set, const LikeOptions& options);

}  // namespace sluice

// ClassBench filter sets as text (Taylor and Turner, "ClassBench: A Packet Classification Benchmark", ToN 2007).
//
//   @sip/len  dip/len  lo : hi  lo : hi  0xPP/0xMM  [0xFFFF/0xMMMM]
//
// One rule a line, the first line wins; the flags field may be absent. IPv6 prefixes are taken too (ClassBench-ng).
// Address bits past the length are masked off. A rule with IPv4 or IPv6 prefixes matches keys of that family alone, /0
// included. Blank lines and '#' comments do not count in rule positions. Every rule permits.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tables/acl/rule_set.h"

namespace sluice {

// Errors: every malformed line, with its place and what was expected.
Result<RuleSet> parse_classbench(std::string_view text, std::string file_name);

// Writes the set as ClassBench text that parses back to the same matches. Errors: a rule that the format cannot say (no
// address family, DSCP, fragment, ICMP or native port constraint, an action other than permit).
Result<std::string> to_classbench(const RuleSet& set);

}  // namespace sluice

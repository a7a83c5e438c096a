// Chains of filter rules (netfilter's model: jumps, returns, a policy) to one ordered list that decides every packet as
// the chains do. Host only.
//
// A chain that is jumped to is written out where the jump stands, its rules narrowed to the packets that get there.
// What a negation leaves out, and what a return sends back, goes on as a group of its own, whose rules stand before
// those of the other packets: a list in which the first match wins needs no complement for either (docs/design/acl.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tables/acl/region.h"
#include "tables/acl/rule_set.h"

namespace sluice {

struct FilterRule {
  enum class Target : uint8_t {
    kContinue,  // nothing but its effects
    kAccept,
    kDrop,
    kReturn,
    kJump,
    kGoto,  // a jump that returns to where this chain was called from
  };
  std::vector<AclRegion> match;  // a union; empty: no packet
  // Packets that the rule does not match, be they in `match` or not: a union for each negated condition.
  std::vector<std::shared_ptr<const std::vector<AclRegion>>> except;
  Target target = Target::kContinue;
  size_t chain = 0;  // of kJump and kGoto: index into the chains
  // Effects on packets that match, before the target. They stay with the packet until it is decided.
  bool log = false;
  std::optional<uint32_t> mark;
  uint32_t line = 0;
  size_t at = 0, length = 1;  // in the text, for findings
};

struct FilterChain {
  std::string name;
  std::vector<FilterRule> rules;
};

struct FilterPolicy {
  AclVerb verb = AclVerb::kPermit;  // kPermit or kDeny
  uint8_t families = 3;             // AclRegion::families: the packets that the chain sees at all
  uint32_t line = 0;
  bool keep = false;  // the connections of all packets that are accepted are tracked
};

// Why chains cannot be written as a list, and the place of the rule to name.
struct FlattenProblem {
  std::string message;
  std::string expected;
  size_t at = 0, length = 1;
};

// Appends the rules of `base` and all that it reaches to `set`, then one for its policy. Every chain index must be in
// range. Problems: chains that call each other in a circle or deeper than 64, more than 2^20 rules or 65,536 groups at
// a time, more than 2^23 steps.
std::optional<FlattenProblem> flatten_chains(const std::vector<FilterChain>& chains, size_t base,
                                             const FilterPolicy& policy, uint32_t file, RuleSet& set);

}  // namespace sluice

// Which rules of a list can go: those that no packet reaches, and those whose removal changes no verdict. Host only.
//
// Exact or silent: a rule is reported only when every key that can occur (region.h) bears it out, and where the work
// would pass a limit the rule is reported as not decided. All reported rules but those not decided may be removed
// together. A rule is looked at with the rules that meet it; a packet of its own that no earlier rule takes, drawn by
// chance, settles most rules; else the rule is cut by earlier ones, as a product of intervals, until each piece is
// inside of one of them or a piece is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tables/acl/sections.h"

namespace sluice {

struct RuleFinding {
  static constexpr size_t kMaxBy = 16;

  enum class Kind : uint8_t {
    kImpossible,  // no packet has what it asks for, whatever the other rules are
    kShadowed,    // earlier rules take all of its packets
    kRedundant,   // without it, later rules do the same to the packets that it decides
    kUndecided,   // within the limits there was no answer
  };
  uint32_t rule = 0;  // 1-based
  Kind kind = Kind::kUndecided;
  // kShadowed: earlier rules that together leave it nothing, a single one where one alone does. kRedundant: the
  // later rules that decide its packets. In order, the first kMaxBy of them.
  std::vector<uint32_t> by;
  uint32_t by_count = 0;  // all of them
  bool conflict = false;  // kShadowed: one of the first kMaxBy does something else than the rule says

  friend bool operator==(const RuleFinding&, const RuleFinding&) = default;
};

struct ShadowOptions {
  // What is done with a packet that no rule matches; kNone: unknown, so a rule that decides such packets is not
  // redundant.
  AclVerb unmatched = AclVerb::kNone;
  uint64_t rule_steps = uint64_t{1} << 24;  // comparisons of two regions for one rule
  uint64_t steps = uint64_t{1} << 33;       // the same for the whole list; rules past it are not decided
};

// In the order of the rules. `progress`, when given, is called now and then with the number of rules done; it returns
// false to stop, and then the rules that are left are not decided.
std::vector<RuleFinding> find_shadowed(const AclRulesView& rules, const AclActionsView& actions,
                                       const ShadowOptions& options = {},
                                       const std::function<bool(size_t)>& progress = {});

}  // namespace sluice

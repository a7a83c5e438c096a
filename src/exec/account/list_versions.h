// host only
// The rules of the versions of an access list, as those who follow them from one version to the next see them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tables/acl/sections.h"

namespace sluice {

// The rules of one version, with what they do. Valid as long as its image.
struct ListRules {
  AclRulesView match;
  AclActionsView actions;

  // None: it is no image of an access list.
  static std::optional<ListRules> of(const Image& image);
  uint32_t size() const { return match.size(); }
  // Between the rules of an image that is patched there are numbers that no rule has.
  bool is_rule(uint32_t rule) const { return match.rule(rule).src_port_low <= match.rule(rule).src_port_high; }
};

// What makes a rule itself, wherever it stands: what it matches and what it does.
std::string rule_identity(const ListRules& rules, uint32_t rule);

// The numbers whose rule or action may differ between two versions of one image that is patched, ascending; where a
// rule is written may differ for any. None: any may.
std::optional<std::vector<uint32_t>> touched_rules(const Image& before, const Image& after);

}  // namespace sluice

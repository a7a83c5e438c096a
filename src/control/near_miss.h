// host only
// Why a rule does not match a packet, in words.
#pragma once

#include <string>
#include <vector>

#include "net/flow_key.h"
#include "tables/acl/rule_set.h"

namespace sluice {

// The fields of the rule that the packet does not fit, in the order in which a reader looks. Empty: it matches.
std::vector<std::string> misfits(const AclMatchRule& rule, const FlowKey& key);

}  // namespace sluice

// host only
// NatTable: rules of network address translation (flows/nat_rules.h), for ConnTrack.
#pragma once

#include "graph/table_kind.h"

namespace sluice {

// The kind of its tables, which is there from the first call on. What is looked up are NatRule, in order.
const TableKind& nat_table_kind();

}  // namespace sluice

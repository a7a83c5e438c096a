// host only
// Connections as reports show them.
#pragma once

#include <nlohmann/json.hpp>

#include "flows/flow_table.h"

namespace sluice {

// Of one, from the end that began it: protocol, src, sport, dst, dport, packets and bytes of both directions, start and
// end in seconds, state. `replies`: the entry of its replies, where it is translated: what its packets become is under
// "translated". Else nullptr.
nlohmann::ordered_json flow_json(const FlowEntry& entry, const FlowEntry* replies = nullptr);

}  // namespace sluice

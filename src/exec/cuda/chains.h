// Chains: programs that are common enough to have kernels of their own, without the switch over all stage types.
#pragma once

#include <cstdint>

#include "base/type_list.h"
#include "elements/stages.h"
#include "exec/device/body.h"
#include "exec/device/kernels_there.h"

namespace sluice {

namespace chains_detail {
using Acl = AclStage<TupleSpaceAcl::View>;
using AclMerge = AclStage<TupleMergeAcl::View>;
using RouteDir24 = RouteStage<Dir24::View4, Poptrie::View6>;
using RoutePoptrie = RouteStage<Poptrie::View4, Poptrie::View6>;
}  // namespace chains_detail

// DeviceProgram::chain of a chain is 1 + its index here; 0 is the generic switch.
using NoChain = TypeList<>;
using AclChain = TypeList<chains_detail::Acl>;
using RouteDir24Chain = TypeList<chains_detail::RouteDir24>;
using RoutePoptrieChain = TypeList<chains_detail::RoutePoptrie>;
using AclRouteDir24Chain = TypeList<chains_detail::Acl, chains_detail::RouteDir24>;
using AclMergeChain = TypeList<chains_detail::AclMerge>;
using AclMergeRouteDir24Chain = TypeList<chains_detail::AclMerge, chains_detail::RouteDir24>;
using AllChains =
    TypeList<AclChain, RouteDir24Chain, RoutePoptrieChain, AclRouteDir24Chain, AclMergeChain, AclMergeRouteDir24Chain>;
inline constexpr uint8_t kChains = static_cast<uint8_t>(AllChains::kSize);

// The chain that the stages [begin, end) are, or 0. Host.
uint8_t chain_of(const DeviceProgram& program);

// Whether some stage looks a packet up in an access list. Precondition: runs_on. Host.
bool finds_rules(const DeviceProgram& program);

// Whether some stage shares its work among lanes that hold one packet. Precondition: runs_on. Host.
bool gains_by_teams(const DeviceProgram& program);

}  // namespace sluice

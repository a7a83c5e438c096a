// Chains of frame records: whole segments that have kernels of their own. `DeviceProgram::chain` counts them from 1.
#pragma once

#include "exec/cuda/chains.h"

namespace sluice {

using FrameRouteChain = TypeList<IpInputStage, chains_detail::RouteDir24, DecTtlStage, AdjacencyStage>;
using FrameAclMergeRouteChain =
    TypeList<IpInputStage, chains_detail::AclMerge, chains_detail::RouteDir24, DecTtlStage, AdjacencyStage>;
using FrameAclRouteChain =
    TypeList<IpInputStage, chains_detail::Acl, chains_detail::RouteDir24, DecTtlStage, AdjacencyStage>;
using AllFrameChains = TypeList<FrameRouteChain, FrameAclMergeRouteChain, FrameAclRouteChain>;
// Any program whose last stage sums whole frames; the last of the numbers.
struct SummingChain {};
inline constexpr uint8_t kFrameChains = static_cast<uint8_t>(AllFrameChains::kSize) + 1;

}  // namespace sluice

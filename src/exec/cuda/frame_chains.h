// Chains of frame records: whole segments that have kernels of their own. `DeviceProgram::chain` counts them from 1.
#pragma once

#include <array>

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

// The kernels of all chains by their numbers, where of(TypeTag<Chain>) is that of one.
template <typename Of>
std::array<const void*, kFrameChains + 1> frame_kernels(Of of) {
  std::array<const void*, kFrameChains + 1> all{of(TypeTag<NoChain>())};
  size_t i = 0;
  AllFrameChains::for_each([&](auto tag) { all[++i] = of(tag); });
  all[kFrameChains] = of(TypeTag<SummingChain>());
  return all;
}

}  // namespace sluice

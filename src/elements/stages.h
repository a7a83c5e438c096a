// The list of all stage types. A stage's index here is its `kind`: what CPU kernels, device kernels and planners go by.
// `./dev new element NAME` adds a stage here.
#pragma once

#include <cstdint>
#include <tuple>

#include "base/type_list.h"
#include "elements/acl/stage.h"
#include "elements/adjacency/stage.h"
#include "elements/bridge/stage.h"
#include "elements/classifier/stage.h"
#include "elements/classify_dscp/stage.h"
#include "elements/classify_mark/stage.h"
#include "elements/counter/stage.h"
#include "elements/crc32/stage.h"
#include "elements/dec_ttl/stage.h"
#include "elements/ether/stage.h"
#include "elements/example/stage.h"
#include "elements/example_table/stage.h"
#include "elements/example_tunnel/stage.h"
#include "elements/get_ip_address/stage.h"
#include "elements/ip_filter/stage.h"
#include "elements/ip_input/stage.h"
#include "elements/ip_lookup/stage.h"
#include "elements/paint/stage.h"
#include "elements/port_switch/stage.h"
#include "elements/route/stage.h"
#include "elements/set_ip_dscp/stage.h"
#include "elements/stage_kind.h"
#include "elements/strip/stage.h"
#include "elements/truncate/stage.h"

namespace sluice {

using PlainStages =
    TypeList<PassStage, IpInputStage, HeaderCheckStage, DecTtlStage, AdjacencyStage, EtherEncapStage, EtherRewriteStage,
             EtherMirrorStage, PaintStage, PaintSwitchStage, StripStage, UnstripStage, ClassifierStage, SetCrc32Stage,
             CheckCrc32Stage, PortSwitchStage, PatternStage, TruncateStage, SetIpDscpStage, ClassifyDscpStage,
             ClassifyMarkStage, GetIpAddressStage, BridgeStage,
             // The skeletons, and elements that were copied from them: each on a line of its own.
             ExampleTableStage,   //
             ExampleTunnelStage,  //
             ExampleStage>;

namespace detail {

template <typename A, typename B>
struct Concat;
template <typename... A, typename... B>
struct Concat<TypeList<A...>, TypeList<B...>> {
  using type = TypeList<A..., B...>;
};

// One ACL stage an algorithm.
template <typename List>
struct AclStagesOf;
template <typename... A>
struct AclStagesOf<AclAlgorithmList<A...>> {
  using type = TypeList<AclStage<typename A::View>...>;
};

// One stage an IPv4 algorithm, with the IPv6 table of any algorithm.
template <typename List4>
struct RouteStagesOf;
template <typename... A4>
struct RouteStagesOf<std::tuple<A4...>> {
  using type = TypeList<RouteStage<typename A4::View4, AnyView6>...>;
};

template <typename List4>
struct IpLookupStagesOf;
template <typename... A4>
struct IpLookupStagesOf<std::tuple<A4...>> {
  using type = TypeList<IpLookupStage<typename A4::View4>...>;
};

}  // namespace detail

using AclStages = typename detail::AclStagesOf<AclAlgorithms>::type;
// The pairs that have a stage without the switch over IPv6 algorithms: what tables are made of unless asked otherwise.
using DirectRouteStages =
    TypeList<RouteStage<Dir24::View4, Poptrie::View6>, RouteStage<Poptrie::View4, Poptrie::View6>>;
using RouteStages =
    typename detail::Concat<DirectRouteStages, typename detail::RouteStagesOf<LpmStageAlgorithms4>::type>::type;
using IpLookupStages = typename detail::IpLookupStagesOf<LpmStageAlgorithms4>::type;

using AllStages = typename detail::Concat<typename detail::Concat<PlainStages, AclStages>::type,
                                          typename detail::Concat<RouteStages, IpLookupStages>::type>::type;

template <typename Stage>
inline constexpr uint16_t kStageKind = static_cast<uint16_t>(AllStages::index_of<Stage>());

}  // namespace sluice

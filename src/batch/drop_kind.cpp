#include "batch/drop_kind.h"

namespace sluice {

// Without a default: the compiler names a reason that has no kind.
DropKind kind_of(DropReason reason) {
  switch (reason) {
    case DropReason::kTruncatedL2:
    case DropReason::kTooManyVlans:
    case DropReason::kCapturedTooShort:
    case DropReason::kIpv4TooShort:
    case DropReason::kIpv4BadVersion:
    case DropReason::kIpv4BadHeaderLength:
    case DropReason::kIpv4BadTotalLength:
    case DropReason::kIpv4TruncatedFrame:
    case DropReason::kIpv4BadChecksum:
    case DropReason::kIpv6TooShort:
    case DropReason::kIpv6BadVersion:
    case DropReason::kIpv6BadPayloadLength:
    case DropReason::kIpv6BadExtensionHeader:
    case DropReason::kIpv6TooManyExtensionHeaders:
    case DropReason::kMartianSource:
    case DropReason::kMartianDestination:
    case DropReason::kStripTooShort:
    case DropReason::kBadCrc:
    case DropReason::kBadOptions:
    case DropReason::kBadFragment:
    case DropReason::kTinyFragment:
      return DropKind::kMalformed;
    case DropReason::kNoAdjacency:
    case DropReason::kUnresolvedNeighbour:
    case DropReason::kNoHeadroom:
    case DropReason::kNoTailroom:
    case DropReason::kNoBuffer:
    case DropReason::kLoop:
    case DropReason::kQueueFull:
    case DropReason::kShaperFull:
    case DropReason::kFlowTableFull:
    case DropReason::kNatPortsExhausted:
    case DropReason::kTxFull:
    case DropReason::kDeviceFailed:
    case DropReason::kOutputFailed:
    case DropReason::kGraphChanged:
      return DropKind::kLost;
    case DropReason::kNone:
    case DropReason::kDiscard:
    case DropReason::kNotIp:
    case DropReason::kLinkControl:
    case DropReason::kNatUntracked:
    case DropReason::kIpv6RoutingType0:
    case DropReason::kLinkBroadcast:
    case DropReason::kSourceRoute:
    case DropReason::kAclDeny:
    case DropReason::kAclNoMatch:
    case DropReason::kNoRoute:
    case DropReason::kRouteDrop:
    case DropReason::kRouteLocal:
    case DropReason::kRoutePunt:
    case DropReason::kRouteUnreachable:
    case DropReason::kRouteProhibited:
    case DropReason::kTtlExpired:
    case DropReason::kHopLimitExpired:
    case DropReason::kTooBig:
    case DropReason::kNeedsFragmentation:
    case DropReason::kClassifierNoMatch:
    case DropReason::kUnconnectedOutput:
    case DropReason::kIcmpSuppressed:
    case DropReason::kIcmpRateLimited:
    case DropReason::kMulticastDestination:
    case DropReason::kOptionRefused:
    case DropReason::kPoliced:
    case DropReason::kEarlyDrop:
    case DropReason::kCount:
      return DropKind::kPolicy;
  }
  return DropKind::kPolicy;
}

const char* to_string(DropKind kind) {
  return kind == DropKind::kPolicy ? "policy" : kind == DropKind::kMalformed ? "malformed" : "lost";
}

}  // namespace sluice

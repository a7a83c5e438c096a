// Why a packet did not leave: a closed list with stable numbers, counted per element.
#pragma once

#include <cstdint>

namespace sluice {

// The numbers appear in images, rings and files: append only.
enum class DropReason : uint8_t {
  kNone = 0,
  kDiscard = 1,  // reached a Discard element
  kNotIp = 2,
  kTruncatedL2 = 3,
  kTooManyVlans = 4,
  kCapturedTooShort = 5,  // the capture's snap length cut a header off
  kIpv4TooShort = 6,
  kIpv4BadVersion = 7,
  kIpv4BadHeaderLength = 8,
  kIpv4BadTotalLength = 9,
  kIpv4TruncatedFrame = 10,
  kIpv4BadChecksum = 11,
  kIpv6TooShort = 12,
  kIpv6BadVersion = 13,
  kIpv6BadPayloadLength = 14,
  kIpv6BadExtensionHeader = 15,
  kIpv6TooManyExtensionHeaders = 16,
  kIpv6RoutingType0 = 17,
  kMartianSource = 18,
  kMartianDestination = 19,
  kLinkBroadcast = 20,  // RFC 1812 5.3.4: came as link broadcast or multicast, unicast IP destination
  kSourceRoute = 21,
  kAclDeny = 22,
  kAclNoMatch = 23,
  kNoRoute = 24,
  kRouteDrop = 25,   // blackhole or drop next hop
  kRouteLocal = 26,  // for this router itself; nothing here listens
  kRoutePunt = 27,
  kNoAdjacency = 28,
  kTtlExpired = 29,
  kHopLimitExpired = 30,
  kTooBig = 31,              // DF or IPv6, larger than the output's MTU
  kNeedsFragmentation = 32,  // IPv4 without DF, larger than the output's MTU, and no IPFragmenter there
  kClassifierNoMatch = 33,
  kUnconnectedOutput = 34,
  kNoHeadroom = 35,
  kNoBuffer = 36,
  kIcmpSuppressed = 37,   // an ICMP error that the RFCs forbid
  kIcmpRateLimited = 38,  // a generated ICMP error over the rate
  kLoop = 39,             // passed the same graph cycle too often
  kStripTooShort = 40,
  kBadCrc = 41,
  kQueueFull = 42,
  kMulticastDestination = 43,  // no multicast forwarding
  kDeviceFailed = 44,
  kOutputFailed = 45,  // the port refused the frame
  kNoTailroom = 46,
  kBadOptions = 47,        // IPv4 options that contradict themselves
  kOptionRefused = 48,     // an IPv4 option that is not to be forwarded
  kBadFragment = 49,       // a fragment that reaches past the largest packet
  kRouteUnreachable = 50,  // an unreachable next hop: the sender is told so
  kRouteProhibited = 51,   // a prohibit next hop
  kGraphChanged = 52,      // held by an element that the next graph does not have
  kPoliced = 53,           // red, by a policer
  kEarlyDrop = 54,         // random early detection
  kShaperFull = 55,        // no room where packets wait for their departure
  kTxFull = 56,            // a live port's ring had no room
  kCount
};

// The name used in statistics and documents, e.g. "ttl-expired"; "?" for a number out of range.
const char* to_string(DropReason reason);
// One sentence for the reference page.
const char* describe(DropReason reason);

}  // namespace sluice

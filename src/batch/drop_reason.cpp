#include "batch/drop_reason.h"

#include <cstddef>

namespace sluice {
namespace {

struct Row {
  const char* name;
  const char* text;
};

constexpr Row kRows[] = {
    {"none", "not dropped"},
    {"discard", "reached a Discard element without an earlier reason"},
    {"not-ip", "the EtherType is neither IPv4 nor IPv6"},
    {"truncated-l2", "the frame ends inside the Ethernet header or a VLAN tag"},
    {"too-many-vlans", "more VLAN tags than the parser accepts"},
    {"captured-too-short", "the capture's snap length cut off a header that is needed"},
    {"ipv4-too-short", "fewer than 20 bytes of IPv4 header (RFC 1812 5.2.2 check 1)"},
    {"ipv4-bad-version", "the IPv4 version field is not 4 (RFC 1812 5.2.2 check 3)"},
    {"ipv4-bad-header-length", "the IPv4 header length is below 5 words (RFC 1812 5.2.2 check 4)"},
    {"ipv4-bad-total-length", "the IPv4 total length is below the header length (RFC 1812 5.2.2 check 5)"},
    {"ipv4-truncated-frame", "the frame is shorter than the IPv4 total length"},
    {"ipv4-bad-checksum", "the IPv4 header checksum is wrong (RFC 1812 5.2.2 check 2)"},
    {"ipv6-too-short", "fewer than 40 bytes of IPv6 header"},
    {"ipv6-bad-version", "the IPv6 version field is not 6"},
    {"ipv6-bad-payload-length", "the frame is shorter than the IPv6 payload length"},
    {"ipv6-bad-extension-header", "an IPv6 extension header runs past the packet"},
    {"ipv6-too-many-extension-headers", "more IPv6 extension headers than the parser follows"},
    {"ipv6-routing-type-0", "a type 0 routing header with segments left (RFC 5095)"},
    {"martian-source", "the source address must not be forwarded (RFC 1812 5.3.7, RFC 4291)"},
    {"martian-destination", "the destination address must not be forwarded (RFC 1812 5.3.7, RFC 4291)"},
    {"link-broadcast", "an IP unicast packet that came as link-layer broadcast or multicast (RFC 1812 5.3.4)"},
    {"source-route", "a source-route option is present"},
    {"acl-deny", "an access-list rule denies the packet"},
    {"acl-no-match", "no access-list rule matches and the default is deny"},
    {"no-route", "no prefix covers the destination"},
    {"route-drop", "the next hop is drop or blackhole"},
    {"route-local", "the next hop is this router"},
    {"route-punt", "the next hop is punt, and nothing is connected for it"},
    {"no-adjacency", "the next hop has no adjacency"},
    {"ttl-expired", "the IPv4 TTL is 1 or 0"},
    {"hop-limit-expired", "the IPv6 hop limit is 1 or 0"},
    {"too-big", "larger than the output's MTU, and DF or IPv6 forbids fragments"},
    {"needs-fragmentation", "larger than the output's MTU, and no IPFragmenter is connected"},
    {"classifier-no-match", "no Classifier pattern matches"},
    {"unconnected-output", "left by an output that nothing is connected to"},
    {"no-headroom", "no room before the frame for another header"},
    {"no-buffer", "no frame buffer was free"},
    {"icmp-suppressed", "an ICMP error about this packet is forbidden (RFC 1812 4.3.2.7, RFC 4443 2.4)"},
    {"icmp-rate-limited", "the ICMP error was over the configured rate"},
    {"loop", "passed through a cycle of the graph too often"},
    {"strip-too-short", "shorter than the bytes to strip"},
    {"bad-crc", "the CRC at the frame's end is wrong"},
    {"queue-full", "the queue was full"},
    {"multicast-destination", "multicast and limited broadcast are not forwarded here"},
    {"device-failed", "the device that ran the program failed"},
    {"output-failed", "the output port refused the frame"},
    {"no-tailroom", "no room after the frame for another trailer"},
    {"bad-options", "the IPv4 option list is malformed (RFC 791 3.1, RFC 1812 5.3.13)"},
    {"option-refused", "an IPv4 option that is configured not to be forwarded is present (RFC 7126)"},
    {"bad-fragment",
     "the packet is a fragment that reaches past 65,535 bytes, so it cannot be cut further (RFC 791 3.2)"},
    {"route-unreachable", "the next hop is unreachable: answered with host unreachable, unlike a blackhole"},
    {"route-prohibited", "the next hop is prohibit: answered with administratively prohibited"},
    {"graph-changed", "held by an element that the new graph does not have"},
    {"policed", "over the rate and burst of a policer (RFC 2697, RFC 2698)"},
    {"early-drop", "the queue of its class was filling: random early detection"},
    {"shaper-full", "no room among the packets that wait for their departure time"},
    {"tx-full", "the interface's TX ring had no room: packets come faster than it sends"},
};
static_assert(sizeof(kRows) / sizeof(kRows[0]) == static_cast<size_t>(DropReason::kCount));

}  // namespace

const char* to_string(DropReason reason) {
  return reason < DropReason::kCount ? kRows[static_cast<size_t>(reason)].name : "?";
}

const char* describe(DropReason reason) {
  return reason < DropReason::kCount ? kRows[static_cast<size_t>(reason)].text : "unknown";
}

}  // namespace sluice

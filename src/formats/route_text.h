// Routes as text -> Rib. The lines of a text:
//
//   PREFIX [via] NEXTHOP [metric N]   1.0.0.0/24 22        2001:db8::/32, via 2001:db8::1
//   # to the end of the line is a comment; blanks, tabs and commas separate; a bare address is a host route; NEXTHOP is
//   any word of up to 255 printable bytes; "A+B*3" is a group
//
// and what `ip route` and `ip -6 route` print (iproute2), with and without -o, -d and -N, of any table:
//
//   PREFIX [nhid N] [via [inet6] NEXTHOP] dev NAME [KEY VALUE...]    without `via` the device is the next hop
//   an address that is valid on its link alone (fe80::/10, 169.254.0.0/16) is one next hop per interface: fe80::1%eth0
//   PREFIX [KEY VALUE...] and lines of `nexthop via NEXTHOP dev NAME weight W` below it or behind it: the next hop is
//   called after all of them, A+B+C, with A*W where a weight is not 1; IPv6 lines of one prefix and metric likewise
//   blackhole|unreachable|prohibit|throw PREFIX ...: the next hop is called like that
//   local|broadcast|anycast PREFIX ...: the next hop is called local
//   multicast|nat PREFIX ..., routes of a table that is neither main nor local, dead ones: skipped and counted
//   with `encap`, `from` or `tos`: skipped, with one warning for each of the three
//   Of lines for one prefix the lowest metric wins, no metric being 0, and the first of equal ones.
//
// `default` is ::/0 with an IPv6 next hop, and 0.0.0.0/0 with an IPv4 one or `via inet6` (RFC 8950). With neither, the
// words that `ip` prints for one family tell (`pref`, `hoplimit`, `error`, `proto ra`; `scope link`, the address behind
// `src`), then the other lines: ::/0 where those are IPv6 alone, else 0.0.0.0/0, with a warning if any is IPv6.
//
// The other formats are recognised by their first line (route_record.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tables/lpm/rib.h"

namespace sluice {

// What a reader found. Both families together; duplicates are the Rib's to count.
struct RouteReport {
  size_t routes4 = 0;
  size_t routes6 = 0;
  size_t skipped = 0;  // MRT: records or prefixes that give no route; text: routes of the host itself, higher metrics
  std::vector<Diagnostic> warnings;  // at most Diagnostics::kLimit
};

// A route with a metric.
struct RankedRoute {
  IpPrefix prefix;
  uint32_t next_hop = 0;
  uint32_t metric = 0;
  uint32_t note = 0;  // of MrtPaths::notes, from 1; 0: none
};

// What the bytes [begin, end) of a text, whole lines, are about.
struct RouteLine {
  IpPrefix prefix;
  size_t begin = 0, end = 0;
};

enum class RouteFormat : uint8_t { kLines, kIpJson, kFrrJson, kFrr, kBird, kNetTools };
RouteFormat detect_route_format(std::string_view text);
const char* to_string(RouteFormat format);

// Adds the routes of `text` to `rib`, unsettled; of lines without a metric the last one for a prefix wins. Lines with a
// metric go to `ranked`, in order, one for a prefix and metric; without it the best of them go to `rib` where it has no
// route for the prefix, which settles it. Errors: every malformed line (the first Diagnostics::kLimit in full), more
// than Rib::kMaxNextHops next hops. On an error `rib` is as it was. Host bits that are set are cleared with a warning.
Result<RouteReport> parse_routes(std::string_view text, const std::string& file, Rib& rib,
                                 std::vector<RankedRoute>* ranked = nullptr);
// The same of lines alone, whatever the text looks like. `lines`, when given, receives those that a route was read
// from.
Result<RouteReport> parse_route_lines(std::string_view text, const std::string& file, Rib& rib,
                                      std::vector<RankedRoute>* ranked = nullptr,
                                      std::vector<RouteLine>* lines = nullptr);

}  // namespace sluice

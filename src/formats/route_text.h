// Routes as text -> Rib.
//
//   PREFIX [via] NEXTHOP [metric N]   1.0.0.0/24 22        2001:db8::/32, via 2001:db8::1
//   # to the end of the line is a comment; blanks, tabs and commas separate; `default` is 0.0.0.0/0, or ::/0 before an
//   IPv6 next hop; a bare address is a host route; NEXTHOP is any word of up to 255 printable bytes; "A+B*3" is a group
//
// and what `ip route` and `ip -6 route` print (iproute2), with and without -o, of any table:
//
//   PREFIX [nhid N] [via [inet6] NEXTHOP] dev NAME [KEY VALUE...]    without `via` the device is the next hop
//   an address that is valid on its link alone (fe80::/10, 169.254.0.0/16) is one next hop per interface: fe80::1%eth0
//   PREFIX [KEY VALUE...] and lines of `nexthop via NEXTHOP dev NAME weight W` below it or behind it: the next hop is
//   called after all of them, A+B+C, with A*W where a weight is not 1; IPv6 lines of one prefix and metric likewise
//   blackhole|unreachable|prohibit|throw PREFIX ...: the next hop is called like that
//   local|broadcast|anycast PREFIX ...: the next hop is called local
//   multicast|nat PREFIX ..., routes of a table that is neither main nor local, dead ones: skipped and counted
//   with `encap`: skipped with a warning
//   Of lines for one prefix the lowest metric wins, no metric being 0, and the first of equal ones.
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

// Adds the routes of `text` to `rib`, unsettled; of lines without a metric the last one for a prefix wins. Lines with a
// metric go to `ranked`, in order, one for a prefix and metric; without it the best of them go to `rib` where it has no
// route for the prefix, which settles it. Errors: every malformed line (the first Diagnostics::kLimit in full), more
// than Rib::kMaxNextHops next hops. On an error `rib` is as it was. Host bits that are set are cleared with a warning.
Result<RouteReport> parse_routes(std::string_view text, const std::string& file, Rib& rib,
                                 std::vector<RankedRoute>* ranked = nullptr);

}  // namespace sluice

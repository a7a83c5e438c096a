// Routes as text -> Rib.
//
//   PREFIX [via] NEXTHOP            1.0.0.0/24 22        2001:db8::/32, via 2001:db8::1
//   # to the end of the line is a comment; blanks, tabs and commas separate; `default` is 0.0.0.0/0, or ::/0 before an
//   IPv6 next hop; a bare address is a host route; NEXTHOP is any word of up to 255 printable bytes
//
// and what `ip route` and `ip -6 route` print (iproute2), with and without -o:
//
//   PREFIX [nhid N] [via [inet6] NEXTHOP] dev NAME [KEY VALUE...]    without `via` the device is the next hop
//   PREFIX [KEY VALUE...] and lines of `nexthop via NEXTHOP dev NAME weight W` below it or behind it: the next hop is
//   called after all of them, A+B+C, with A*W where a weight is not 1
//   blackhole|unreachable|prohibit PREFIX ...: the next hop is called like that
//   local|broadcast|anycast|multicast|throw|nat PREFIX ...: the host's own, skipped and counted
//   Of lines for one prefix with `metric`, the lowest metric wins, and the first of equal ones.
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

// Adds the routes of `text` to `rib`, unsettled; the last line for a prefix wins. Errors: every malformed line (the
// first Diagnostics::kLimit in full), more than Rib::kMaxNextHops next hops. On an error `rib` is as it was. Host bits
// that are set are cleared with a warning.
Result<RouteReport> parse_routes(std::string_view text, const std::string& file, Rib& rib);

}  // namespace sluice

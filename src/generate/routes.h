// Makes routing tables with the shape of a full Internet table, at any size, from a seed.
//
// Prefix lengths follow the histograms of a tier-1 router's tables of January 2024, scaled to the counts asked for.
// Half of the prefixes lie outside every other, the rest nest one to five deep; prefixes of one length come in runs of
// neighbours, as an allocation that is announced in parts does; a nested prefix mostly keeps its parent's next hop, a
// run shares one, and next hops are skewed by Zipf's law.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "generate/like.h"
#include "net/types.h"
#include "tables/lpm/rib.h"

namespace sluice {

struct RoutesOptions {
  uint32_t ipv4_count = 900'000;  // up to 2,000,000
  uint32_t ipv6_count = 160'000;  // up to 2,000,000
  uint32_t next_hops = 256;       // 1..65,535; written as the numbers 1..next_hops
  uint64_t seed = 1;
};

struct GeneratedRoute {
  IpPrefix prefix;
  uint32_t next_hop = 0;  // 1..next_hops
  friend bool operator==(const GeneratedRoute&, const GeneratedRoute&) = default;
};

// Exactly the counts asked for, each prefix once, IPv4 before IPv6, by address, then shorter first. IPv4 lies
// in 1.0.0.0 to 223.255.255.255 without 10/8 and 127/8; IPv6 in 2000::/3. Deterministic. Errors: an option out of
// range.
Result<std::vector<GeneratedRoute>> generate_route_list(const RoutesOptions& options);

// The same as text: "PREFIX NEXTHOP" a line.
Result<std::string> generate_routes(const RoutesOptions& options);

// A table of another size like a given one (settled): its own prefixes where `count` is smaller, all of them and splits
// of them where it is larger. A split is a real prefix's half, quarter or smaller part, down to /24 and /48 while there
// is room, then longer; never an address drawn at random, so that clusters stay clusters. Parts keep the next hop of
// what they split, or (one in seven) of another route. Families keep their shares. Settled, next hops with their ids.
// Deterministic. Errors: a `count` (of both families together) above 4,000,000, more than the table has room for.
Result<Rib> generate_table_like(const Rib& rib, const LikeOptions& options);
// The same as text, "PREFIX NEXTHOP" a line with the given names, IPv4 first, by address, then shorter first.
Result<std::string> generate_routes_like(const Rib& rib, const LikeOptions& options);

}  // namespace sluice

// MRT routing table dumps -> Rib: TABLE_DUMP_V2 (RFC 6396 section 4.3, with the ADDPATH subtypes of RFC 8050) and the
// older TABLE_DUMP (section 4.2). Unicast only; other record types are counted and skipped.
//
// A dump holds what each peer of a collector said. Of a prefix's paths one is the best by RFC 4271, section 9.1.2.2:
//   highest LOCAL_PREF (none: 100); shortest AS_PATH (a set counts as one AS, confederation segments as none); lowest
//   ORIGIN (none: incomplete); lowest MULTI_EXIT_DISC (none: 0) among the paths through one neighbouring AS; lowest BGP
//   identifier of the peer (TABLE_DUMP: not known); lowest address of the peer; what stands first in the record.
// Left out, since a dump does not say it: whether a next hop is reachable and at what cost, what came over internal
// sessions (steps d and e), the collector's own AS (loops), ORIGINATOR_ID and CLUSTER_LIST (RFC 4456). Paths of a
// prefix that stand in two records are not compared: the later record's count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "formats/route_text.h"
#include "tables/lpm/rib.h"
#include "tables/lpm/rib_sources.h"

namespace sluice {

// Whose paths: one of the three.
struct MrtPeer {
  std::optional<uint16_t> position;  // in the PEER_INDEX_TABLE, from 0
  std::optional<uint32_t> as;        // every peer of this AS
  IpAddress address;                 // family 0: not by address
};
// "3", "192.0.2.1", "2001:db8::1" or "AS65000". Errors: any other text.
Result<MrtPeer> parse_mrt_peer(std::string_view text);
std::string to_string(const MrtPeer& peer);

struct MrtOptions {
  // Default: every peer's. TABLE_DUMP has no peer positions: a position is refused there.
  std::optional<MrtPeer> peer;
  // How many paths of a prefix go to MrtPaths, 1..kMostPaths, and of which prefixes: those that cover this one.
  static constexpr uint32_t kMostPaths = 256;
  uint32_t paths = 8;
  std::optional<IpPrefix> about;  // default: all
};

// The paths of prefixes, best first; their ranks from 0 are their metrics. Notes are numbered from 1; paths that say
// the same share one, and past kMostNotes different ones there are no more.
struct MrtPaths {
  static constexpr size_t kMostNotes = size_t{1} << 20;
  std::vector<RankedRoute> routes;
  std::vector<RouteNote> notes;
};

// Adds the best path of each prefix to `rib`, unsettled; with `paths`, prefixes as in MrtOptions go there alone. The
// next hop is written as an address: NEXT_HOP, or MP_REACH_NLRI in its full (RFC 4760) or abbreviated (RFC 6396 4.3.4)
// form; IPv6 prefixes ask MP_REACH_NLRI first; of a global and a link-local address the global one counts. Prefixes
// without a next hop (routes of the collector itself) are skipped, counted and warned of once. Memory: one record (at
// most 64 MiB) at a time, or the paths of one prefix. Errors: each damaged record, as "record N at byte B"; truncated
// input; no routing table in it, or no such peer. On an error `rib` and `paths` are as they were.
Result<RouteReport> parse_mrt(InputFile& file, Rib& rib, const MrtOptions& options = {}, MrtPaths* paths = nullptr);
// The same over bytes in memory (plain or compressed).
Result<RouteReport> parse_mrt(std::span<const std::byte> bytes, const std::string& file, Rib& rib,
                              const MrtOptions& options = {}, MrtPaths* paths = nullptr);

// True when the (decompressed) first kMrtStart bytes are the header of an MRT record.
inline constexpr size_t kMrtStart = 12;
bool looks_like_mrt(std::span<const std::byte> start);

}  // namespace sluice

// MRT routing table dumps -> Rib: TABLE_DUMP_V2 (RFC 6396 section 4.3, with the ADDPATH subtypes of RFC 8050) and the
// older TABLE_DUMP (section 4.2). Unicast only; other record types are counted and skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "formats/compressed_file.h"
#include "formats/route_text.h"
#include "tables/lpm/rib.h"

namespace sluice {

struct MrtOptions {
  // Take the routes of this peer (position in the PEER_INDEX_TABLE) only. Default: the first entry of each prefix that
  // has a next hop. TABLE_DUMP has no peer positions: refused together.
  std::optional<uint16_t> peer;
};

// Adds one route a prefix, unsettled. The next hop is written as an address: NEXT_HOP, or MP_REACH_NLRI in its full
// (RFC 4760) or abbreviated (RFC 6396 4.3.4) form; IPv6 prefixes ask MP_REACH_NLRI first; of a global and a link-local
// address the global one counts. Prefixes without a next hop (routes of the collector itself) are skipped, counted and
// warned of once. Memory: one record (at most 64 MiB) at a time.
// Errors: each damaged record, as "record N at byte B"; truncated input; no routing table in it. On an error `rib` is
// as it was.
Result<RouteReport> parse_mrt(ByteStream& stream, Rib& rib, const MrtOptions& options = {});
// The same over bytes in memory (plain or compressed).
Result<RouteReport> parse_mrt(std::span<const std::byte> bytes, const std::string& file, Rib& rib,
                              const MrtOptions& options = {});

// True when the (decompressed) first bytes are the header of an MRT record.
bool looks_like_mrt(std::span<const std::byte> start);

}  // namespace sluice

// Route files of any supported format, by content -> one Rib.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "formats/mrt.h"
#include "formats/route_text.h"
#include "tables/lpm/rib.h"

namespace sluice {

// Reads text (route_text.h) or MRT (mrt.h), each plain, gzip or bzip2, in the order given; the last route of a prefix
// wins. The Rib comes back settled. Text is limited to 1 GiB. Errors: those of every file together. `report`, when
// given, receives the sums and all warnings.
Result<Rib> read_routes_files(const std::vector<std::string>& paths, RouteReport* report = nullptr,
                              const MrtOptions& mrt = {});

}  // namespace sluice

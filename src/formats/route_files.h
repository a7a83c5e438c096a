// Route files of any supported format, by content -> one Rib, or one of many sources.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/mrt.h"
#include "formats/route_text.h"
#include "tables/lpm/rib.h"
#include "tables/lpm/rib_sources.h"

namespace sluice {

// A route file as it is named: PATH[,source=NAME][,preference=N]. Without a source, text is of "static" and MRT of
// "bgp"; without a preference it is the source's (rib_sources.h).
struct RouteFile {
  std::string path;
  std::string source;  // empty: by the format
  std::optional<uint8_t> preference;
};
// Errors: a source's name that is empty or longer than 64 bytes, a preference that is not 0 to 255.
Result<RouteFile> parse_route_file(const std::string& text);
// The path alone, whatever is wrong with the rest.
std::string path_of_route_file(const std::string& text);
// What is joined by commas: "a.txt,source=x,preference=3,b.txt" is two.
std::vector<std::string> split_route_files(const std::string& text);

// Reads text (route_text.h) or MRT (mrt.h), each plain, gzip or bzip2, in the order given, named as above. The Rib
// comes back settled, with the best route of each prefix: within a source the last of those without a metric, between
// sources as a SourcedRib says. Text is limited to 1 GiB. Errors: those of every file together; more sources than there
// may be. `report`, when given, receives the sums and all warnings.
Result<Rib> read_routes_files(const std::vector<std::string>& files, RouteReport* report = nullptr,
                              const MrtOptions& mrt = {});
// The same with all candidates. Next hops have the numbers that they have in `ids`, where there is room behind those
// for the others; else numbers of their own.
Result<SourcedRib> read_route_sources(const std::vector<std::string>& files, RouteReport* report = nullptr,
                                      const MrtOptions& mrt = {}, const NextHopIds& ids = {});

}  // namespace sluice

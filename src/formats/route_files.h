// Route files of any supported format, by content -> one Rib, or one of many sources.
//
// A text may say of its lines whose they are: a line `source NAME [preference N]` holds for those below it, up to the
// next one; without a preference it is the source's (rib_sources.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "formats/mrt.h"
#include "formats/route_text.h"
#include "tables/lpm/rib.h"
#include "tables/lpm/rib_sources.h"

namespace sluice {

// A route file as it is named: PATH[,source=NAME][,preference=N][,peer=ADDRESS|ASn|N]. Without a source, text is of
// "static" and MRT of "bgp"; without a preference it is the source's (rib_sources.h). With a peer only its paths count,
// which MRT alone has.
struct RouteFile {
  std::string path;
  std::string source;  // empty: by the format
  std::optional<uint8_t> preference;
  std::optional<MrtPeer> peer;
};
// Errors: a source's name that is empty or longer than 64 bytes, a preference that is not 0 to 255, no peer (mrt.h).
Result<RouteFile> parse_route_file(const std::string& text);
// The path alone, whatever is wrong with the rest.
std::string path_of_route_file(const std::string& text);
// What is joined by commas: "a.txt,source=x,preference=3,b.txt" is two.
std::vector<std::string> split_route_files(const std::string& text);

// Reads text (route_text.h) or MRT (mrt.h), plain or compressed (input_file.h), in the order given, named as above,
// from `inputs` by their paths where there is such a set. The Rib comes back settled, with the best route of each
// prefix: within a source the last of those without a metric, between sources as a SourcedRib says. Text is limited to
// 1 GiB. Errors: those of every file together; more sources than there may be; a peer of a text. `report`, when given,
// receives the sums and all warnings.
Result<Rib> read_routes_files(const std::vector<std::string>& files, RouteReport* report = nullptr,
                              InputSet* inputs = nullptr);
// The same with all candidates; of MRT the best paths of each prefix, as `mrt` says (its peer is the files' to name).
// Next hops have the numbers that they have in `ids`, where there is room behind those for the others; else numbers of
// their own.
Result<SourcedRib> read_route_sources(const std::vector<std::string>& files, RouteReport* report = nullptr,
                                      MrtOptions mrt = {}, const NextHopIds& ids = {}, InputSet* inputs = nullptr);

// The lines of a text that its routes were read from. Errors: those of its lines; a text of another format.
Result<std::vector<RouteLine>> lines_of_routes(std::string_view text, const RouteFile& file);

}  // namespace sluice

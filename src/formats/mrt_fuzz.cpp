// Any bytes as an MRT file, plain or compressed: no crash, bounded memory, an error leaves the Rib alone.
#include <cstdlib>

#include "formats/mrt.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  MrtOptions options;
  const uint8_t choice = size > 0 ? data[0] : 0;
  if (choice % 8 == 7) options.peer = MrtPeer{.position = choice / 8, .as = {}, .address = {}};
  if (choice % 8 == 6) options.peer = MrtPeer{.position = {}, .as = 65000 + choice / 8, .address = {}};
  if (choice % 8 == 5) options.peer = MrtPeer{.position = {}, .as = {}, .address = {0, 0xc0000200u + choice / 8, 4}};
  Rib rib;
  MrtPaths paths;
  InputFile file = InputFile::over({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  file.set_limit(uint64_t{4} << 20);
  const auto start = file.peek(kMrtStart);
  if (start) (void)looks_like_mrt(*start);
  const bool keep = choice % 2 == 1;
  const auto report = parse_mrt(file, rib, options, keep ? &paths : nullptr);
  if (!report) {
    if (!rib.settled() || rib.next_hop_count() != 0 || !paths.routes.empty() || !paths.notes.empty()) std::abort();
    (void)to_string(report.error());
    return 0;
  }
  rib.settle();
  // Ranks of a prefix begin with 0 and leave none out, and each note that is named is there.
  uint64_t prefixes = 0;
  for (size_t i = 0; i < paths.routes.size(); ++i) {
    const RankedRoute& r = paths.routes[i];
    if (r.metric == 0) ++prefixes;
    if (r.metric != 0 && (i == 0 || paths.routes[i - 1].metric + 1 != r.metric)) std::abort();
    if (r.metric >= options.paths || r.note > paths.notes.size()) std::abort();
  }
  if (keep) {
    if (rib.size() != 0 || prefixes != report->routes4 + report->routes6) std::abort();
    return 0;
  }
  if (rib.size() + rib.duplicates() != report->routes4 + report->routes6) std::abort();
  return 0;
}

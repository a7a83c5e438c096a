// Any text: no crash; what is accepted is in the Rib, and what is refused leaves the Rib alone.
#include <cstdlib>
#include <string_view>

#include "formats/route_text.h"
#include "net/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  Rib rib;
  const auto report = parse_routes({reinterpret_cast<const char*>(data), size}, "fuzz", rib);
  if (!report) {
    if (report.error().diagnostics.empty() || !rib.settled() || rib.next_hop_count() != 0) std::abort();
    (void)to_string(report.error());
    return 0;
  }
  rib.settle();
  if (rib.size() + rib.duplicates() != report->routes4 + report->routes6) std::abort();
  // Written out again, the table reads the same.
  std::string text;
  for (const Route4& r : rib.routes4()) {
    text += to_string(IpPrefix{{0, r.address, 4}, r.length}) + " " + rib.next_hop_name(r.next_hop) + "\n";
  }
  for (const Route6& r : rib.routes6()) {
    text += to_string(IpPrefix{{r.hi, r.lo, 6}, r.length}) + " " + rib.next_hop_name(r.next_hop) + "\n";
  }
  // Some names cannot stand alone in a line: comments, and the words of `ip route`.
  for (const std::string& name : rib.next_hop_names()) {
    if (name[0] == '#' || name == "via" || name == "dev") return 0;
  }
  Rib again;
  if (!parse_routes(text, "again", again)) std::abort();
  again.settle();
  if (again.size() != rib.size() || again.duplicates() != 0) std::abort();
  return 0;
}

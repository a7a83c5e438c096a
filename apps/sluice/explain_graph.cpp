// host only
#include "explain_graph.h"

#include <algorithm>

#include "control/json.h"
#include "control/packet_way.h"
#include "pipeline.h"

namespace sluice::app {

Exit explain_graph(const std::vector<std::string>& words, const std::vector<uint8_t>& frame, uint32_t wire_bytes) {
  auto [file, defines] = read_words(words, {});
  if (file.empty()) fail(Exit::kUsage, "no configuration is given");
  std::string text = read_configuration(file, defines);
  const auto pipeline = load_pipeline(parse_text(std::move(text), title_of(file), defines), defines, {}, false, false,
                                      Scheduled::kAllowed);
  const Router& router = pipeline->router;
  unsigned source = ~0u, sources = 0;
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    if (router.elements[e]->kind() != ElementKind::kSource) continue;
    if (sources++ == 0) source = e;
  }
  if (source == ~0u) fail(Exit::kBadInput, fmt::format("{}: no element is a packet source", file));
  if (sources > 1) {
    note(fmt::format("the packet enters at {}, the first of {} sources", router.elements[source]->name, sources));
  }
  Json way = packet_way(router, pipeline->tables, source, frame, wire_bytes);
  if (json_output()) {
    way["source"] = router.elements[source]->name;
    way["bytes"] = frame.size();
    print_json(way);
  } else {
    print_out(fmt::format("packet of {} bytes, enters at {}\n{}", frame.size(), router.elements[source]->name,
                          packet_way_text(way)));
  }
  return Exit::kOk;
}

}  // namespace sluice::app

// host only
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {

void register_counter(Registry& registry) {
  ElementClass counter;
  counter.name = "Counter";
  counter.group = "Basics";
  counter.summary = "counts packets and bytes";
  counter.description =
      "Packets pass unchanged. Every element counts what reaches it; a Counter is a name for a place to count at.";
  counter.example = "in :: FromDump(a.pcap) -> seen :: Counter -> ToDump(b.pcap);";
  counter.make = make_element<StageElement<PassStage>>();
  registry.add(counter);

  ElementClass null = std::move(counter);
  null.name = "Null";
  null.summary = "does nothing";
  null.description = "Packets pass unchanged.";
  null.example = "in -> Null -> out;";
  registry.add(std::move(null));
}

}  // namespace sluice

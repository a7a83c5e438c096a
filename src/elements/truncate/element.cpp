// host only
// Truncate. Source: its Click manual page.
#include "elements/stage_element.h"
#include "elements/truncate/stage.h"
#include "graph/router.h"

namespace sluice {
namespace {

class Truncate final : public StageElement<TruncateStage> {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    stage_.bytes = static_cast<uint32_t>(arguments.get_uint("LENGTH"));
    stage_.keep_wire = arguments.get_bool("EXTRA_LENGTH") ? 1 : 0;
  }
};

}  // namespace

void register_truncate(Registry& registry) {
  ElementClass c{.name = "Truncate", .group = "Headers", .summary = "cuts packets off at a length"};
  c.description =
      "Shorter packets pass unchanged. Headers that EtherEncap put in front of a frame cannot be cut: if the end would "
      "lie there, the packet is dropped.";
  c.arguments = {
      {.name = "LENGTH",
       .kind = ArgumentKind::kUint,
       .positional = true,
       .mandatory = true,
       .unit = "bytes",
       .help = "largest length after the cut",
       .max = 262144},
      bool_argument("EXTRA_LENGTH", "true", "the packet stays as long on the wire as it was, as if captured in part")};
  c.drops = {DropReason::kNoHeadroom};
  c.example = "in -> Truncate(64) -> ToDump(heads.pcap);";
  c.make = make_element<Truncate>();
  registry.add(std::move(c));
}

}  // namespace sluice

// host only
#include "elements/stage_element.h"
#include "elements/strip/stage.h"
#include "graph/router.h"

namespace sluice {
namespace {

template <typename Stage>
class StripElement final : public StageElement<Stage> {
 public:
  bool writes_link_header() const override { return true; }
  void configure(const Arguments& arguments, Diagnostics&) override {
    this->stage_.bytes = static_cast<uint32_t>(arguments.get_uint("LENGTH"));
  }
};

}  // namespace

void register_strip(Registry& registry) {
  const ArgumentSpec length{.name = "LENGTH",
                            .kind = ArgumentKind::kUint,
                            .positional = true,
                            .mandatory = true,
                            .unit = "bytes",
                            .help = "how far the data pointer moves",
                            .min = 0,
                            .max = 262144};
  ElementClass strip{.name = "Strip", .group = "Headers", .summary = "removes bytes from the packet's start"};
  strip.description =
      "Moves the data pointer forward; the bytes stay where they are, so that Unstrip can bring them back.";
  strip.arguments = {length};
  strip.drops = {DropReason::kStripTooShort};
  strip.example = "in -> Strip(14) -> CheckIPHeader -> out;";
  strip.make = make_element<StripElement<StripStage>>();
  registry.add(std::move(strip));

  ElementClass unstrip{.name = "Unstrip", .group = "Headers", .summary = "puts bytes back at the packet's start"};
  unstrip.description =
      "Moves the data pointer back: over stripped bytes, which come back as they were, and over the 128 bytes of "
      "headroom "
      "in front of them, which are zeros.";
  unstrip.arguments = {length};
  unstrip.drops = {DropReason::kNoHeadroom};
  unstrip.example = "in -> Strip(14) -> CheckIPHeader -> Unstrip(14) -> out;";
  unstrip.make = make_element<StripElement<UnstripStage>>();
  registry.add(std::move(unstrip));
}

}  // namespace sluice

// host only
#include "elements/paint/stage.h"
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class Paint final : public StageElement<PaintStage> {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    stage_.color = static_cast<uint8_t>(arguments.get_uint("COLOR"));
    if (arguments.has("ANNO")) {
      Diagnostic d = arguments.error_at("ANNO", "a packet has one paint; ANNO cannot name another byte");
      d.suggestion = "leave ANNO out";
      diagnostics.add(std::move(d));
    }
  }
};

class PaintSwitch final : public StageElement<PaintSwitchStage> {
 public:
  bool output_optional(unsigned) const override { return false; }
  Result<void> bind(const TableSet&, StageSlot& slot) const override {
    PaintSwitchStage stage = stage_;
    stage.outputs = static_cast<uint8_t>(outputs);
    place(slot, stage);
    return {};
  }
};

}  // namespace

void register_paint(Registry& registry) {
  ElementClass paint{.name = "Paint", .group = "Marks", .summary = "sets the paint of a packet"};
  paint.description = "The paint is one byte that travels with the packet; it is 0 when the packet enters.";
  paint.arguments = {
      {.name = "COLOR",
       .kind = ArgumentKind::kUint,
       .positional = true,
       .mandatory = true,
       .help = "the new paint",
       .min = 0,
       .max = 255},
      {.name = "ANNO", .kind = ArgumentKind::kRaw, .positional = true, .help = "refused: there is one paint"},
  };
  paint.example = "from_lan -> Paint(1) -> router;";
  paint.make = make_element<Paint>();
  registry.add(std::move(paint));

  ElementClass paint_switch{
      .name = "PaintSwitch", .group = "Marks", .summary = "sends a packet to the output that its paint names"};
  paint_switch.description = "Output N gets the packets of paint N. A packet whose paint has no output is dropped.";
  paint_switch.outputs = {1, kMaxOutputs};
  paint_switch.drops = {DropReason::kUnconnectedOutput};
  paint_switch.example = "ps :: PaintSwitch; in -> ps; ps[0] -> a; ps[1] -> b;";
  paint_switch.make = make_element<PaintSwitch>();
  registry.add(std::move(paint_switch));
}

}  // namespace sluice

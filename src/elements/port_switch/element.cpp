// host only
#include "elements/port_switch/stage.h"
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class PortSwitch final : public StageElement<PortSwitchStage> {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    for (const ArgumentValue& value : arguments.rest()) {
      if (stage_.count == PortSwitchStage::kMaxPorts) {
        diagnostics.add(arguments.error_in(value, "more than 14 ports"));
        return;
      }
      for (uint8_t i = 0; i < stage_.count; ++i) {
        if (stage_.ports[i] == value.number) diagnostics.add(arguments.error_in(value, "this port is there twice"));
      }
      stage_.ports[stage_.count++] = static_cast<uint16_t>(value.number);
    }
  }
  Result<void> bind(const TableSet&, StageSlot& slot) const override {
    PortSwitchStage stage = stage_;
    stage.others = outputs > stage.count;
    place(slot, stage);
    return {};
  }
  std::optional<unsigned> output_count() const override { return stage_.count + 1u; }
  bool output_optional(unsigned output) const override { return output == stage_.count; }
  std::optional<uint16_t> adjacency_port(unsigned output) const override {
    return output < stage_.count ? std::optional(stage_.ports[output]) : std::nullopt;
  }
};

}  // namespace

void register_port_switch(Registry& registry) {
  ElementClass c{.name = "PortSwitch",
                 .group = "Routing",
                 .summary = "separates packets by the output port that AdjacencyRewrite chose"};
  c.description =
      "Output i gets the packets of the i-th PORT; packets of other ports leave by the last output, or are dropped "
      "where it is not connected.";
  c.arguments = {{.name = "PORT",
                  .kind = ArgumentKind::kUint,
                  .positional = true,
                  .mandatory = true,
                  .repeated = true,
                  .help = "an output port of the adjacencies",
                  .min = 0,
                  .max = 65535}};
  c.outputs = {1, PortSwitchStage::kMaxPorts + 1};
  c.output_docs = {"packets of the first PORT, and so on; the last output: all others"};
  c.drops = {DropReason::kUnconnectedOutput};
  c.example =
      "rewrite -> ps :: PortSwitch(1, 2); ps[0] -> ToDump(one.pcap); ps[1] -> ToDump(two.pcap); ps[2] -> Discard;";
  c.make = make_element<PortSwitch>();
  registry.add(std::move(c));
}

}  // namespace sluice

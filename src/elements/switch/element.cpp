// host only
// Switch and RoundRobinSwitch. Source: their Click manual pages.
#include "elements/flow_element.h"

namespace sluice {
namespace {

const ArgumentSpec kOutput{.name = "OUTPUT",
                           .kind = ArgumentKind::kInt,
                           .positional = true,
                           .default_text = "0",
                           .help = "where packets go; below 0: they are dropped",
                           .min = -1,
                           .max = kMaxOutputs - 1.0};

class Switch final : public FlowElement {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override { output_ = arguments.get_int("OUTPUT"); }
  void push(FlowContext& context, unsigned, PacketBox packet) override {
    if (output_ < 0) {
      context.drop(std::move(packet), DropReason::kDiscard);
    } else {
      context.push(static_cast<unsigned>(output_), std::move(packet));
    }
  }
  std::vector<Handler> handlers() override {
    const auto nothing = [](FlowContext&) {};
    Handler config{"config",
                   [this](FlowContext&, std::string_view) -> Result<std::string> { return std::to_string(output_); },
                   {}};
    return {value_handler("switch", &output_, kOutput, nothing), std::move(config)};
  }

 private:
  int64_t output_ = 0;
};

class RoundRobinSwitch final : public FlowElement {
 public:
  void push(FlowContext& context, unsigned, PacketBox packet) override {
    const unsigned output = next_;
    next_ = output + 1 == outputs ? 0 : output + 1;
    context.push(output, std::move(packet));
  }

 private:
  unsigned next_ = 0;
};

}  // namespace

void register_switch(Registry& registry) {
  ElementClass c{.name = "Switch", .group = "Basics", .summary = "sends packets to an output that can be changed"};
  c.description = "Handler: `switch`, the output; below 0 packets are dropped.";
  c.arguments = {kOutput};
  c.outputs = {1, kMaxOutputs};
  c.processing = "h/h";
  c.drops = {DropReason::kDiscard, DropReason::kUnconnectedOutput};
  c.example = "s :: Switch(1); in -> s; s[0] -> a; s[1] -> b;";
  c.make = make_flow<Switch>();
  registry.add(c);

  c.name = "RoundRobinSwitch";
  c.summary = "sends each packet to the next output";
  c.description = "Packet by packet, round robin.";
  c.arguments = {};
  c.drops = {};
  c.example = "r :: RoundRobinSwitch; in -> r; r[0] -> a; r[1] -> b;";
  c.make = make_flow<RoundRobinSwitch>();
  registry.add(std::move(c));
}

}  // namespace sluice

// host only
#include <memory>
#include <vector>

#include "elements/example_flow/flows.h"
#include "elements/shaping.h"
#include "graph/router.h"

namespace sluice {
namespace {

// Of a batch, before its turn: nothing of the table, which earlier batches still change.
struct PreparedFlows final : Element::Ordered::Prepared {
  std::vector<ExampleFlowId> ids = std::vector<ExampleFlowId>(Batch::kMaxPackets);
};

// Why a packet leaves by output 1; kNone: it passes.
DropReason refusal(ExampleFlows& flows, const FlowKey& key, const ExampleFlowId& id, uint64_t now_ns) {
  if (key.family == 0) return DropReason::kNotIp;
  return flows.passes(id, now_ns) ? DropReason::kNone : DropReason::kPoliced;
}

class OrderedFlows final : public Element::Ordered {
 public:
  explicit OrderedFlows(ExampleFlows flows) : flows_(std::move(flows)) {}
  std::unique_ptr<Prepared> make_prepared() const override { return std::make_unique<PreparedFlows>(); }
  void prepare(Batch& batch, Lengths*, const Selection& packets, Prepared& prepared) const override {
    auto& ids = static_cast<PreparedFlows&>(prepared).ids;
    packets.for_each([&](uint32_t i) { ids[i] = ExampleFlowId(batch.key(i)); });
  }
  void process(Batch& batch, Lengths*, const Selection& packets, Prepared* prepared,
               std::span<Selection> out) override {
    const auto& ids = static_cast<PreparedFlows*>(prepared)->ids;
    packets.for_each([&](uint32_t i) {
      const DropReason why = refusal(flows_, batch.key(i), ids[i], clock_.at(batch.timestamp_ns(i)));
      if (why != DropReason::kNone) batch.annotation(i).reason = why;
      if (const unsigned output = why == DropReason::kNone ? 0 : 1; output < out.size()) out[output].add(i);
    });
  }

 private:
  ExampleFlows flows_;
  PacketClock clock_;
};

class ExampleFlow final : public OrderedElement {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    limit_ = arguments.get_uint("LIMIT");
    timeout_ns_ = arguments.get_time_ns("TIMEOUT");
    capacity_ = arguments.get_uint("CAPACITY");
  }
  bool output_optional(unsigned output) const override { return output > 0; }
  StageTraits stage_traits() const override { return {kFieldKey, kFieldReason}; }
  std::unique_ptr<Ordered> make_ordered() const override {
    return std::make_unique<OrderedFlows>(ExampleFlows(limit_, timeout_ns_, capacity_));
  }

  // Packet by packet, where the packet scheduler runs the graph.
  Time time() const override { return Time::kLooks; }
  Result<void> start(FlowContext&) override {
    flows_ = ExampleFlows(limit_, timeout_ns_, capacity_);
    clock_ = {};
    return {};
  }
  void push(FlowContext& context, unsigned, PacketBox packet) override {
    Packet& p = packet->registers;
    const uint64_t now = context.packet_time() ? clock_.at(packet->timestamp_ns) : context.now_ns();
    const DropReason why = refusal(flows_, p.key, ExampleFlowId(p.key), now);
    if (why != DropReason::kNone) p.reason = why;
    context.push(why == DropReason::kNone ? 0 : 1, std::move(packet));
  }
  std::vector<Handler> handlers() override {
    return {{"flows",
             [this](FlowContext&, std::string_view) -> Result<std::string> { return std::to_string(flows_.size()); },
             {}}};
  }

 private:
  uint64_t limit_ = 0, timeout_ns_ = 0, capacity_ = 0;
  ExampleFlows flows_;
  PacketClock clock_;
};

}  // namespace

void register_example_flow(Registry& registry) {
  ElementClass c{.name = "ExampleFlow", .group = "Flows", .summary = "lets the first packets of each flow pass"};
  c.description = "A skeleton to copy. It is compiled and tested with the rest, and is not part of the product.";
  c.arguments = {{.name = "LIMIT",
                  .kind = ArgumentKind::kUint,
                  .positional = true,
                  .mandatory = true,
                  .help = "packets of each flow that pass"},
                 {.name = "TIMEOUT",
                  .kind = ArgumentKind::kTime,
                  .default_text = "60s",
                  .help = "time without a packet after which a flow ends"},
                 {.name = "CAPACITY",
                  .kind = ArgumentKind::kUint,
                  .default_text = "65536",
                  .help = "flows at most; packets of others leave by output 1",
                  .min = 1,
                  .max = 1e9}};
  c.outputs = {1, 2};
  c.output_docs = {"the first LIMIT packets of each flow", "all others"};
  c.processing = "h/h";
  c.drops = {DropReason::kPoliced, DropReason::kNotIp};
  c.example = "in -> IPInput -> ExampleFlow(10) -> out;";
  c.make = make_flow<ExampleFlow>();
  registry.add(std::move(c));
}

}  // namespace sluice

// host only
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class Idle final : public Element {
 public:
  ElementKind kind() const override { return ElementKind::kHost; }
  bool output_optional(unsigned) const override { return true; }
  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    packets.for_each([&](uint32_t i) { context.drop(batch, i, DropReason::kDiscard); });
  }
};

}  // namespace

void register_idle(Registry& registry) {
  ElementClass c{.name = "Idle", .group = "Basics", .summary = "produces no packets and drops what it receives"};
  c.description = "Closes ports that are not needed.";
  c.inputs = {0, kAnyPorts};
  c.outputs = {0, kAnyPorts};
  c.processing = "a/a#";
  c.drops = {DropReason::kDiscard};
  c.example = "Idle -> unused_input;";
  c.make = make_element<Idle>();
  registry.add(std::move(c));
}

}  // namespace sluice

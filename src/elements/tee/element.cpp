// host only
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class Tee final : public Element {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    if (arguments.has("N")) count_ = static_cast<unsigned>(arguments.get_uint("N"));
  }
  ElementKind kind() const override { return ElementKind::kHost; }
  bool makes_packets() const override { return true; }
  std::optional<unsigned> output_count() const override { return count_; }
  bool output_optional(unsigned) const override { return false; }

  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    for (unsigned out = 0; out + 1 < outputs; ++out) {
      packets.for_each([&](uint32_t i) {
        Batch* copy = context.spawn(out, batch.extent(i).end);
        if (copy == nullptr || !copy->clone(batch, i)) context.lose(1, DropReason::kNoBuffer);
      });
    }
    context.forward(outputs - 1, packets);
  }

 private:
  std::optional<unsigned> count_;
};

}  // namespace

void register_tee(Registry& registry) {
  ElementClass c{.name = "Tee", .group = "Basics", .summary = "sends a copy of each packet to every output"};
  c.description = "The packet itself leaves by the last output; the others get copies, which count as generated.";
  c.arguments = {{.name = "N",
                  .kind = ArgumentKind::kUint,
                  .positional = true,
                  .help = "number of outputs; default: as many as are connected",
                  .min = 1,
                  .max = 64}};
  c.outputs = {1, 64};
  c.processing = "h/h";
  c.drops = {DropReason::kNoBuffer};
  c.example = "in -> t :: Tee; t[0] -> ToDump(copy.pcap); t[1] -> router;";
  c.make = make_element<Tee>();
  registry.add(std::move(c));
}

}  // namespace sluice

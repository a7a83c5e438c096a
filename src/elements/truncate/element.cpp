// host only
// Truncate. Source: its Click manual page.
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class Truncate final : public Element {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    bytes_ = static_cast<uint32_t>(arguments.get_uint("LENGTH"));
    keep_wire_ = arguments.get_bool("EXTRA_LENGTH");
  }
  ElementKind kind() const override { return ElementKind::kHost; }
  StageTraits stage_traits() const override { return {kFieldExtent, kFieldExtent}; }
  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    packets.for_each([&](uint32_t i) {
      Extent& extent = batch.extent(i);
      if (batch.data_length(i) <= bytes_) return;
      extent.end = static_cast<uint32_t>(extent.data + static_cast<int64_t>(bytes_));
      if (!keep_wire_) extent.wire_end = extent.end;
    });
    context.forward(0, packets);
  }

 private:
  uint32_t bytes_ = 0;
  bool keep_wire_ = true;
};

}  // namespace

void register_truncate(Registry& registry) {
  ElementClass c;
  c.name = "Truncate";
  c.group = "Headers";
  c.summary = "cuts packets off at a length";
  c.description = "Shorter packets pass unchanged.";
  c.arguments = {{.name = "LENGTH",
                  .kind = ArgumentKind::kUint,
                  .positional = true,
                  .mandatory = true,
                  .unit = "bytes",
                  .help = "what is left at most",
                  .max = 262144},
                 {.name = "EXTRA_LENGTH",
                  .kind = ArgumentKind::kBool,
                  .default_text = "true",
                  .help = "the packet stays as long on the wire as it was, as if captured in part"}};
  c.example = "in -> Truncate(64) -> ToDump(heads.pcap);";
  c.make = make_element<Truncate>();
  registry.add(std::move(c));
}

}  // namespace sluice

// host only
#include "elements/example/stage.h"
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class Example final : public StageElement<ExampleStage> {
 public:
  // The schema below has been checked when this is called: only what it cannot say is checked here.
  void configure(const Arguments& arguments, Diagnostics&) override {
    stage_.limit = static_cast<uint32_t>(arguments.get_uint("LIMIT"));
  }
};

}  // namespace

void register_example(Registry& registry) {
  ElementClass c{.name = "Example", .group = "Basics", .summary = "lets packets up to a length pass"};
  c.description = "A skeleton to copy. It is compiled and tested with the rest, and is not part of the product.";
  c.arguments = {{.name = "LIMIT",
                  .kind = ArgumentKind::kUint,
                  .positional = true,
                  .mandatory = true,
                  .unit = "bytes",
                  .help = "the longest packet that passes",
                  .min = 0,
                  .max = 262144}};
  c.outputs = {1, 2};
  c.output_docs = {"packets up to LIMIT", "longer packets"};
  c.drops = {DropReason::kTooBig};
  c.example = "in -> Example(1500) -> out;";
  c.make = make_element<Example>();
  registry.add(std::move(c));
}

}  // namespace sluice

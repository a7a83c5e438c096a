// host only
#include <fmt/format.h>

#include "elements/stage_element.h"
#include "elements/text_output.h"
#include "graph/router.h"

namespace sluice {
namespace {

class Print final : public Element {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override { options_ = PrintOptions::read(arguments); }
  ElementKind kind() const override { return ElementKind::kHost; }
  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    if (options_.active) {
      std::string line;
      packets.for_each([&](uint32_t i) {
        line.assign(options_.prefix);
        if (options_.timestamp) fmt::format_to(std::back_inserter(line), "{}: ", timestamp_text(batch.timestamp_ns(i)));
        const uint32_t length = batch.data_length(i);
        fmt::format_to(std::back_inserter(line), "{:4}", length);
        const uint32_t shown = options_.contents == "none" ? 0 : options_.shown(length);
        if (shown != 0) {
          line += " | ";
          const uint8_t* data = batch.frame(i) + batch.extent(i).data;
          if (options_.contents == "hex") {
            append_hex(line, data, shown, 4, 0);
          } else {
            append_ascii(line, data, shown, 8, 0);
          }
        }
        context.print(batch, i, line);
      });
    }
    context.forward(0, packets);
  }

 private:
  PrintOptions options_;
};

}  // namespace

void register_print(Registry& registry) {
  ElementClass c{.name = "Print", .group = "Debugging", .summary = "prints packets to stderr, in hexadecimal"};
  c.description =
      "One line per packet: the label, the length, the first bytes, as in `seen:   60 | ffffffff ffff0200`. Lines come "
      "in packet order.";
  c.arguments = {
      {.name = "LABEL", .kind = ArgumentKind::kString, .positional = true, .help = "printed before each line"},
      {.name = "MAXLENGTH",
       .kind = ArgumentKind::kInt,
       .positional = true,
       .default_text = "24",
       .unit = "bytes",
       .help = "how much of the packet is printed; -1: all",
       .min = -1,
       .max = 262144},
      {.name = "NBYTES",
       .kind = ArgumentKind::kInt,
       .unit = "bytes",
       .help = "another name of MAXLENGTH",
       .min = -1,
       .max = 262144},
      {.name = "CONTENTS",
       .kind = ArgumentKind::kChoice,
       .default_text = "hex",
       .help = "how bytes are printed",
       .choices = {"none", "hex", "ascii"}},
      bool_argument("TIMESTAMP", "false", "print the packet's timestamp"),
      bool_argument("ACTIVE", "true", "false: print nothing"),
  };
  c.example = "in -> Print(seen, 16) -> out;";
  c.make = make_element<Print>();
  registry.add(std::move(c));
}

}  // namespace sluice

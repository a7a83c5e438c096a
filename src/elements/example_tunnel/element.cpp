// host only
#include "elements/example_tunnel/stage.h"
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class ExampleTunnel final : public StageElement<ExampleTunnelStage> {
 public:
  explicit ExampleTunnel(bool decapsulates) { stage_.decapsulates = decapsulates ? 1 : 0; }
  void configure(const Arguments& arguments, Diagnostics&) override {
    const auto put = [&](const char* argument, unsigned at) {
      const uint32_t address = arguments.get_ipv4(argument);
      for (unsigned i = 0; i < 4; ++i) stage_.ends[at + i] = static_cast<uint8_t>(address >> (24 - 8 * i));
    };
    put("LOCAL", 0);
    put("REMOTE", 4);
  }
};

}  // namespace

void register_example_tunnel(Registry& registry) {
  const auto end = [](const char* name, const char* help) {
    return ArgumentSpec{.name = name, .kind = ArgumentKind::kIpv4, .positional = true, .mandatory = true, .help = help};
  };
  ElementClass c;
  c.group = "Headers";
  c.description = "A skeleton to copy. It is compiled and tested with the rest, and is not part of the product.";
  c.arguments = {end("LOCAL", "IPv4 address of this end"), end("REMOTE", "IPv4 address of the other end")};

  ElementClass encap = c;
  encap.name = "ExampleTunnelEncap";
  encap.summary = "puts an IPv4 header of a tunnel in front of IP packets";
  encap.drops = {DropReason::kNotIp, DropReason::kTooBig, DropReason::kNoHeadroom};
  encap.example = "in -> IPInput -> Strip(14) -> ExampleTunnelEncap(192.0.2.1, 192.0.2.2) -> out;";
  encap.make = [](std::string_view) { return std::make_unique<ExampleTunnel>(false); };
  registry.add(std::move(encap));

  ElementClass decap = std::move(c);
  decap.name = "ExampleTunnelDecap";
  decap.summary = "takes the IPv4 header of a tunnel off";
  decap.outputs = {1, 2};
  decap.output_docs = {"inner packets", "packets that are not of this tunnel"};
  decap.drops = {DropReason::kIpv4BadChecksum, DropReason::kBadFragment, DropReason::kIpv4BadTotalLength,
                 DropReason::kIpv4BadVersion, DropReason::kClassifierNoMatch};
  decap.example = "in -> IPInput -> Strip(14) -> ExampleTunnelDecap(192.0.2.1, 192.0.2.2) -> out;";
  decap.make = [](std::string_view) { return std::make_unique<ExampleTunnel>(true); };
  registry.add(std::move(decap));
}

}  // namespace sluice

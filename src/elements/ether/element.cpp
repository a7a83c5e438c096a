// host only
#include <cstring>

#include "elements/ether/stage.h"
#include "elements/flow_element.h"
#include "elements/gpu_classes.h"
#include "elements/stage_element.h"
#include "graph/router.h"
#include "net/bytes.h"
#include "net/text.h"

namespace sluice {
namespace {

class EtherEncap final : public StageElement<EtherEncapStage> {
 public:
  bool writes_link_header() const override { return true; }
  void configure(const Arguments& arguments, Diagnostics&) override {
    const MacAddress source = arguments.get_mac("SRC");
    const MacAddress destination = arguments.get_mac("DST");
    std::memcpy(stage_.header, destination.bytes, 6);
    std::memcpy(stage_.header + 6, source.bytes, 6);
    store_be16(stage_.header + 12, static_cast<uint16_t>(arguments.get_uint("ETHERTYPE")));
  }
  std::vector<Handler> handlers() override {
    return {{"ethertype",
             [this](FlowContext&, std::string_view) -> Result<std::string> {
               return std::to_string(load_be16(stage_.header + 12));
             },
             [this](FlowContext& context, std::string_view text) -> Result<void> {
               auto value = handler_value({.name = "ETHERTYPE", .kind = ArgumentKind::kUint, .max = 65535}, text);
               if (!value.ok()) return std::move(value).error();
               store_be16(stage_.header + 12, static_cast<uint16_t>(value->number));
               return context.rebind();
             }},
            address("src", stage_.header + 6),
            address("dst", stage_.header)};
  }

 private:
  static Handler address(const char* handler, uint8_t* at) {
    return {handler,
            [at](FlowContext&, std::string_view) -> Result<std::string> {
              MacAddress mac;
              std::memcpy(mac.bytes, at, 6);
              return to_string(mac);
            },
            [at](FlowContext& context, std::string_view text) -> Result<void> {
              auto value = handler_value({.name = "ADDRESS", .kind = ArgumentKind::kMac}, text);
              if (!value.ok()) return std::move(value).error();
              std::memcpy(at, value->mac.bytes, 6);
              return context.rebind();
            }};
  }
};

class EtherMirror final : public StageElement<EtherMirrorStage> {
 public:
  bool writes_link_header() const override { return true; }
};

class EtherRewrite final : public StageElement<EtherRewriteStage> {
 public:
  bool writes_link_header() const override { return true; }
  void configure(const Arguments& arguments, Diagnostics&) override {
    const MacAddress source = arguments.get_mac("SRC");
    const MacAddress destination = arguments.get_mac("DST");
    std::memcpy(stage_.addresses, destination.bytes, 6);
    std::memcpy(stage_.addresses + 6, source.bytes, 6);
  }
};

}  // namespace

void register_ether(Registry& registry) {
  const ArgumentSpec source{
      .name = "SRC", .kind = ArgumentKind::kMac, .positional = true, .mandatory = true, .help = "source address"};
  const ArgumentSpec destination{
      .name = "DST", .kind = ArgumentKind::kMac, .positional = true, .mandatory = true, .help = "destination address"};

  ElementClass encap{.name = "EtherEncap", .group = "Headers", .summary = "puts an Ethernet header before the packet"};
  encap.description =
      "The header goes into the 128 bytes of headroom before the data; the packet is not copied. Handlers: "
      "`ethertype`, `src`, `dst`.";
  encap.arguments = {{.name = "ETHERTYPE",
                      .kind = ArgumentKind::kUint,
                      .positional = true,
                      .mandatory = true,
                      .help = "EtherType, such as 0x0800",
                      .min = 0,
                      .max = 65535},
                     source,
                     destination};
  encap.drops = {DropReason::kNoHeadroom};
  encap.example = "in -> Strip(14) -> EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02) -> out;";
  encap.make = make_element<EtherEncap>();
  registry.add(std::move(encap));

  ElementClass rewrite{.name = "EtherRewrite", .group = "Headers", .summary = "writes both Ethernet addresses"};
  rewrite.description = "The packet's data starts with an Ethernet header; its type and tags stay.";
  rewrite.arguments = {source, destination};
  rewrite.drops = {DropReason::kTruncatedL2};
  rewrite.example = "in -> EtherRewrite(02:00:00:00:00:01, 02:00:00:00:00:02) -> out;";
  rewrite.make = make_element<EtherRewrite>();
  registry.add(std::move(rewrite));

  ElementClass mirror{
      .name = "EtherMirror", .group = "Headers", .summary = "swaps the Ethernet source and destination"};
  mirror.description = "The packet goes back to where it came from.";
  mirror.drops = {DropReason::kTruncatedL2};
  mirror.example = "in -> EtherMirror -> out;";
  mirror.make = make_element<EtherMirror>();
  registry.add(gpu_class(mirror, "GPUEtherMirrorCoalescent", false));
  registry.add(gpu_class(mirror, "GPUEtherMirrorCommList", true));
  registry.add(std::move(mirror));
}

}  // namespace sluice

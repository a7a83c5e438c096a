// host only
// SetIPDSCP. Source: its Click manual page; RFC 2474 (the field), RFC 1624 (the checksum).
#include "elements/flow_element.h"
#include "elements/set_ip_dscp/stage.h"
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class SetIpDscp final : public StageElement<SetIpDscpStage> {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    stage_.dscp = static_cast<uint8_t>(arguments.get_uint("DSCP"));
  }
  std::vector<Handler> handlers() override {
    return {{"dscp",
             [this](FlowContext&, std::string_view) -> Result<std::string> { return std::to_string(stage_.dscp); },
             [this](FlowContext& context, std::string_view text) -> Result<void> {
               auto value = handler_value(kDscp, text);
               if (!value.ok()) return std::move(value).error();
               stage_.dscp = static_cast<uint8_t>(value->number);
               return context.rebind();
             }}};
  }

  static inline const ArgumentSpec kDscp{.name = "DSCP",
                                         .kind = ArgumentKind::kUint,
                                         .positional = true,
                                         .mandatory = true,
                                         .help = "the differentiated services codepoint",
                                         .max = 63};
};

}  // namespace

void register_set_ip_dscp(Registry& registry) {
  ElementClass c{
      .name = "SetIPDSCP", .group = "Headers", .summary = "sets the differentiated services codepoint of IP packets"};
  c.description =
      "IPv4 (with its checksum) and IPv6; ECN stays. Later access lists and patterns see the new codepoint. Packets "
      "that are not IP pass unchanged. Handler: `dscp`.";
  c.arguments = {SetIpDscp::kDscp};
  c.example = "in -> CheckIPHeader -> SetIPDSCP(46) -> out;";
  c.make = make_element<SetIpDscp>();
  registry.add(std::move(c));
}

}  // namespace sluice

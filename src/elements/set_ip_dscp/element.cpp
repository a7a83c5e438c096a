// host only
// SetIPDSCP. Source: its Click manual page; RFC 2474 (the field), RFC 1624 (the checksum).
#include "elements/flow_element.h"
#include "elements/stage_element.h"
#include "graph/router.h"
#include "net/bytes.h"
#include "net/checksum.h"

namespace sluice {
namespace {

class SetIpDscp final : public Element {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override { dscp_ = arguments.get_uint("DSCP"); }
  ElementKind kind() const override { return ElementKind::kHost; }
  StageTraits stage_traits() const override { return {kFieldFrame | kFieldL3, kFieldFrame}; }
  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    packets.for_each([&](uint32_t i) {
      const uint16_t l3 = batch.extent(i).l3;
      if (batch.key(i).family == 0 || uint32_t{l3} + 12 > batch.extent(i).end) return;
      uint8_t* ip = batch.frame(i) + l3;
      const uint16_t before = load_be16(ip);
      // The six bits above ECN; in IPv6 they lie across two bytes.
      const bool six = ip[0] >> 4 == 6;
      const auto after = static_cast<uint16_t>(six ? (before & 0xf03f) | dscp_ << 6 : (before & 0xff03) | dscp_ << 2);
      store_be16(ip, after);
      if (!six) store_be16(ip + 10, checksum_update(load_be16(ip + 10), before, after));
    });
    context.forward(0, packets);
  }
  std::vector<Handler> handlers() override {
    return {value_handler("dscp", &dscp_, kDscp, [](FlowContext&) {})};
  }

  static inline const ArgumentSpec kDscp{.name = "DSCP",
                                         .kind = ArgumentKind::kUint,
                                         .positional = true,
                                         .mandatory = true,
                                         .help = "the differentiated services codepoint",
                                         .max = 63};

 private:
  uint64_t dscp_ = 0;
};

}  // namespace

void register_set_ip_dscp(Registry& registry) {
  ElementClass c;
  c.name = "SetIPDSCP";
  c.group = "Headers";
  c.summary = "sets the differentiated services codepoint of IP packets";
  c.description = "IPv4 (with its checksum) and IPv6; packets that are not IP pass unchanged. Handler: `dscp`.";
  c.arguments = {SetIpDscp::kDscp};
  c.example = "in -> CheckIPHeader -> SetIPDSCP(46) -> out;";
  c.make = make_element<SetIpDscp>();
  registry.add(std::move(c));
}

}  // namespace sluice

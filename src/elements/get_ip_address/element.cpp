// host only
// GetIPAddress. Source: its Click manual page.
#include "elements/get_ip_address/stage.h"
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class GetIpAddress final : public StageElement<GetIpAddressStage> {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    if (arguments.has("ANNO")) {
      Diagnostic d = arguments.error_at("ANNO", "a packet has one destination; ANNO cannot name another place for it");
      d.suggestion = "leave ANNO out";
      diagnostics.add(std::move(d));
    }
    if (arguments.has("OFFSET") == arguments.has("IP")) {
      Diagnostic d = arguments.error_at(arguments.has("IP") ? "IP" : "OFFSET", "OFFSET or IP is needed, and not both");
      d.suggestion = "GetIPAddress(16) behind Strip(14), GetIPAddress(IP src) behind CheckIPHeader";
      diagnostics.add(std::move(d));
    } else if (arguments.has("OFFSET")) {
      stage_.offset = static_cast<uint32_t>(arguments.get_uint("OFFSET"));
    } else {
      stage_.from_header = 1;
      stage_.offset = arguments.get_string("IP") == "src" ? 12 : 16;
    }
  }
  StageTraits stage_traits() const override {
    StageTraits traits = traits_of<GetIpAddressStage>();
    if (stage_.from_header != 0) traits.reads |= kFieldL3;
    return traits;
  }
};

}  // namespace

void register_get_ip_address(Registry& registry) {
  ElementClass c{.name = "GetIPAddress",
                 .group = "Headers",
                 .summary = "sets the destination for lookups from the packet's bytes"};
  c.description =
      "The 4 bytes at OFFSET, or the source or destination of the IPv4 header that was checked, become the packet's "
      "destination for what follows: IPLookup and its variants, IPRoute, and access lists. The packet's bytes stay. A "
      "packet that is too short is dropped. CheckIPHeader and IPInput set the destination already; this is for graphs "
      "without them, and for lookups of sources.";
  c.arguments = {
      {.name = "OFFSET",
       .kind = ArgumentKind::kUint,
       .positional = true,
       .unit = "bytes",
       .help = "where the address begins, from the packet's first byte",
       .max = 262140},
      {.name = "ANNO", .kind = ArgumentKind::kRaw, .positional = true, .help = "refused: there is one destination"},
      {.name = "IP",
       .kind = ArgumentKind::kChoice,
       .help = "instead of OFFSET: the address of the IPv4 header",
       .choices = {"src", "dst"}}};
  c.drops = {DropReason::kIpv4TooShort, DropReason::kCapturedTooShort};
  c.example = "in -> GetIPAddress(30) -> IPLookup(10.0.0.0/8 0, 0/0 1) -> out;";
  c.make = make_element<GetIpAddress>();
  registry.add(std::move(c));
}

}  // namespace sluice

// host only
#include "elements/dec_ttl/stage.h"
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class DecTtl final : public StageElement<DecTtlStage> {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    stage_.skip_multicast = arguments.get_bool("MULTICAST") ? 0 : 1;
  }
};

}  // namespace

void register_dec_ttl(Registry& registry) {
  ElementClass c;
  c.name = "DecIPTTL";
  c.aliases = {"DecIP6HLIM"};
  c.group = "IP";
  c.summary = "decrements the TTL or hop limit";
  c.description =
      "IPv4 and IPv6 (RFC 1812 section 5.3.1, RFC 8200 section 3). The IPv4 checksum is updated incrementally (RFC "
      "1624). A packet whose "
      "TTL is 1 or 0 leaves unchanged by output 1, or is dropped.";
  c.arguments = {bool_argument("MULTICAST", "true", "false: packets to multicast addresses pass unchanged")};
  c.outputs = {1, 2};
  c.output_docs = {"decremented packets", "expired packets"};
  c.drops = {DropReason::kTtlExpired, DropReason::kHopLimitExpired};
  c.example = "in -> IPInput -> ttl :: DecIPTTL -> out; ttl[1] -> ICMPError(192.0.2.1) -> back;";
  c.make = make_element<DecTtl>();
  registry.add(std::move(c));
}

}  // namespace sluice

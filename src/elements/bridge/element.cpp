// host only
#include <fmt/format.h>

#include "elements/bridge/stage.h"
#include "elements/stage_element.h"
#include "formats/names.h"
#include "graph/click/config_text.h"
#include "graph/router.h"
#include "net/ether.h"

namespace sluice {
namespace {

struct TypeName {
  std::string_view name;
  uint16_t type;
};
constexpr TypeName kTypes[] = {{"arp", kEtherTypeArp}, {"lldp", 0x88cc}, {"lacp", 0x8809}, {"eapol", 0x888e}};

class Bridge final : public StageElement<BridgeStage> {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    const std::string& kinds = arguments.get_string("PASS");
    for (const ConfigSlice& slice : split_words(kinds)) {
      const std::string problem = add(std::string_view(kinds).substr(slice.offset, slice.length));
      if (problem.empty()) continue;
      // The default is right.
      Diagnostic d = arguments.error_in(arguments.all("PASS").front(), problem, slice.offset, slice.length);
      d.expected = "arp, nd, stp, lldp, lacp, eapol, llc, an EtherType such as 0x8847, all, or none";
      diagnostics.add(std::move(d));
    }
  }
  bool output_optional(unsigned) const override { return false; }

 private:
  std::string add(std::string_view word) {
    if (word == "none") return {};
    for (const auto& [kind, member] : {std::pair{"nd", &BridgeStage::nd},
                                       {"stp", &BridgeStage::stp},
                                       {"llc", &BridgeStage::llc},
                                       {"all", &BridgeStage::all}}) {
      if (word != kind) continue;
      stage_.*member = 1;
      return {};
    }
    for (const TypeName& t : kTypes) {
      if (word == t.name) return add_type(t.type);
    }
    const auto number = names::number(word, 0xffff);
    if (!number || *number < kEtherTypeFirst) return fmt::format("'{}' is not a kind of frame", word);
    // The parser reads these itself.
    if (*number == kEtherTypeIpv4 || *number == kEtherTypeIpv6 || is_vlan_ether_type(static_cast<uint16_t>(*number)))
      return fmt::format("'{}': the access list judges what these frames carry", word);
    return add_type(static_cast<uint16_t>(*number));
  }
  std::string add_type(uint16_t type) {
    if (stage_.type_count == BridgeStage::kMaxTypes)
      return fmt::format("more than {} EtherTypes", BridgeStage::kMaxTypes);
    stage_.types[stage_.type_count++] = type;
    return {};
  }
};

}  // namespace

void register_bridge(Registry& registry) {
  ElementClass c{.name = "Bridge",
                 .group = "Classification",
                 .summary = "passes frames that a bridge must not filter, in front of an access list"};
  c.description =
      "Takes what IPInput gives by both outputs. IP packets leave by output 0, for an access list; frames of the kinds "
      "in PASS leave by output 1, untouched; all others are dropped, malformed packets with the reason that IPInput "
      "found.\n"
      "Kinds: arp; nd (ICMPv6 133 to 137 with hop limit 255: not asked of the list); stp (802.3 frames to "
      "01:80:c2:00:00:00, 01:80:c2:00:00:08, and 01:00:0c:cc:cc:cd of PVST+); lldp, lacp (slow protocols), eapol "
      "(802.1X); llc (all other 802.3 frames, such as CDP and IS-IS); an EtherType such as 0x8847; all (every frame "
      "that is not IP); none. MAC control frames (PAUSE) never pass. "
      "EtherTypes are those behind VLAN tags.";
  c.arguments = {{.name = "PASS",
                  .kind = ArgumentKind::kRaw,
                  .default_text = "arp nd stp",
                  .help = "kinds of frames, separated by spaces"}};
  c.outputs = {2, 2};
  c.output_docs = {"IP packets, for an access list", "frames of the kinds in PASS"};
  c.drops = {DropReason::kNotIp, DropReason::kLinkControl};
  c.example =
      "AclTable(fw, FILE fw.acl); FromDevice(eth0, METHOD af_packet, PROMISC true, KERNEL false) -> in :: "
      "IPInput(MARTIANS false, SOURCE_ROUTES true, CHECKSUM false, MULTICAST true, LINK_BROADCAST true, PADDING true) "
      "-> bridge :: Bridge(PASS arp nd stp lldp) -> ACL(fw) -> out :: ToDevice(eth1); in[1] -> bridge; bridge[1] -> "
      "out;";
  c.make = make_element<Bridge>();
  registry.add(std::move(c));
}

}  // namespace sluice

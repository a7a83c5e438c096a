// host only
// NatTable, and NatSource: the last step of a translation that ConnTrack began.
#include "elements/list_table.h"
#include "elements/nat/table.h"
#include "flows/nat_rules.h"
#include "formats/nat_import.h"
#include "net/translate.h"

namespace sluice {
namespace {

Result<std::string> parse_entry(std::string_view line) {
  auto rule = parse_nat_rule(line);
  if (!rule) return std::move(rule).error();
  return to_string(*rule);
}

Result<std::vector<std::byte>> build_entries(const std::vector<std::string>& lines) {
  std::vector<NatRule> rules;
  for (const std::string& line : lines) rules.push_back(*parse_nat_rule(line));
  const auto bytes = std::as_bytes(std::span(rules));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

Result<std::string> lines_of(std::string_view text, const std::string& name) {
  return is_foreign_nat(text) ? import_nat(text, name) : std::string(text);
}

// Writes what Batch::translation has for a packet.
class NatSource final : public Element {
 public:
  ElementKind kind() const override { return ElementKind::kHost; }
  StageTraits stage_traits() const override { return {kFieldL3 | kFieldFrame, kFieldFrame}; }
  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    if (batch.translated()) packets.for_each([&](uint32_t i) { translate_source(batch, i); });
    context.forward(0, packets);
  }

 private:
  static void translate_source(Batch& batch, uint32_t i) {
    const Translation t = batch.translation(i);
    if (!t.any()) return;
    batch.translation(i) = {};
    const Extent& e = batch.extent(i);
    uint8_t* const frame = batch.frame(i);
    if (e.l3 + kIpv4HeaderBytes > e.end) return;
    if (t.quoted == 0) {
      if (t.has_source != 0)
        translate(frame + e.l3, frame + e.end, Side::kSource, {t.source, t.source_port, t.has_source_port != 0});
      return;
    }
    const uint32_t icmp = e.l3 + (frame[e.l3] & 15u) * 4;
    if (t.has_destination == 0 || icmp + 8 > e.end) return;
    translate_quoted(frame + icmp, frame + e.end, Side::kDestination,
                     {t.destination, t.destination_port, t.has_destination_port != 0});
  }
};

}  // namespace

const TableKind& nat_table_kind() {
  static const TableKind& it = add_table_kind(
      {.name = "nat",
       .option = "nat",
       .words = "NAT table",
       .entry = "NAT rule",
       .element = "NatTable",
       .parse = parse_entry,
       .build = build_entries,
       .translate = lines_of,
       .examples = {"snat 10.0.0.0/8 to 203.0.113.16-203.0.113.31", "dnat 203.0.113.5 tcp 443 to 10.0.0.5:8443",
                    "static 10.0.0.7 to 203.0.113.7", "snat 10.0.0.0/8 dst !10.0.0.0/8 via 1 to 203.0.113.1"}});
  return it;
}

void register_nat(Registry& registry) {
  registry.add(list_table_class(
      nat_table_kind(),
      "Rules of network address translation for ConnTrack, IPv4: `snat`, `dnat`, `masquerade` and `static`, described "
      "in "
      "[stateful filtering](../flows.md#network-address-translation). The first rule that is for a new connection "
      "decides, of destinations and of sources apart."));
  ElementClass c{
      .name = "NatSource", .group = "Flows", .summary = "writes the translated source of packets behind ConnTrack"};
  c.description =
      "ConnTrack with NAT writes the destinations of packets; access lists and routes then see where packets go, and "
      "where they come from. NatSource writes their sources, as their last step: behind AdjacencyRewrite, where ICMP "
      "errors about them are made with the source as it was. In ICMP errors of this graph it writes the destination "
      "that the sender knows.";
  c.processing = "h/h";
  c.example =
      "NatTable(n, FILE nat.txt); in -> IPInput -> ct :: ConnTrack(NAT n) -> src :: NatSource -> out; ct[1] -> src;";
  c.make = make_element<NatSource>();
  registry.add(std::move(c));
}

}  // namespace sluice

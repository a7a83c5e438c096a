// host only
#include "elements/adjacency/stage.h"
#include "elements/stage_element.h"
#include "elements/table_use.h"
#include "graph/router.h"
#include "tables/adjacency/adjacency_model.h"

namespace sluice {
namespace {

class AdjacencyRewrite final : public Element {
 public:
  bool writes_link_header() const override { return true; }
  void configure(const Arguments& arguments, Diagnostics&) override { table_ = arguments.get_string("TABLE"); }
  ElementKind kind() const override { return ElementKind::kStage; }
  StageTraits stage_traits() const override { return traits_of<AdjacencyStage>(); }
  Result<void> bind(const TableSet& tables, StageSlot& slot) const override {
    auto image = find_table(tables.adjacencies, "adjacency table", table_);
    if (!image) return std::move(image).error();
    auto view = open_adjacencies(**image);
    if (!view) return std::move(view).error();
    place(slot, AdjacencyStage{*view, outputs > 2 ? uint8_t{1} : uint8_t{0}});
    return {};
  }

 private:
  std::string table_;
};

}  // namespace

void register_adjacency(Registry& registry) {
  ElementClass c{.name = "AdjacencyRewrite",
                 .group = "Routing",
                 .summary = "writes the next hop's Ethernet header and chooses the output port"};
  c.description =
      "Replaces everything before the network header by the adjacency's MAC addresses and VLAN tag. A next hop with "
      "several adjacencies chooses by flow (RFC 2992). A packet larger than the output's MTU leaves by output 1, for "
      "IPFragmenter, and so does one whose neighbour is unknown. Packets with IPv4 options leave unchanged by output 2 "
      "where that is connected, for IPGWOptions; what comes back needs an AdjacencyRewrite without output 2.";
  c.arguments = {{.name = "TABLE",
                  .kind = ArgumentKind::kString,
                  .positional = true,
                  .mandatory = true,
                  .help = "the name of an AdjacencyTable"}};
  c.outputs = {1, 3};
  c.output_docs = {"packets with their new link header",
                   "packets larger than the output's MTU, without a known neighbour, or to next hops that are "
                   "unreachable, prohibit or throw",
                   "packets with IPv4 options"};
  c.drops = {DropReason::kTooBig,           DropReason::kNeedsFragmentation, DropReason::kNoAdjacency,
             DropReason::kRouteDrop,        DropReason::kRouteLocal,         DropReason::kRoutePunt,
             DropReason::kCapturedTooShort, DropReason::kRouteUnreachable,   DropReason::kRouteProhibited,
             DropReason::kNoRoute};
  c.example =
      "AdjacencyTable(adj, FILE neighbours.txt, ROUTES fib); in -> IPInput -> IPRoute(fib) -> AdjacencyRewrite(adj) -> "
      "out;";
  c.make = make_element<AdjacencyRewrite>();
  registry.add(std::move(c));
}

}  // namespace sluice

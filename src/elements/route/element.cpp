// host only
#include "elements/stage_element.h"
#include "elements/stages.h"
#include "elements/table_use.h"
#include "graph/router.h"

namespace sluice {
namespace {

class IpRoute final : public Element {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override { table_ = arguments.get_string("TABLE"); }
  ElementKind kind() const override { return ElementKind::kStage; }
  StageTraits stage_traits() const override {
    return traits_of<RouteStage<Trie::View4, Trie::View6>>();  // the fields do not depend on the algorithms
  }
  Result<void> bind(const TableSet& tables, StageSlot& slot) const override {
    auto image = find_table(tables.routes, "route table", table_);
    if (!image) return std::move(image).error();
    Result<void> six;
    Result<void> four = with_fib4(**image, [&]<typename View4>(const View4& view4) {
      six = with_fib6(**image, [&]<typename View6>(const View6& view6) {
        using Direct = RouteStage<View4, View6>;
        if constexpr (DirectRouteStages::contains<Direct>()) {
          place(slot, Direct{view4, view6});
        } else {
          place(slot, RouteStage<View4, AnyView6>{view4, AnyView6(view6)});
        }
      });
    });
    return four.ok() ? six : four;
  }

 private:
  std::string table_;
};

}  // namespace

void register_route(Registry& registry) {
  ElementClass c{.name = "IPRoute",
                 .group = "Routing",
                 .summary = "finds the next hop of the destination by longest prefix match"};
  c.description = "IPv4 and IPv6. The next hop goes to AdjacencyRewrite.";
  c.arguments = {{.name = "TABLE",
                  .kind = ArgumentKind::kString,
                  .positional = true,
                  .mandatory = true,
                  .help = "the name of a RouteTable"}};
  c.outputs = {1, 2};
  c.output_docs = {"packets with a next hop", "packets that no prefix covers"};
  c.drops = {DropReason::kNoRoute};
  c.example = "RouteTable(fib, FILE routes.txt); in -> IPInput -> IPRoute(fib) -> out;";
  c.make = make_element<IpRoute>();
  registry.add(std::move(c));
}

}  // namespace sluice

// host only
#include <fmt/format.h>

#include "elements/acl/place.h"
#include "elements/acl/stage.h"
#include "elements/stage_element.h"
#include "elements/table_use.h"
#include "graph/router.h"

namespace sluice {
namespace {

class Acl final : public Element {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    permit_ = arguments.get_string("DEFAULT") == "permit";
    if (arguments.has("TABLE") == arguments.has("FILE")) {
      Diagnostic d = arguments.error_at(
          arguments.has("TABLE") ? "FILE" : "TABLE",
          arguments.has("TABLE") ? "both TABLE and FILE are given" : "neither TABLE nor FILE is given");
      d.expected = "TABLE NAME of an AclTable, or FILE with the rules";
      diagnostics.add(std::move(d));
      return;
    }
    table_ = arguments.get_string("TABLE");
    for (const char* option : {"FORMAT", "ALGORITHM"}) {
      if (arguments.has("TABLE") && arguments.has(option)) {
        Diagnostic d = arguments.error_at(option, fmt::format("{} belongs to the table", option));
        d.suggestion = fmt::format("write it in AclTable({}, ...)", table_);
        diagnostics.add(std::move(d));
      }
    }
    if (!arguments.has("FILE")) return;
    TableDeclaration own{.type = TableDeclaration::Type::kAcl};
    for (const ArgumentValue& file : arguments.all("FILE")) own.files.push_back(file.text);
    own.format = acl_format(arguments, diagnostics);
    own.algorithm = arguments.get_string("ALGORITHM");
    own_ = std::move(own);
  }
  ElementKind kind() const override { return ElementKind::kStage; }
  StageTraits stage_traits() const override {
    return traits_of<AclStage<LinearAcl::View>>();  // the fields do not depend on the algorithm
  }
  std::vector<TableDeclaration> tables() const override {
    if (!own_) return {};
    TableDeclaration own = *own_;
    own.name = name;
    return {own};
  }
  Result<void> bind(const TableSet& tables, StageSlot& slot) const override {
    auto image = find_table(tables.acls, "ACL table", own_ ? name : table_);
    if (!image) return std::move(image).error();
    return place_acl(**image, {.permit_by_default = permit_}, slot);
  }

 private:
  std::string table_;
  std::optional<TableDeclaration> own_;
  bool permit_ = false;
};

}  // namespace

void register_acl(Registry& registry) {
  ElementClass c{.name = "ACL", .group = "Classification", .summary = "permits or denies packets by an access list"};
  c.description =
      "The first rule that matches the packet's addresses, ports, protocol, flags, DSCP and fragment bits decides: "
      "permit, deny, or mark. IPv4 "
      "and IPv6 rules share a list.";
  c.arguments = {
      {.name = "TABLE", .kind = ArgumentKind::kString, .positional = true, .help = "the name of an AclTable"},
      {.name = "FILE",
       .kind = ArgumentKind::kFilename,
       .repeated = true,
       .help = "rules of a table that only this element uses"},
      acl_format_argument(),
      acl_algorithm_argument(),
      {.name = "DEFAULT",
       .kind = ArgumentKind::kChoice,
       .default_text = "deny",
       .help = "what happens when no rule matches",
       .choices = {"deny", "permit"}},
  };
  c.outputs = {1, 2};
  c.output_docs = {"permitted packets", "denied packets"};
  c.drops = {DropReason::kAclDeny, DropReason::kAclNoMatch};
  c.example = "AclTable(edge, FILE edge.acl); in -> IPInput -> ACL(edge) -> out;";
  c.make = make_element<Acl>();
  registry.add(std::move(c));
}

}  // namespace sluice

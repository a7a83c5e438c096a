// host only
#include <algorithm>
#include <cstring>

#include "elements/example_table/stage.h"
#include "elements/list_table.h"
#include "net/text.h"

namespace sluice {
namespace {

Result<std::string> parse_entry(std::string_view line) {
  const auto address = parse_ip(line);
  if (!address) return Error(fmt::format("'{}' is no address", line), "an IPv4 or IPv6 address");
  return to_string(*address);
}

Result<std::vector<std::byte>> build_entries(const std::vector<std::string>& lines) {
  std::vector<ExampleTableEntry> entries;
  for (const std::string& line : lines) {
    const IpAddress address = *parse_ip(line);
    entries.push_back({address.family, address.hi, address.lo});
  }
  std::ranges::sort(entries, [](const auto& a, const auto& b) { return a.before(b); });
  const auto bytes = std::as_bytes(std::span(entries));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

// A kind that is there once its class is registered.
const TableKind& own_kind() {
  static const TableKind& it = add_table_kind({.name = "example_table",
                                               .option = "example_table",
                                               .words = "table of addresses",
                                               .entry = "address",
                                               .element = "ExampleTable",
                                               .parse = parse_entry,
                                               .build = build_entries,
                                               .examples = {"192.0.2.1", "10.0.0.1", "2001:db8::1", "0.0.0.1", "::1"}});
  return it;
}

class Filter final : public Element {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override { table_ = arguments.get_string("TABLE"); }
  ElementKind kind() const override { return ElementKind::kStage; }
  StageTraits stage_traits() const override { return traits_of<ExampleTableStage>(); }
  Result<void> bind(const TableSet& tables, StageSlot& slot) const override {
    auto lookup = list_lookup(tables, own_kind(), table_);
    if (!lookup) return std::move(lookup).error();
    place(slot, ExampleTableStage{reinterpret_cast<const ExampleTableEntry*>(lookup->data()),
                                  lookup->size() / sizeof(ExampleTableEntry)});
    return {};
  }

 private:
  std::string table_;
};

}  // namespace

void register_example_table(Registry& registry) {
  registry.add(list_table_class(
      own_kind(), "A skeleton to copy. It is compiled and tested with the rest, and is not part of the product."));
  ElementClass c{.name = "ExampleTableFilter",
                 .group = "Tables",
                 .summary = "separates packets whose source address is in a table"};
  c.description = "A skeleton to copy. It is compiled and tested with the rest, and is not part of the product.";
  c.arguments = {{.name = "TABLE",
                  .kind = ArgumentKind::kString,
                  .positional = true,
                  .mandatory = true,
                  .help = "the name of the ExampleTable"}};
  c.outputs = {1, 2};
  c.output_docs = {"packets whose source address is not in the table", "the others"};
  c.drops = {DropReason::kAclDeny};
  c.example = "ExampleTable(hosts, FILE hosts.txt); in -> IPInput -> ExampleTableFilter(hosts) -> out;";
  c.make = make_element<Filter>();
  registry.add(std::move(c));
}

}  // namespace sluice

// host only
// Tables that are lists of lines (graph/table_kind.h), for the elements that use them.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "elements/stage_element.h"
#include "elements/table_use.h"
#include "graph/router.h"
#include "graph/table_kind.h"

namespace sluice {

class ListTable final : public DeclaredTable {
 public:
  explicit ListTable(const TableKind& kind) : DeclaredTable(kind.type) {}
};

// The class that declares tables of a kind. `kind` outlives it.
inline ElementClass list_table_class(const TableKind& kind, std::string description) {
  ElementClass c;
  c.name = kind.element;
  c.group = "Tables";
  c.summary = fmt::format("declares a {}: a {} on each line", kind.words, kind.entry);
  c.description = std::move(description);
  c.arguments = {table_name_argument(),
                 {.name = "FILE",
                  .kind = ArgumentKind::kFilename,
                  .mandatory = true,
                  .repeated = true,
                  .help = fmt::format("{} lines, or a compiled image", kind.entry)}};
  c.inputs = c.outputs = {0, 0};
  c.example = fmt::format("{}(list, FILE list.{});", kind.element, kind.option);
  c.make = [&kind](std::string_view) { return std::make_unique<ListTable>(kind); };
  return c;
}

// What `kind.build` made of a table's entries; it lives as long as the table's image. Errors: no table of that name.
inline Result<std::span<const std::byte>> list_lookup(const TableSet& tables, const TableKind& kind,
                                                      const std::string& name) {
  auto image = find_table(tables.of(kind.type), kind.words, name);
  if (!image) return std::move(image).error();
  return (*image)->section(SectionTag::kListLookup);
}

}  // namespace sluice

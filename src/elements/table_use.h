// host only
// What elements that use tables share: finding a table by name, and the options that name algorithms and formats.
#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "formats/rule_files.h"
#include "graph/arguments.h"
#include "graph/element.h"
#include "graph/table_set.h"
#include "tables/acl/algorithms.h"
#include "tables/image.h"
#include "tables/lpm/algorithms.h"

namespace sluice {

// Errors: no table of that name, with the nearest one.
inline Result<std::shared_ptr<const Image>> find_table(const NamedImages& tables, std::string_view kind,
                                                       const std::string& name) {
  if (const auto it = tables.find(name); it != tables.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [known, image] : tables) names.push_back(known);
  const std::string near = closest_match(name, names);
  return Error(fmt::format("there is no {} '{}'", kind, name),
               near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
}

inline ArgumentSpec table_name_argument() {
  return {.name = "NAME",
          .kind = ArgumentKind::kString,
          .positional = true,
          .mandatory = true,
          .help = "name of the table"};
}
// An element without ports that declares a table, by NAME and FILE.
class DeclaredTable : public Element {
 public:
  explicit DeclaredTable(TableType type) { table_.type = type; }
  void configure(const Arguments& arguments, Diagnostics&) override {
    table_.name = arguments.get_string("NAME");
    for (const ArgumentValue& file : arguments.all("FILE")) table_.files.push_back(file.text);
  }
  ElementKind kind() const override { return ElementKind::kInfo; }
  std::vector<TableDeclaration> tables() const override { return {table_}; }

 protected:
  TableDeclaration table_{};
};

inline ArgumentSpec acl_format_argument() {
  return {.name = "FORMAT",
          .kind = ArgumentKind::kWord,
          .default_text = "auto",
          .help = fmt::format("the rule files' language: {}", kRuleFormatHelp)};
}
// What was given for it; a finding when there is no such format.
inline std::string acl_format(const Arguments& arguments, Diagnostics& diagnostics) {
  const std::string& word = arguments.get_string("FORMAT");
  if (const auto choice = parse_rule_format(word); !choice) {
    Diagnostic d = arguments.error_at("FORMAT", choice.error().message);
    d.expected = kRuleFormatHelp;
    d.suggestion = choice.error().hint;
    diagnostics.add(std::move(d));
  }
  return word;
}
inline ArgumentSpec acl_algorithm_argument() {
  return {.name = "ALGORITHM",
          .kind = ArgumentKind::kChoice,
          .default_text = kDefaultAclAlgorithm,
          .help = "the classification algorithm",
          .choices = acl_algorithm_choices()};
}
inline ArgumentSpec route_algorithm_argument() {
  return {.name = "ALGORITHM",
          .kind = ArgumentKind::kChoice,
          .default_text = kLpmAuto,
          .help = "the IPv4 lookup algorithm",
          .choices = lpm_algorithm_choices4()};
}
inline ArgumentSpec route_algorithm6_argument() {
  return {.name = "ALGORITHM6",
          .kind = ArgumentKind::kChoice,
          .default_text = kLpmAuto,
          .help = "the IPv6 lookup algorithm",
          .choices = lpm_algorithm_choices6()};
}

}  // namespace sluice

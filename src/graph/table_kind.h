// host only
// The kinds of tables, a row each: what they are called wherever a user meets them.
#pragma once

#include <string_view>

#include "graph/table_set.h"

namespace sluice {

struct TableKind {
  TableType type;
  const char* name;     // in requests and reports
  const char* option;   // of `sluice run`; the command that changes one; what its file's name ends in
  const char* words;    // a table of the kind
  const char* entry;    // of one, in the singular
  const char* element;  // that declares one
};

inline constexpr TableKind kTableKinds[] = {
    {TableType::kAcl, "acl", "acl", "access list", "rule", "AclTable"},
    {TableType::kRoutes, "routes", "routes", "route table", "route", "RouteTable"},
    {TableType::kAdjacency, "adjacency", "adjacencies", "adjacency table", "next hop", "AdjacencyTable"},
};

inline const TableKind& table_kind(TableType type) {
  return kTableKinds[static_cast<size_t>(type)];
}
// nullptr: there is none of that name.
inline const TableKind* find_table_kind(std::string_view name) {
  for (const TableKind& kind : kTableKinds) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

}  // namespace sluice

// host only
// TableSet: the named tables of one generation, as shared immutable images.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tables/image.h"

namespace sluice {

// What a table holds (table_kind.h); those from kFirstList on are lists.
enum class TableType : uint8_t { kAcl, kRoutes, kAdjacency, kFirstList };

using NamedImages = std::map<std::string, std::shared_ptr<const Image>, std::less<>>;

// Cheap to copy: a change copies the set and replaces one image.
struct TableSet {
  NamedImages acls, routes, adjacencies;
  std::map<TableType, NamedImages> lists;

  NamedImages& of(TableType type) {
    switch (type) {
      case TableType::kAcl:
        return acls;
      case TableType::kRoutes:
        return routes;
      case TableType::kAdjacency:
        return adjacencies;
      default:
        return lists[type];
    }
  }
  const NamedImages& of(TableType type) const {
    static const NamedImages none;
    if (type >= TableType::kFirstList && !lists.contains(type)) return none;
    return const_cast<TableSet*>(this)->of(type);
  }
};

}  // namespace sluice

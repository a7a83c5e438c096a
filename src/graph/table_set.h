// host only
// TableSet: the named tables of one generation, as shared immutable images.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tables/image.h"

namespace sluice {

enum class TableType : uint8_t { kAcl, kRoutes, kAdjacency };

using NamedImages = std::map<std::string, std::shared_ptr<const Image>, std::less<>>;

// Cheap to copy: a change copies the set and replaces one image.
struct TableSet {
  NamedImages acls, routes, adjacencies;

  NamedImages& of(TableType type) {
    return type == TableType::kAcl ? acls : type == TableType::kRoutes ? routes : adjacencies;
  }
  const NamedImages& of(TableType type) const { return const_cast<TableSet*>(this)->of(type); }
};

}  // namespace sluice

// host only
// TableSet: the named tables of one generation, as shared immutable images.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tables/image.h"

namespace sluice {

// Cheap to copy: a change copies the set and replaces one image.
struct TableSet {
  std::map<std::string, std::shared_ptr<const Image>, std::less<>> acls;
  std::map<std::string, std::shared_ptr<const Image>, std::less<>> routes;
  std::map<std::string, std::shared_ptr<const Image>, std::less<>> adjacencies;
};

}  // namespace sluice

// host only
// What changes of live tables have in common. Internal to them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "graph/element.h"
#include "graph/table_kind.h"
#include "tables/image.h"

namespace sluice {

class Stopwatch {
 public:
  double seconds() const { return static_cast<double>(now_ns() - start_) * 1e-9; }

 private:
  uint64_t start_ = now_ns();
};

// Errors: no table of that name, with the nearest one.
Result<void> known_table(const NamedImages& tables, const char* kind, const std::string& name);
// As TableLoad::kind.
inline const char* kind_of(TableDeclaration::Type type) {
  return table_kind(type).name.c_str();
}
// "1.5 MiB".
std::string in_bytes(size_t bytes);

}  // namespace sluice

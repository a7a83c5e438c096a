// Where a table's lookups will run: for whoever builds or chooses.
#pragma once

#include <cstdint>

namespace sluice {

enum class TableTarget : uint8_t { kCpu, kGpu };

}  // namespace sluice

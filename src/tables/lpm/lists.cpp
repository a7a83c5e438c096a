#include "tables/lpm/lists.h"

#include <fmt/format.h>

namespace sluice {

Result<void> check_lists(const char* algorithm, const uint32_t* starts, uint32_t lists, const uint16_t* hops,
                         uint32_t hop_count, uint32_t next_hop_count) {
  if (starts[0] != 0 || starts[lists] != hop_count) return Error(fmt::format("{}: lists do not add up", algorithm));
  for (uint32_t b = 0; b < lists; ++b) {
    if (starts[b] >= starts[b + 1] || starts[b + 1] > hop_count) {
      return Error(fmt::format("{}: list {} is empty or lies outside", algorithm, b));
    }
  }
  for (uint32_t i = 0; i < hop_count; ++i) {
    if (hops[i] > next_hop_count) {
      return Error(fmt::format("{}: list entry {} has an unknown next hop", algorithm, i));
    }
  }
  return {};
}

}  // namespace sluice

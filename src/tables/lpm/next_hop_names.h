// The next hops' names inside a routes image. Host only.
//
//   section: count u32 | reserved u32 | offset u32[count + 1] into the text | text bytes; id i (1..count) is
//   text[offset[i - 1], offset[i])
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "tables/lpm/plan.h"
#include "tables/lpm/rib.h"

namespace sluice {

class NextHopNames {
 public:
  // Errors: sizes that do not fit, more than Rib::kMaxNextHops names, offsets that go back or outside.
  static Result<NextHopNames> open(std::span<const std::byte> section);
  uint32_t count() const { return count_; }
  // The name as it was written in the route file; "-" for 0 and unknown ids. Points into the section.
  std::string_view name(uint32_t id) const {
    if (id == 0 || id > count_) return "-";
    return {text_ + offsets_[id - 1], offsets_[id] - offsets_[id - 1]};
  }

 private:
  const uint32_t* offsets_ = nullptr;
  const char* text_ = nullptr;
  uint32_t count_ = 0;
};

FibPlan plan_next_hop_names(const Rib& rib);

}  // namespace sluice

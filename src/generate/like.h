// How much of something like what is given, and from which seed.
#pragma once

#include <cstdint>

namespace sluice {

struct LikeOptions {
  uint32_t count = 0;
  uint64_t seed = 1;
};

}  // namespace sluice

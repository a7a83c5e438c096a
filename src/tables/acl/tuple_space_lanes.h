// Internal to tuple_space: 32 keys as columns, and the vector kernels over them. Host only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tables/acl/tuple_space.h"

namespace sluice::tuple_space_detail {

struct Lanes {
  alignas(64) uint32_t word[8][32];  // address words; narrow lanes use 3 (source) and 7 (destination) only
  alignas(64) uint32_t ports[32];
  alignas(64) uint32_t protocol[32];  // times kTupleProtocolFactor
};

// Hashes lanes [0, n) for table `t` into `hash` (room for 32) and returns the mask of the lanes that the filter lets
// pass. Lanes past n, up to the next multiple of 16, must be readable; their bits are garbage.
using Probe = uint32_t (*)(const Lanes& lanes, size_t n, const TupleTable& t, const uint32_t* filter, uint32_t* hash);

Probe narrow_probe(AclIsa isa);
Probe wide_probe(AclIsa isa);

}  // namespace sluice::tuple_space_detail

// The instruction sets that bursts of lookups may use. Host only.
#pragma once

#include <cstdint>

namespace sluice {

// Each gives the same results.
enum class AclIsa : uint8_t { kScalar, kAvx2, kAvx512 };

// Whether this processor has it.
bool acl_isa_available(AclIsa isa);
// The widest that this processor has.
AclIsa acl_widest_isa();

}  // namespace sluice

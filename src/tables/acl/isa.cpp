#include "tables/acl/isa.h"

namespace sluice {

bool acl_isa_available(AclIsa isa) {
#if defined(__x86_64__)
  if (isa == AclIsa::kAvx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  if (isa == AclIsa::kAvx2) return __builtin_cpu_supports("avx2");
#endif
  return isa == AclIsa::kScalar;
}

AclIsa acl_widest_isa() {
  static const AclIsa isa = acl_isa_available(AclIsa::kAvx512) ? AclIsa::kAvx512
                            : acl_isa_available(AclIsa::kAvx2) ? AclIsa::kAvx2
                                                               : AclIsa::kScalar;
  return isa;
}

}  // namespace sluice

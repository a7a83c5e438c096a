// host only
// NVTX is headers alone: the profiler's library is looked for when the first range begins.
#include "exec/device/trace.h"

#include <nvtx3/nvToolsExt.h>

namespace sluice {

void trace_push(const char* name) {
  nvtxRangePushA(name);
}
void trace_pop() {
  nvtxRangePop();
}

}  // namespace sluice

#include "exec/cuda/launch.cuh"

namespace sluice::kernels_detail {

const void* launch_header() {
  return reinterpret_cast<const void*>(&cuda_walk::launch<RecordKind::kHeader, NoChain>);
}

}  // namespace sluice::kernels_detail

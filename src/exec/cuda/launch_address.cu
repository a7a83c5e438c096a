#include "exec/cuda/launch.cuh"

namespace sluice::kernels_detail {

const void* launch_address() {
  return reinterpret_cast<const void*>(&cuda_walk::launch<RecordKind::kAddress, NoChain>);
}

}  // namespace sluice::kernels_detail

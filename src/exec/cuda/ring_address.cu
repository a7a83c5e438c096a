#include "exec/cuda/ring.cuh"

namespace sluice::kernels_detail {

const void* ring_address() {
  return reinterpret_cast<const void*>(&cuda_walk::ring<RecordKind::kAddress, 1>);
}

}  // namespace sluice::kernels_detail

#include "exec/cuda/ring.cuh"

namespace sluice::kernels_detail {

const void* ring_key4() {
  return reinterpret_cast<const void*>(&cuda_walk::ring<RecordKind::kKey4, 1>);
}

}  // namespace sluice::kernels_detail

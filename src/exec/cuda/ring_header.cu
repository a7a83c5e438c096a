#include "exec/cuda/ring.cuh"

namespace sluice::kernels_detail {

const void* ring_header() {
  return reinterpret_cast<const void*>(&cuda_walk::ring<RecordKind::kHeader, 1>);
}

}  // namespace sluice::kernels_detail

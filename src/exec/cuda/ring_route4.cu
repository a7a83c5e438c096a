#include "exec/cuda/ring.cuh"

namespace sluice::kernels_detail {

const void* ring_route4() {
  return reinterpret_cast<const void*>(&cuda_walk::ring<RecordKind::kRoute4, 1>);
}

}  // namespace sluice::kernels_detail

#include "exec/cuda/ring.cuh"

namespace sluice::kernels_detail {

const void* ring_key6() {
  return reinterpret_cast<const void*>(&cuda_walk::ring<RecordKind::kKey6, 1>);
}

}  // namespace sluice::kernels_detail

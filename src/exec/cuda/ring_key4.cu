#include "exec/cuda/ring.cuh"

namespace sluice::kernels_detail {

const void* ring_key4(bool stamps) {
  return stamps ? reinterpret_cast<const void*>(&cuda_walk::ring<RecordKind::kKey4, true>)
                : reinterpret_cast<const void*>(&cuda_walk::ring<RecordKind::kKey4, false>);
}

}  // namespace sluice::kernels_detail

#include "exec/cuda/ring.cuh"

namespace sluice::kernels_detail {

const void* ring_team4() {
  return reinterpret_cast<const void*>(&cuda_walk::ring<RecordKind::kKey4, kRingTeam>);
}

}  // namespace sluice::kernels_detail

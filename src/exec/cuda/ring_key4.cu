#include "exec/cuda/ring.cuh"

namespace sluice::kernels_detail {

const void* ring_key4(uint32_t polls) {
  using cuda_walk::ring;
  return polls >= 4   ? reinterpret_cast<const void*>(&ring<RecordKind::kKey4, 4>)
         : polls == 2 ? reinterpret_cast<const void*>(&ring<RecordKind::kKey4, 2>)
                      : reinterpret_cast<const void*>(&ring<RecordKind::kKey4, 1>);
}

}  // namespace sluice::kernels_detail

#include "exec/cuda/tables.cuh"

namespace sluice::kernels_detail {

const void* launch_route4_in(TableMemory memory) {
  if (memory == TableMemory::kConstant)
    return reinterpret_cast<const void*>(&cuda_walk::launch_in<RecordKind::kRoute4, TableMemory::kConstant>);
  return reinterpret_cast<const void*>(&cuda_walk::launch_in<RecordKind::kRoute4, TableMemory::kShared>);
}
const void* constant_bank_route4() {
  return cuda_walk::constant_bank;
}

}  // namespace sluice::kernels_detail

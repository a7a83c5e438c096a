#include "exec/cuda/tables.cuh"

namespace sluice::kernels_detail {

const void* launch_key6_in(TableMemory memory) {
  if (memory == TableMemory::kConstant)
    return reinterpret_cast<const void*>(&cuda_walk::launch_in<RecordKind::kKey6, TableMemory::kConstant>);
  return reinterpret_cast<const void*>(&cuda_walk::launch_in<RecordKind::kKey6, TableMemory::kShared>);
}
const void* constant_bank_key6() {
  return cuda_walk::constant_bank;
}

}  // namespace sluice::kernels_detail

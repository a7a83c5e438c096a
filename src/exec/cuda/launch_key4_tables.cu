#include "exec/cuda/tables.cuh"

namespace sluice::kernels_detail {

const void* launch_key4_in(TableMemory memory) {
  if (memory == TableMemory::kConstant)
    return reinterpret_cast<const void*>(&cuda_walk::launch_in<RecordKind::kKey4, TableMemory::kConstant>);
  return reinterpret_cast<const void*>(&cuda_walk::launch_in<RecordKind::kKey4, TableMemory::kShared>);
}
const void* constant_bank_key4() {
  return cuda_walk::constant_bank;
}

}  // namespace sluice::kernels_detail

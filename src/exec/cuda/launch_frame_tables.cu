#include "exec/cuda/launch_frame.cuh"
#include "exec/cuda/tables.cuh"

namespace sluice {
namespace {

template <TableMemory M>
__global__ void __launch_bounds__(launch_threads(RecordKind::kFrame))
    launch_frames_in(const __grid_constant__ DeviceProgram program, const __grid_constant__ LaunchArguments a) {
  extern __shared__ uint4 shared[];
  const cuda_walk::MovedTables tables =
      cuda_walk::block_tables<M>(program, frame_tables_at(a.slots, launch_threads(RecordKind::kFrame)));
  cuda_walk::take_all_frames<NoChain>(program, a, blockIdx.x, gridDim.x, shared, tables);
}

}  // namespace

namespace kernels_detail {

const void* launch_frame_in(TableMemory memory) {
  if (memory == TableMemory::kConstant) return reinterpret_cast<const void*>(&launch_frames_in<TableMemory::kConstant>);
  return reinterpret_cast<const void*>(&launch_frames_in<TableMemory::kShared>);
}
const void* constant_bank_frame() {
  return cuda_walk::constant_bank;
}

}  // namespace kernels_detail
}  // namespace sluice

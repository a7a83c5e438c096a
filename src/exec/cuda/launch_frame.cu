#include "exec/cuda/launch_frame.cuh"

namespace sluice {
namespace {

template <typename Chain>
__global__ void __launch_bounds__(launch_threads(RecordKind::kFrame))
    launch_frames(const __grid_constant__ DeviceProgram program, const __grid_constant__ LaunchArguments a) {
  extern __shared__ uint4 shared[];
  cuda_walk::take_all_frames<Chain>(program, a, blockIdx.x, gridDim.x, shared, cuda_walk::GlobalTables{});
}

}  // namespace

namespace kernels_detail {

const void* launch_frame(uint8_t chain) {
  static const auto kernels = frame_kernels(
      []<typename Chain>(TypeTag<Chain>) { return reinterpret_cast<const void*>(&launch_frames<Chain>); });
  return chain < kernels.size() ? kernels[chain] : kernels[0];
}

}  // namespace kernels_detail
}  // namespace sluice

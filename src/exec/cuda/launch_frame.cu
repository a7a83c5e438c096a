#include "exec/cuda/launch_frame.cuh"

#include <array>

namespace sluice {
namespace {

template <typename Chain>
__global__ void __launch_bounds__(launch_threads(RecordKind::kFrame))
    launch_frames(const __grid_constant__ DeviceProgram program, const __grid_constant__ LaunchArguments a) {
  extern __shared__ uint4 shared[];
  cuda_walk::take_all_frames<Chain>(program, a, shared, cuda_walk::GlobalTables{});
}

}  // namespace

namespace kernels_detail {

const void* launch_frame(uint8_t chain) {
  static const auto kernels = [] {
    std::array<const void*, kFrameChains + 1> all{reinterpret_cast<const void*>(&launch_frames<NoChain>)};
    all[kFrameChains] = reinterpret_cast<const void*>(&launch_frames<SummingChain>);
    size_t i = 0;
    AllFrameChains::for_each(
        [&](auto tag) { all[++i] = reinterpret_cast<const void*>(&launch_frames<typename decltype(tag)::type>); });
    return all;
  }();
  return chain < kernels.size() ? kernels[chain] : kernels[0];
}

}  // namespace kernels_detail
}  // namespace sluice

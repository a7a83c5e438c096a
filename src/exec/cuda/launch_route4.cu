#include "exec/cuda/launch.cuh"

namespace sluice::kernels_detail {

const void* launch_route4(uint8_t chain) {
  constexpr RecordKind kKind = RecordKind::kRoute4;
  const void* kernel = reinterpret_cast<const void*>(&cuda_walk::launch<kKind, NoChain>);
  uint8_t number = 0;
  AllChains::for_each([&]<typename Chain>(TypeTag<Chain>) {
    ++number;
    if constexpr (cuda_walk::kChainCompiled<kKind, Chain>) {
      if (number == chain) kernel = reinterpret_cast<const void*>(&cuda_walk::launch<kKind, Chain>);
    }
  });
  return kernel;
}

}  // namespace sluice::kernels_detail

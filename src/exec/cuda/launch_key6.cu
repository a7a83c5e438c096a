#include "exec/cuda/launch.cuh"

namespace sluice::kernels_detail {

const void* launch_key6(uint8_t chain) {
  constexpr RecordKind kKind = RecordKind::kKey6;
  const void* kernel = reinterpret_cast<const void*>(&cuda_walk::launch<kKind, NoChain>);
  uint8_t number = 0;
  AllChains::for_each([&]<typename Chain>(TypeTag<Chain>) {
    if (++number == chain) kernel = reinterpret_cast<const void*>(&cuda_walk::launch<kKind, Chain>);
  });
  return kernel;
}

}  // namespace sluice::kernels_detail

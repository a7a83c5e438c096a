// Lookups of keys whose columns lie in device memory: a lane a key, gathered into registers (exec/device/columns.h).
// nvcc takes an assignment to a [[nodiscard]] type for a value that is thrown away.
#pragma nv_diag_suppress 2810
#include "exec/device/columns.h"

#include <algorithm>

#include "exec/cuda/drivers.h"

namespace sluice {
namespace {

constexpr uint32_t kThreads = 128;
// Blocks of one launch; a lane takes several keys where there are more.
constexpr uint64_t kMostBlocks = uint64_t{1} << 20;

template <typename Stage>
__global__ void __launch_bounds__(kThreads)
    look_up_columns(const __grid_constant__ Stage stage, const __grid_constant__ ColumnLookup work) {
  const uint64_t step = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < work.n; i += step) answer_key(stage, work, i);
}

}  // namespace

Result<void> launch_columns(const StageSlot& slot, const ColumnLookup& work, cudaStream_t stream) {
  const uint64_t blocks = std::min((work.n + kThreads - 1) / kThreads, kMostBlocks);
  const bool found = with_lookup(slot, [&]<typename Stage>(const Stage& stage) {
    if (blocks != 0) look_up_columns<Stage><<<static_cast<uint32_t>(blocks), kThreads, 0, stream>>>(stage, work);
  });
  if (!found) return Error("the program is not a lookup by key");
  return {};
}

}  // namespace sluice

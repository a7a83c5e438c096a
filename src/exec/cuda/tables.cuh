// Tables in constant and in shared memory, for kernels that read them there. Device only, and whoever includes it has a
// bank of constant memory of its own: a module's kernels reach that of their module alone.
#pragma once

#include "exec/cuda/launch.cuh"
#include "exec/device/table_memory.h"

namespace sluice::cuda_walk {

// 64 KiB, all that a module can have. What nvcc itself puts into constant memory, it puts into another bank.
static __constant__ __align__(kTableAlign) uint4 constant_bank[kConstantBytes / sizeof(uint4)];

static_assert(kHasPointers<chains_detail::Acl> && kHasPointers<chains_detail::RouteDir24> &&
              kHasPointers<AdjacencyStage>);

// Copies a block's tables from device memory to `to`, in its shared memory. All threads of the block call it.
__device__ __forceinline__ void copy_tables(uint4* to, const std::byte* from, uint32_t bytes) {
  const auto* words = reinterpret_cast<const uint4*>(from);
  for (uint32_t i = threadIdx.x; i < (bytes + 15) / 16; i += blockDim.x) to[i] = __ldg(words + i);
  __syncthreads();
}

// A block's tables; with kShared `at` bytes into its shared memory, a multiple of kTableAlign. All threads of the block
// call it.
template <TableMemory M>
__device__ __forceinline__ MovedTables block_tables(const DeviceProgram& program, uint32_t at) {
  if constexpr (M == TableMemory::kConstant) {
    return {program.tables, reinterpret_cast<const std::byte*>(constant_bank)};
  } else {
    static_assert(M == TableMemory::kShared);
    extern __shared__ uint4 shared[];
    copy_tables(shared + at / 16, program.tables, program.table_bytes);
    return {program.tables, reinterpret_cast<const std::byte*>(shared + at / 16)};
  }
}

// As launch(), for any program of keys. A block takes records until there are none: a copy of the tables is worth that.
template <RecordKind K, TableMemory M>
__global__ void __launch_bounds__(launch_threads(K))
    launch_in(const __grid_constant__ DeviceProgram program, const __grid_constant__ LaunchArguments a) {
  const MovedTables tables = block_tables<M>(program, 0);
  const uint32_t count = record_count(a);
  const uint32_t lane = threadIdx.x & 31;
#pragma unroll 1
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i - lane < count; i += gridDim.x * blockDim.x)
    take_records<K, NoChain>(program, a, count, i, tables);
}

}  // namespace sluice::cuda_walk

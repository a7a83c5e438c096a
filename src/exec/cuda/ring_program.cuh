// The programs of a ring's servers: how one comes into shared memory, and how records walk it.
#pragma once

#include "exec/cuda/walk.cuh"

namespace sluice::cuda_walk {

// Copies a program slot into the server's shared memory. The slots lie in global memory that the host wrote before it
// changed `epoch`, which this server has acquired.
__device__ __forceinline__ void take_program(const DeviceProgram* from, DeviceProgram* to, uint32_t lane) {
  const auto* source = reinterpret_cast<const uint4*>(from);
  auto* target = reinterpret_cast<uint4*>(to);
  __syncwarp();
  for (uint32_t i = lane; i < kProgramSlotBytes / 16; i += 32) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(source + i)
                 : "memory");
    target[i] = v;
  }
  __syncwarp();
}

// The chains are choices inside one kernel here: the program changes while the kernel runs.
template <RecordKind K, uint32_t kTeam>
__device__ __forceinline__ void walk_program(const DeviceProgram& program, Walker& w) {
  uint8_t number = 0;
  bool done = false;
  auto one = [&]<typename Chain>(TypeTag<Chain>) {
    if (++number != program.chain) return;
    if constexpr (kChainCompiled<K, Chain>) {
      walk_warp<K, Chain, kTeam>(program, w);
      done = true;
    }
  };
  AllChains::for_each(one);
  __syncwarp();
  if (done) return;
  // The generic way wants a walker in memory; in a copy, because that of the chains is registers.
  Walker copy = w;
  walk_warp<K, NoChain, kTeam>(program, copy);
  w = copy;
}

}  // namespace sluice::cuda_walk

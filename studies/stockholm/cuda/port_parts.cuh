// What kernels of the whole way to a port share.
#pragma once

#include <cstdint>

#include "exec/cuda/chains.h"
#include "qos/departure_scan.h"
#include "studies/cuda/resident.h"

namespace sluice::cuda_resident {

using PortChain = TypeList<IpInputStage, ClassifyDscpStage, chains_detail::RouteDir24, DecTtlStage, AdjacencyStage>;

struct LinkAtomics {
  __device__ static uint32_t acquire(const uint32_t* at) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
  }
  __device__ static void release(uint32_t* at, uint32_t value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(at), "r"(value) : "memory");
  }
  __device__ static void pause() { __nanosleep(20); }
};

inline constexpr uint32_t kMostFrameBytes = 8191;

}  // namespace sluice::cuda_resident

// Asks for a cache line ahead of its use.
#pragma once

#include "base/hd.h"

namespace sluice {

// Nothing on a device. On x86 and Arm this is an asm statement, because GCC takes a function that only calls
// __builtin_prefetch for pure and drops calls to it (seen with GCC 12: a whole prefetch pass became `ret`).
SLUICE_HD void prefetch_read([[maybe_unused]] const void* address) {
#if defined(__CUDA_ARCH__)
#elif defined(__x86_64__)
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(address)));
#elif defined(__aarch64__)
  asm volatile("prfm pldl1keep, %0" : : "Q"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address);
#endif
}

// The same for a line that is about to be written.
SLUICE_HD void prefetch_write([[maybe_unused]] void* address) {
#if defined(__CUDA_ARCH__)
#elif defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<char*>(address)));
#elif defined(__aarch64__)
  asm volatile("prfm pstl1keep, %0" : : "Q"(*static_cast<char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

// The same into the second cache, for what is used later: many lines at a time can be on their way there.
SLUICE_HD void prefetch_second([[maybe_unused]] const void* address) {
#if defined(__CUDA_ARCH__)
#elif defined(__x86_64__)
  asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(address)));
#elif defined(__aarch64__)
  asm volatile("prfm pldl2keep, %0" : : "Q"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 0, 2);
#endif
}

}  // namespace sluice

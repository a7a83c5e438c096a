// host only
// The CUDA device: how it is opened, and what it offers beyond Device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "exec/device/device.h"

namespace sluice {

class CudaMemory;

struct CudaOptions {
  // Device bytes allocated at the start. Tables that are published while rings run come out of it.
  size_t reserve_bytes = size_t{512} << 20;
  // Staged slabs are started as CUDA graphs.
  bool graphs = false;
  // Servers of a ring, one for 32 records at most; 0: by its size and place (docs/design/device.md).
  uint32_t ring_servers = 0;
  // Servers in one block while there is room, where ring_servers is not 0.
  uint32_t ring_block_servers = 4;
  // As Device::time_kernels.
  bool stamps = false;
  // As Device::use_ring_memory.
  RingMemory ring_memory = RingMemory::kAuto;
  // Processors that rings leave free for launch kernels and table uploads.
  uint32_t spare_processors = 8;
};

// Errors: no driver, no such device (with how many there are), a device that this build has no code for.
Result<std::unique_ptr<Device>> open_cuda_device(unsigned ordinal, const CudaOptions& options = {});

// Copies device memory to the host; for tests and benches.
Result<void> cuda_download(Device& device, void* to, const void* from, size_t bytes);

// The memory of a device that open_cuda_device opened; for the benches beside it.
CudaMemory* cuda_memory(Device& device);

}  // namespace sluice

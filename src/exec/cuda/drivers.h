// host only
// The two drivers of a CUDA device. Internal to exec/cuda.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "exec/cuda/kernels.h"
#include "exec/cuda/open_cuda.h"
#include "exec/device/constant_bank.h"
#include "exec/device/device.h"
#include "memory/cuda/memory.h"

namespace sluice {

// What all drivers of one device share.
struct CudaShared {
  CudaShared() = default;
  // No driver is left.
  ~CudaShared();
  CudaShared(const CudaShared&) = delete;
  CudaShared& operator=(const CudaShared&) = delete;

  // A stream for a slab, which other slabs may have, too: what shares a queue with a resident kernel waits for ever,
  // and the driver's queues are few (prepare_cuda_runtime).
  Result<cudaStream_t> slab_stream();
  // More do not make copies or kernels overlap better, and each is one ring less. With 16 and more that four workers
  // launch into, a kernel waits milliseconds for its turn (H100).
  static constexpr uint32_t kMostSlabStreams = 12;
  // Of lookups in columns (Device::look_up); one for all.
  Result<cudaStream_t> lookup_stream();
  // How many rings may run at a time.
  uint32_t most_rings();

  std::shared_ptr<CudaMemory> memory;
  CudaOptions options;
  uint32_t processors = 0;
  std::atomic<uint32_t> resident_blocks{0};
  std::atomic<uint32_t> resident_rings{0};
  std::atomic<uint32_t> frame_kernels{0};   // of slabs that were started and not yet seen to be done
  std::atomic<uint32_t> served_drivers{0};  // that may have servers of frames, and share the device

  // A kernel that is launched beside servers of frames may wait for them for ever, for shared memory that no
  // multiprocessor can give while some blocks stay there. So frames are launched where no servers run: a launch holds
  // `launching` shared, and whoever starts the first servers holds it alone until what was launched has ended.
  std::shared_mutex launching;
  std::atomic<uint32_t> serving{0};  // drivers whose servers run
  // With `launching` held alone. Errors: a launched kernel has failed.
  Result<void> wait_for_launched();

  // The place of a run of lent frames, for what is put into `stream` from now on. nullptr: all are taken. To be left
  // (`runs`) when what reads it has run.
  // Without a stream the reader waits itself until *copied is `serial`, in the device's memory.
  struct RunPlace {
    uint32_t number = CopiedRuns::kNone;
    std::byte* device = nullptr;
    const uint32_t* copied = nullptr;
    uint32_t serial = 0;
  };
  Result<RunPlace> take_run(const LentRun& run, cudaStream_t stream);
  // Before the first of them. Errors: no memory.
  Result<void> prepare_runs();
  CopiedRuns runs;

  ConstantBank bank;
  // Of each of constant_banks(); empty before the first tables are put there.
  std::vector<std::byte*> banks;

 private:
  std::mutex mutex_;
  std::vector<cudaStream_t> slab_streams_;
  size_t next_stream_ = 0;
  cudaStream_t lookup_stream_ = nullptr;
  std::byte* run_memory_ = nullptr;  // of all places
  // By place: how many runs were copied there, and the same in the device's memory, where it is copied behind each run.
  uint32_t* run_serials_ = nullptr;
  uint32_t* runs_copied_ = nullptr;
  cudaStream_t run_stream_ = nullptr;
  std::array<cudaEvent_t, CopiedRuns::kPlaces> run_copied_{};
};

Result<std::unique_ptr<SlabDriver>> make_cuda_slabs(std::shared_ptr<CudaShared> shared, const ChannelShape& shape,
                                                    uint32_t slabs, Transport transport, DeviceMode mode);
// Waits until nothing is left in a stream, at most `limit_ns`: cudaErrorNotReady if something is.
cudaError_t wait_for_stream(cudaStream_t stream, uint64_t limit_ns);

// What resident kernels take of a device, counted in halves of its multiprocessors: so many at most.
inline uint32_t most_resident_blocks(const CudaShared& shared) {
  const uint32_t spare = shared.options.spare_processors;
  return 2 * (shared.processors > spare ? shared.processors - spare : 1);
}
Result<std::unique_ptr<RingDriver>> make_cuda_ring(std::shared_ptr<CudaShared> shared, const ChannelShape& shape);

// Starts a lookup (exec/device/columns.h). Errors: `slot` is no lookup.
Result<void> launch_columns(const StageSlot& slot, const ColumnLookup& work, cudaStream_t stream);

// Whether this processor can write records into device memory. Errors: it has no 64-byte stores.
Result<void> can_push();

}  // namespace sluice

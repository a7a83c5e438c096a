// host only
// Blocks that stay on the device and take flights of frames from one driver of slabs: the host's side of
// serve_frame.cu. Internal to exec/cuda.
#pragma once

#include <memory>

#include "exec/cuda/drivers.h"
#include "exec/device/work_queue.h"

namespace sluice {

// Used by one thread.
class FrameServers {
 public:
  explicit FrameServers(std::shared_ptr<CudaShared> shared);
  // They have left (dismiss), or what they use is kept.
  ~FrameServers();
  FrameServers(const FrameServers&) = delete;
  FrameServers& operator=(const FrameServers&) = delete;

  // Errors: no memory.
  Result<void> create();
  // Starts servers for a program where none run. Where its chain is another than theirs, they end what they have and
  // others take their place. False: the device has no room for them. Errors: it has failed.
  Result<bool> ready(const DeviceProgram& program);
  // Gives them the frames of a flight, in `units`, which are in `run` where it has a place. After ready(). Errors: the
  // device failed.
  Result<void> post(const DeviceProgram& program, const LaunchArguments& a, const CudaShared::RunPlace& run,
                    uint32_t units);
  // They have no work. Errors: they do not leave within the limit.
  Result<void> dismiss(uint64_t limit_ns);
  // cudaErrorNotReady: they run.
  cudaError_t query() const { return stream_ == nullptr ? cudaSuccess : cudaStreamQuery(stream_); }

 private:
  // Programs that entries which have not ended may name, and the next.
  static constexpr uint32_t kPrograms = kWorkPlaces + 1;

  Result<bool> start();
  Result<void> take_program(const DeviceProgram& program);
  void left();

  std::shared_ptr<CudaShared> shared_;
  WorkBoard<FrameWork>* board_ = nullptr;  // pinned
  FrameWorkPlaces* places_ = nullptr;      // device memory
  std::byte* programs_ = nullptr;          // the same, kPrograms slots
  cudaStream_t stream_ = nullptr;
  const void* kernel_ = nullptr;
  bool running_ = false;
  uint32_t resident_ = 0;  // what they take of CudaShared::resident_blocks
  uint32_t next_ = kFirstWork;
  uint32_t number_ = 0;  // of the servers that were started last
  DeviceProgram program_{};
  uint32_t program_number_ = 0;  // 0: none yet
};

}  // namespace sluice

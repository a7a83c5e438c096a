// host only
// DeviceWindow: memory of a CUDA device that the host writes straight, over the bus (the device's BAR).
//
// CUDA gives no such memory where the link is not coherent; the same driver's Vulkan side does: a memory type that is
// local to the device and visible to the host, which CUDA imports (VK_KHR_external_memory_fd). The driver is loaded at
// run time, through the Vulkan loader or, without one, directly.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "base/result.h"

namespace sluice {

class DeviceWindow {
 public:
  // Not cleared; `bytes` or more. Errors: this build or machine has no Vulkan driver of the device, or the device no
  // such memory.
  static Result<DeviceWindow*> take(int ordinal, size_t bytes);
  // For the next who takes one of that device. A window that was made stays until the process ends: to unmake it would
  // wait for the device's kernels, and when static objects go the driver may be gone already.
  static void give_back(DeviceWindow* window);
  ~DeviceWindow();
  DeviceWindow(const DeviceWindow&) = delete;
  DeviceWindow& operator=(const DeviceWindow&) = delete;

  // Write-combining memory: whole lines are written quickly, reads take a microsecond each.
  std::byte* host() const { return host_; }
  // The same bytes for kernels.
  std::byte* device() const { return device_; }
  size_t size() const { return size_; }

 private:
  struct Vulkan;
  struct Spare;
  DeviceWindow();
  static Result<std::unique_ptr<DeviceWindow>> open(int ordinal, size_t bytes);

  std::unique_ptr<Vulkan> vulkan_;
  cudaExternalMemory_t imported_ = nullptr;
  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
  size_t size_ = 0;
  int ordinal_ = 0;
};

}  // namespace sluice

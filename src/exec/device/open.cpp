// host only
// Devices by name.
#include <fmt/format.h>

#include <charconv>

#include "exec/device/device.h"
#include "exec/device/trace.h"
#include "exec/emu/emu_device.h"
#if defined(SLUICE_WITH_CUDA)
#include "exec/cuda/open_cuda.h"
#endif

namespace sluice {

Result<std::unique_ptr<Device>> open_device(const std::string& name) {
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  unsigned ordinal = 0;
  if (colon != std::string::npos) {
    const char* end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data() + colon + 1, end, ordinal);
    if (error != std::errc() || at != end) {
      return Error(fmt::format("'{}' is not a device", name), "write cuda:N or emu:N with a number N");
    }
  }
  if (kind == "emu") return std::unique_ptr<Device>(std::make_unique<EmuDevice>(ordinal));
  if (kind != "cuda") return Error(fmt::format("'{}' is not a device", name), "devices are emu, cuda and cuda:N");
#if defined(SLUICE_WITH_CUDA)
  return open_cuda_device(ordinal);
#else
  return Error("this program was built without CUDA", "build it with ./dev build cuda, or use --device cpu");
#endif
}

#if !defined(SLUICE_WITH_CUDA)
DeviceCount count_cuda_devices() {
  return {0, "this program was built without CUDA"};
}

std::shared_ptr<void> keep_current_device() {
  return nullptr;
}

void trace_push(const char*) {}
void trace_pop() {}
#endif

}  // namespace sluice

// host only
// Devices by name.
#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <string_view>
#include <utility>

#include "exec/device/device.h"
#include "exec/device/trace.h"
#include "exec/emu/emu_device.h"
#if defined(SLUICE_WITH_CUDA)
#include "exec/cuda/open_cuda.h"
#endif

namespace sluice {

namespace {

template <typename T>
bool read_number(std::string_view text, T& number) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end;
}

// What stands behind "emu:": N, or the fault that a test wants: after so many records the device reports an error, or
// answers nothing any more.
Result<std::unique_ptr<Device>> open_emu(const std::string& name, std::string_view more) {
  static const std::pair<std::string_view, std::atomic<uint64_t> EmuFaults::*> kFaults[] = {
      {"fail-after=", &EmuFaults::killed_after}, {"stop-after=", &EmuFaults::stuck_after}};
  for (const auto& [word, fault] : kFaults) {
    uint64_t records = 0;
    if (!more.starts_with(word) || !read_number(more.substr(word.size()), records)) continue;
    auto device = std::make_unique<EmuDevice>();
    device->faults().*fault = records;
    return std::unique_ptr<Device>(std::move(device));
  }
  unsigned ordinal = 0;
  if (!more.empty() && !read_number(more, ordinal))
    return Error(fmt::format("'{}' is not a device", name),
                 "write emu, emu:N, emu:fail-after=RECORDS or emu:stop-after=RECORDS");
  return std::unique_ptr<Device>(std::make_unique<EmuDevice>(ordinal));
}

}  // namespace

Result<std::unique_ptr<Device>> open_device(const std::string& name) {
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  const std::string_view more =
      colon == std::string::npos ? std::string_view() : std::string_view(name).substr(colon + 1);
  if (colon != std::string::npos && more.empty())
    return Error(fmt::format("'{}' is not a device", name), "write it without the colon");
  if (kind == "emu") return open_emu(name, more);
  unsigned ordinal = 0;
  if (!more.empty() && !read_number(more, ordinal))
    return Error(fmt::format("'{}' is not a device", name), "write cuda:N with a number N");
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

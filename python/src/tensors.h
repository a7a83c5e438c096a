// Lookups of columns in a device's memory, and results there.
// host only
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "api/device.h"
#include "module.h"

namespace sluice::python {

// Numbers in a device's memory, which last as long as any capsule of them.
class DeviceMemory {
 public:
  // Errors: sluice.DeviceError, where there is no room.
  DeviceMemory(std::shared_ptr<Device> device, Memory where, size_t bytes);
  // With the GIL, which it lets go while it waits.
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // A DLPack capsule of n numbers: "uint32", "uint8" or "int32". Precondition: they have room.
  nb::object capsule(const std::string& dtype, size_t n) const;

 private:
  std::shared_ptr<DeviceBlob> blob_;  // its end waits for the device
  Memory where_;
};

// The memory of a table's device, as DLPack numbers it, and what is looked up in there.
class There {
 public:
  explicit There(sluice_device* device);

  bool on_host() const { return device_ == nullptr; }
  int type() const { return memory_.type; }
  int number() const { return memory_.number; }
  // As `__dlpack__` takes it. Errors: sluice.DeviceError.
  uint64_t stream() const;
  std::unique_ptr<DeviceMemory> allocate(size_t bytes) const;

  // `columns` and `out`: DLPack capsules. `open`: of the table, once. Returns the generation. Errors: those of Column;
  // sluice.DeviceError, sluice.Error.
  uint64_t look_up(const nb::dict& columns, uint32_t answer, nb::handle out,
                   const std::function<sluice_resident*(sluice_device*, sluice_errors**)>& open);

 private:
  sluice_device* handle_;
  std::shared_ptr<Device> device_;  // nullptr: the host
  Memory memory_;
  std::mutex mutex_;
  std::unique_ptr<sluice_resident, decltype(&sluice_resident_free)> resident_{nullptr, sluice_resident_free};
};

}  // namespace sluice::python

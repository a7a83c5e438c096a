// host only
// Power and utilisation of one device through NVML, which is looked for at run time.
#pragma once

#include <memory>
#include <string>

#include "exec/device/device.h"

namespace sluice {

class Nvml {
 public:
  // `pci_bus_id` as cudaDeviceGetPCIBusId writes it. nullptr where the library is missing or does not know the device.
  static std::unique_ptr<Nvml> open(const std::string& pci_bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Negative members: the library does not say.
  DevicePower read() const;

 private:
  Nvml() = default;
  void* library_ = nullptr;
  void* device_ = nullptr;
  int (*shutdown_)() = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*utilisation_)(void*, void*) = nullptr;
};

}  // namespace sluice

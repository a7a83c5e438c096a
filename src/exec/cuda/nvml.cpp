#include "exec/cuda/nvml.h"

#include <dlfcn.h>

namespace sluice {
namespace {

// nvmlUtilization_t: percents over the last sample period.
struct Utilisation {
  unsigned gpu;
  unsigned memory;
};

template <typename F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::unique_ptr<Nvml> Nvml::open(const std::string& pci_bus_id) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  std::unique_ptr<Nvml> nvml(new Nvml);
  nvml->library_ = library;
  int (*init)() = nullptr;
  int (*by_bus_id)(const char*, void**) = nullptr;
  if (!find(library, "nvmlInit_v2", init) || !find(library, "nvmlDeviceGetHandleByPciBusId_v2", by_bus_id) ||
      !find(library, "nvmlDeviceGetPowerUsage", nvml->power_) ||
      !find(library, "nvmlDeviceGetUtilizationRates", nvml->utilisation_) || init() != 0) {
    return nullptr;
  }
  find(library, "nvmlShutdown", nvml->shutdown_);
  if (by_bus_id(pci_bus_id.c_str(), &nvml->device_) != 0) return nullptr;
  return nvml;
}

Nvml::~Nvml() {
  if (shutdown_ != nullptr) shutdown_();
  if (library_ != nullptr) dlclose(library_);
}

DevicePower Nvml::read() const {
  DevicePower out;
  unsigned milliwatts = 0;
  if (power_(device_, &milliwatts) == 0) out.watts = milliwatts / 1000.0;
  Utilisation busy{};
  if (utilisation_(device_, &busy) == 0) out.utilisation = busy.gpu / 100.0;
  return out;
}

}  // namespace sluice

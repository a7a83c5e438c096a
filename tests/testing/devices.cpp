#include "tests/testing/devices.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "exec/emu/emu_device.h"

namespace sluice::testing {

std::vector<std::string> device_kinds() {
  static const DeviceCount cuda = count_cuda_devices();
  static const bool said = [] {
    if (cuda.count == 0) std::printf("no CUDA device here (%s): the emulated one alone\n", cuda.why_none.c_str());
    return true;
  }();
  (void)said;
  std::vector<std::string> kinds = {"emu"};
  if (cuda.count != 0) kinds.push_back("cuda");
  return kinds;
}

Devices devices_of(const std::string& kind, unsigned count) {
  Devices devices;
  if (kind == "emu") {
    for (unsigned i = 0; i < count; ++i) devices.push_back(std::make_shared<EmuDevice>(i));
    return devices;
  }
  // Opened once: a context takes a second.
  static Devices opened;
  const unsigned there = count_cuda_devices().count;
  for (unsigned i = 0; i < count; ++i) {
    while (opened.size() <= i % there) {
      auto device = open_device("cuda:" + std::to_string(opened.size()));
      if (!device) {
        ADD_FAILURE() << device.error().message;
        return {};
      }
      opened.push_back(std::move(*device));
    }
    devices.push_back(opened[i % there]);
  }
  return devices;
}

}  // namespace sluice::testing

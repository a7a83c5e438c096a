// The devices that tests run graphs on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/device/device.h"

namespace sluice::testing {

// "emu", and "cuda" where there are CUDA devices; says so once where there are none.
std::vector<std::string> device_kinds();

using Devices = std::vector<std::shared_ptr<Device>>;

// `count` devices of one kind; empty, with a failure, where one cannot be opened. Where there are fewer GPUs, one
// stands for several.
Devices devices_of(const std::string& kind, unsigned count);

}  // namespace sluice::testing

// host only
// What the program and its DPDK module say to each other: one function, found by name.
#pragma once

#include <memory>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "ports/port.h"

namespace sluice {

// What the module uses of the program.
struct DpdkHost {
  void (*log)(LogLevel level, std::string_view line);
};

using OpenDpdk = Result<std::unique_ptr<Port>>(const DpdkHost& host, const PortOptions& options,
                                               const std::shared_ptr<FramePool>& pool);

// What the module says of itself. `seam` is what it was built from (SLUICE_DPDK_SEAM: the build's hash of the headers
// that both sides share, whose types cross over): where it differs, nothing else may be looked at.
struct DpdkModule {
  const char* seam;
  OpenDpdk* open;
};
inline constexpr char kDpdkModuleSymbol[] = "sluice_dpdk_module";

}  // namespace sluice

// host only
// Ports by AF_XDP: frames go from the driver to the run past the kernel's stack, which keeps what is its own.
#pragma once

#include <memory>

#include "base/result.h"
#include "ports/port.h"

namespace sluice {

#if SLUICE_WITH_AF_XDP
// As `open_port`, for Ethernet interfaces; frames lie in chunks of `pool`, of all ports of a run the same.
Result<std::unique_ptr<Port>> open_af_xdp(const PortOptions& options, const std::shared_ptr<FramePool>& pool);
#else
inline Result<std::unique_ptr<Port>> open_af_xdp(const PortOptions&, const std::shared_ptr<FramePool>&) {
  return Error("this program was built without AF_XDP", "install libbpf-dev, then build it with SLUICE_AF_XDP=on");
}
#endif

}  // namespace sluice

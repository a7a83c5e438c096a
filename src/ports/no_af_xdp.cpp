// host only
// In the place of ports/af_xdp, where there is no libbpf.
#include "ports/methods.h"

#if !SLUICE_WITH_AF_XDP
namespace sluice {

Result<std::unique_ptr<Port>> open_af_xdp(const PortOptions&, const std::shared_ptr<FramePool>&) {
  return Error("this program was built without AF_XDP", "install libbpf-dev, then build it with SLUICE_AF_XDP=on");
}

void examine_af_xdp(MethodHere& here) {
  lack(here, "AF_XDP in this program", "sudo apt-get install libbpf-dev; cmake -DSLUICE_AF_XDP=on");
}

}  // namespace sluice
#endif

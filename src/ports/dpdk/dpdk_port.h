// host only
// DPDK ports: loads the module that is linked against DPDK, so that the program itself is not.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "memory/frame_pool.h"
#include "ports/port.h"

namespace sluice {

// Opens the port that `options.name` says: "0" (the first that is DPDK's: see README.md), a PCI address, or a virtual
// device with its arguments ("net_pcap0,rx_pcap=in.pcap"). The first call starts DPDK's environment layer. Frames lie
// in DPDK's own pool, one for all ports that are opened with the same `pool`, whose shape it takes: RxQueue::pool() is
// that one. One thread at a time. Errors: no module or no DPDK here, with the command that gives it; no such device;
// what its driver does not take.
Result<std::unique_ptr<Port>> open_dpdk_port(const PortOptions& options, const std::shared_ptr<FramePool>& pool);

// The same with the first of `modules` that is a file.
Result<std::unique_ptr<Port>> open_dpdk_port(const PortOptions& options, const std::shared_ptr<FramePool>& pool,
                                             const std::vector<std::string>& modules);

// Where the module is looked for: beside the program, and in ../lib/sluice from there.
std::vector<std::string> dpdk_modules();
bool has_dpdk_module();

}  // namespace sluice

// host only
// One function for each method: `open_port` without the choice. See Port and open_port for what they take and return.
#pragma once

#include <memory>

#include "base/result.h"
#include "ports/port.h"

namespace sluice {

using OpenPort = Result<std::unique_ptr<Port>>(const PortOptions& options, const std::shared_ptr<FramePool>& pool);

// Whether this program has the method.
bool has_port_method(PortMethod method);

OpenPort open_af_packet_port;
OpenPort open_dpdk_port;
OpenPort open_tap_port;
OpenPort open_pcap_port;

}  // namespace sluice

// host only
// Captures as ports: read into batches, written in order.
#pragma once

#include <memory>

#include "exec/engine/ports.h"

namespace sluice {

// As open_source and open_sink, for a port of type kCapture.
Result<std::unique_ptr<BatchSource>> open_capture_source(const PortSpec& spec, InputSet* inputs);
Result<std::unique_ptr<PacketSink>> open_capture_sink(const PortSpec& spec, LinkType link);

}  // namespace sluice

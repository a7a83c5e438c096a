// host only
// For tests: packets through one element that carries state from batch to batch, cut into batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "net/packet_builder.h"

namespace sluice::testing {

struct TimedPacket {
  uint64_t at_ns = 0;
  std::vector<uint8_t> frame;
};

// The output by which each packet leaves the element, -1 where it is dropped, with at most `batch` packets a batch.
// Packets are parsed as IPInput does. All batches are prepared before the first is processed, as many workers may do:
// an element that reads its state while it prepares gives other answers then.
std::vector<int> outputs_in_order(const std::string& element, const std::vector<TimedPacket>& packets, uint32_t batch);

}  // namespace sluice::testing

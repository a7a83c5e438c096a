// Packets that leave the fast path, and the product's standard graph with all of its slow path.
#pragma once

#include <cstdint>
#include <string>

#include "tests/testing/run_graph.h"

namespace sluice::testing {

// `packets` frames, half of them common, the others with options right and wrong, larger than an output's MTU with and
// without DF, fragments, expired, to where no route or neighbour is; IPv4 and IPv6.
void write_slow_path_capture(const std::string& path, uint32_t packets, uint64_t seed = 1);

// The standard graph from in.pcap of the folder over tables that fit that capture, to $OUT; `by_port`: what goes to
// port 1 to $OUT2.
std::string slow_path_graph_text(const TempDir& dir, bool by_port);

}  // namespace sluice::testing

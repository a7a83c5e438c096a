// sluice explain FILE.click: one packet's way through any graph, element by element.
// host only
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app.h"

namespace sluice::app {

// `words`: the file and NAME=VALUE. `frame` is what came of a packet that had `wire_bytes`. Prints the way; ends with
// kBadInput where the graph has errors.
Exit explain_graph(const std::vector<std::string>& words, const std::vector<uint8_t>& frame, uint32_t wire_bytes);

}  // namespace sluice::app

// A graph back to Click text.
#pragma once

#include <string>

#include "graph/click/syntax.h"

namespace sluice {

// The canonical text of a graph: requirements, one declaration a line in the order of elements, an empty line, then
// chains of connections. parse_click(print_click(g)) == g for every normalized graph that parse_click can produce.
std::string print_click(const ClickGraph& graph);

}  // namespace sluice

// Text to tree. Internal.
#pragma once

#include <string>

#include "graph/click/findings.h"
#include "graph/click/syntax.h"
#include "graph/click/tree.h"

namespace sluice::click {

// Parses the whole text; findings say what is wrong. The tree is complete only when they are empty.
Tree parse_tree(Findings& findings, const ParseOptions& options);

// A name as it may stand in a message: bounded, printable.
std::string shown(std::string_view text);

}  // namespace sluice::click

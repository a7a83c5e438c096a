// Text to tree. Internal.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_set>

#include "graph/click/findings.h"
#include "graph/click/syntax.h"
#include "graph/click/tree.h"

namespace sluice::click {

// Parses the whole text; findings say what is wrong. The tree is complete only when they are empty. `linked`: the
// arguments of `require` that are libraries whose text is there already (library.h).
Tree parse_tree(Findings& findings, const ParseOptions& options, const std::unordered_set<size_t>& linked);

// A name as it may stand in a message: bounded, printable.
std::string shown(std::string_view text);

}  // namespace sluice::click

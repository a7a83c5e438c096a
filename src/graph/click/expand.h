// Tree to flat graph: variables, compounds, tunnels. Internal.
#pragma once

#include "graph/click/findings.h"
#include "graph/click/syntax.h"
#include "graph/click/tree.h"

namespace sluice::click {

// Expands a tree that parsed without findings. What is wrong goes to `findings`.
ClickGraph expand_tree(const Tree& tree, Findings& findings, const ParseOptions& options);

}  // namespace sluice::click

// host only
// Push and pull: which ports hand packets on, which ask for them, and what agnostic ports become.
//
// Source: Kohler et al., "The Click Modular Router" (ToCS 2000), section 2; the codes are those of Click's manuals.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/click/syntax.h"
#include "graph/element.h"

namespace sluice {

enum class Processing : uint8_t { kPush, kPull, kAgnostic };

// The code of a class: its own, or what its kind and its ports say. "inputs/outputs", a letter a port: h push, l pull,
// a agnostic; the last letter of a side stands for all further ports. Agnostic ports of one element are of one kind,
// unless
// `#` follows the slash-separated sides: then each is for itself.
std::string_view processing_code(const ElementClass& element_class, ElementKind kind);
// What the code says of a port.
Processing port_processing(std::string_view code, bool output, unsigned port);
// Whether a code can be read.
bool is_processing_code(std::string_view code);

// A place where a push port meets a pull port.
struct ProcessingConflict {
  struct End {
    unsigned element = 0;
    unsigned port = 0;
    bool output = false;
  };
  const ClickConnection* connection = nullptr;  // where they meet; its ends are of different kinds
  unsigned element = ~0u;                       // or the element whose agnostic ports would have to be both
  End push, pull;                               // the ports that say so
};

// By connection of the graph: true for pull. `codes` has one of each element; empty: unknown class, whose ports are not
// looked at. Agnostic ports that nothing decides push. Conflicts in the order in which they were found, at most one a
// connection and element.
std::vector<bool> resolve_processing(const ClickGraph& graph, const std::vector<std::string_view>& codes,
                                     std::vector<ProcessingConflict>* conflicts);

}  // namespace sluice

#include "graph/click/print.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {

std::string print_click(const ClickGraph& graph) {
  std::string out;
  for (const std::string& requirement : graph.requirements) out += fmt::format("require({});\n", requirement);
  for (const ClickElement& e : graph.elements) {
    out += e.name;
    out += " :: ";
    out += e.class_name;
    if (!e.configuration.empty()) {
      out += '(';
      out += e.configuration;
      out += ')';
    }
    out += ";\n";
  }
  if (graph.connections.empty()) return out;
  if (!out.empty()) out += '\n';

  // Connections by their source. A chain goes through an element from input 0 to output 0, if that is what is left.
  std::vector<std::vector<size_t>> leaving(graph.elements.size());
  std::vector<size_t> next(graph.elements.size());
  std::vector<bool> entered(graph.elements.size());
  for (size_t i = 0; i < graph.connections.size(); ++i) {
    leaving[graph.connections[i].from].push_back(i);
    entered[graph.connections[i].to] = true;
  }
  auto print_from = [&](size_t element) {
    while (next[element] < leaving[element].size()) {
      size_t at = element;
      const char* arrow = " -> ";
      out += graph.elements[at].name;
      while (next[at] < leaving[at].size()) {
        const ClickConnection& c = graph.connections[leaving[at][next[at]++]];
        if (c.from_port != 0) out += fmt::format(" [{}]", c.from_port);
        out += arrow;
        if (c.to_port != 0) out += fmt::format("[{}] ", c.to_port);
        out += graph.elements[c.to].name;
        at = c.to;
        const bool on =
            c.to_port == 0 && next[at] < leaving[at].size() && graph.connections[leaving[at][next[at]]].from_port == 0;
        if (!on) break;
        arrow = "\n    -> ";
      }
      out += ";\n";
    }
  };
  // From the sources first, so that chains are long; then what only cycles reach.
  for (size_t i = 0; i < graph.elements.size(); ++i) {
    if (!entered[i]) print_from(i);
  }
  for (size_t i = 0; i < graph.elements.size(); ++i) print_from(i);
  return out;
}

}  // namespace sluice

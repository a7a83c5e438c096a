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

  // Connections by their source: a chain goes on with the first unprinted connection of the element it has reached.
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
      out += graph.elements[at].name;
      while (next[at] < leaving[at].size()) {
        const ClickConnection& c = graph.connections[leaving[at][next[at]++]];
        if (c.from_port != 0) out += fmt::format(" [{}]", c.from_port);
        out += " -> ";
        if (c.to_port != 0) out += fmt::format("[{}] ", c.to_port);
        out += graph.elements[c.to].name;
        at = c.to;
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

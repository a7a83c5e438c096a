// host only
// What can be said of a graph without running it.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "api/border.h"
#include "graph/click/syntax.h"
#include "graph/element.h"
#include "graph/router.h"
#include "module.h"

namespace sluice::python {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Checks a graph, without its tables and files. Returns the elements, as "name :: Class", whose treatment of a packet
// depends on those before it.
std::vector<std::string> graph_state(const std::string& text, const std::string& name, const Variables& variables) {
  const nb::gil_scoped_release release;
  ParseOptions options;
  options.defines = variables;
  auto graph = parse_click(text, name, options);
  if (!graph) throw Failure(graph.error());
  auto router = build_router(*graph, api::element_classes(), text);
  if (!router) throw Failure(router.error());
  std::vector<std::string> found;
  for (const auto& element : router->elements) {
    if (element->kind() == ElementKind::kFlow || element->kind() == ElementKind::kOrdered)
      found.push_back(element->name + " :: " + element->class_name);
  }
  return found;
}

}  // namespace

void bind_graphs(nb::module_& m) {
  m.def("graph_state", &graph_state);
}

}  // namespace sluice::python

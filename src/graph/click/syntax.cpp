#include "graph/click/syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "graph/click/expand.h"
#include "graph/click/library.h"
#include "graph/click/parser.h"

namespace sluice {

int ClickGraph::find(std::string_view name) const {
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

void ClickGraph::normalize() {
  std::stable_sort(connections.begin(), connections.end(), [](const ClickConnection& a, const ClickConnection& b) {
    return std::tie(a.from, a.from_port, a.to, a.to_port) < std::tie(b.from, b.from_port, b.to, b.to_port);
  });
  connections.erase(std::unique(connections.begin(), connections.end()), connections.end());
}

Result<ClickGraph> parse_click(std::string_view text, std::string file, const ParseOptions& options) {
  if (text.size() > options.max_source_bytes) {
    return Error(fmt::format("{} has {} bytes; the limit is {}", file, text.size(), options.max_source_bytes));
  }
  if (text.starts_with("!<arch>")) {
    return Error(fmt::format("{} is an archive; archives are not supported", file),
                 "extract its member 'config' and use that file");
  }
  click::LinkedText linked;
  if (options.library) {
    linked = click::link_libraries(text, file, options);
    text = linked.text;
  }
  click::Findings findings(std::make_shared<const SourceText>(std::move(file), text));
  for (click::LinkedText::Problem& p : linked.problems) {
    Diagnostic& d = findings.error(p.offset, p.length, std::move(p.message));
    d.expected = std::move(p.expected);
    d.suggestion = std::move(p.suggestion);
  }
  const click::Tree tree = click::parse_tree(findings, options, linked.linked);
  // A broken tree would only add findings that follow from the first ones.
  if (!findings.ok()) return findings.to_error();
  ClickGraph graph = click::expand_tree(tree, findings, options);
  click::map_ports(graph, options, findings);
  if (!findings.ok()) return findings.to_error();
  return graph;
}

}  // namespace sluice

// host only
#include "exec/engine/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/click/print.h"
#include "graph/graph_files.h"

namespace sluice {

Result<std::unique_ptr<GraphGeneration>> load_generation(std::string_view text, const std::string& name,
                                                         const Registry& registry, const LoadOptions& options) {
  auto graph = parse_click(text, name, options.parse);
  if (!graph) return std::move(graph).error();
  auto router = build_router(*graph, registry, text);
  if (!router) return std::move(router).error();
  if (auto ok = check_files(*router); !ok) return std::move(ok).error();
  auto made = std::make_unique<GraphGeneration>();
  made->router = std::move(*router);
  if (options.by_packets || !made->router.scheduled.empty()) {
    made->plan = plan_by_packets(made->router, options.at_sinks);
  } else {
    auto plan = make_plan(made->router, options.at_sinks);
    if (!plan) return std::move(plan).error();
    made->plan = std::move(*plan);
  }
  TableReport report;
  auto tables = load_tables(made->router, options.overrides, &report, {}, options.keep_models ? &made->models : nullptr,
                            nullptr, options.in_use);
  if (!tables) return std::move(tables).error();
  RunFiles included;
  for (const TableLoad& load : report.loads) {
    for (const std::string& file : load.files) included.input(fmt::format("table '{}'", load.name), file);
  }
  if (auto ok = check_files(made->router, std::move(included)); !ok) return std::move(ok).error();
  made->tables = std::move(*tables);
  made->loads = std::move(report.loads);
  return made;
}

std::string graph_text(const Router& router) {
  ClickGraph graph;
  for (const auto& element : router.elements) {
    ClickElement& made = graph.elements.emplace_back();
    made.name = element->name;
    made.class_name = element->class_name;
    made.configuration = element->configuration;
  }
  for (const RouterConnection& c : router.connections)
    graph.connections.push_back({c.from, c.from_port, c.to, c.to_port, {}});
  graph.requirements = router.requirements;
  graph.normalize();
  return print_click(graph);
}

bool goes_on(Element& before, const Element& next) {
  return before.class_name == next.class_name && before.configuration == next.configuration &&
         before.inputs == next.inputs && before.outputs == next.outputs && before.kind() == next.kind() &&
         before.kind() != ElementKind::kInfo &&
         (before.kind() != ElementKind::kStage || before.flow() != nullptr || !before.handlers().empty());
}

namespace {

template <typename Is>
std::vector<unsigned> matches(const Router& of, const Router& in, Is&& is) {
  std::map<std::string_view, unsigned> by_name;
  for (unsigned e = 0; e < in.elements.size(); ++e) by_name.emplace(in.elements[e]->name, e);
  std::vector<unsigned> found(of.elements.size(), kNobody);
  for (unsigned e = 0; e < of.elements.size(); ++e) {
    const auto at = by_name.find(of.elements[e]->name);
    if (at != by_name.end() && is(*of.elements[e], *in.elements[at->second])) found[e] = at->second;
  }
  return found;
}

}  // namespace

std::vector<unsigned> heirs_of(const Router& before, const Router& next) {
  return matches(before, next, [](Element& a, Element& b) { return a.class_name == b.class_name; });
}
std::vector<unsigned> same_elements(const Router& before, const Router& next) {
  return matches(next, before, [](Element& a, Element& b) { return goes_on(b, a); });
}

void carry_counters(std::vector<ElementCounters>& counters, const std::vector<unsigned>& heirs, size_t elements,
                    ElementCounters& gone) {
  std::vector<ElementCounters> next(elements);
  for (size_t e = 0; e < counters.size(); ++e) (heirs[e] == kNobody ? gone : next[heirs[e]]).add(counters[e]);
  counters = std::move(next);
}

bool same_output(const PortSpec& a, const PortSpec& b) {
  return a.type == b.type && a.path == b.path && a.nanosecond == b.nanosecond && a.snaplen == b.snaplen;
}

RunFiles files_besides(const RunFiles& past, const Router& before, const Router& next) {
  RunFiles files = past;
  for (const auto& element : before.elements) {
    RunFiles own;
    add_files(*element, own);
    for (const RunFiles::File& file : own.files()) {
      const bool output = file.use == RunFiles::File::Use::kOutput;
      const bool stays = output && std::any_of(next.elements.begin(), next.elements.end(), [&](const auto& other) {
                           return element->kind() == ElementKind::kSink
                                      ? other->kind() == ElementKind::kSink && other->port().path == file.path
                                      : other->name == element->name && goes_on(*element, *other);
                         });
      // Lines on standard output are not lost by those that follow.
      const bool lines = output && file.path == "-" && element->kind() != ElementKind::kSink;
      if (stays || lines) continue;
      output ? files.output(file.who, file.path) : files.input(file.who, file.path);
    }
  }
  return files;
}

}  // namespace sluice

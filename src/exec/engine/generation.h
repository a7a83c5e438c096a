// host only
// Graphs of a run: what one is loaded with, and what of it goes on in the graph that follows it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/run_files.h"
#include "elements/tables.h"
#include "exec/account/counters.h"
#include "exec/walk/plan.h"
#include "graph/click/syntax.h"
#include "graph/router.h"

namespace sluice {

// A graph, checked, with all that an engine needs to run it.
struct GraphGeneration {
  Router router;
  Plan plan;
  TableSet tables;
  std::vector<TableLoad> loads;
  TableModels models;  // where they were asked for
};

struct LoadOptions {
  ParseOptions parse;
  bool by_packets = false;   // in the packet scheduler, whatever the graph is
  bool keep_models = false;  // GraphGeneration::models
  FieldMask at_sinks = 0;    // as of make_plan
  TableOverrides overrides;
  TablesInUse* in_use = nullptr;  // where its tables are read again
};
// Reads, checks and plans one, and builds its tables; nothing is opened but their files. `name`: of the text, in
// messages. Errors: those of the first of these that has any.
Result<std::unique_ptr<GraphGeneration>> load_generation(std::string_view text, const std::string& name,
                                                         const Registry& registry, const LoadOptions& options = {});

// It as Click text, compounds expanded.
std::string graph_text(const Router& router);

inline constexpr unsigned kNobody = ~0u;

// Whether an element of the next graph is that of the graph before, with all it has: the same name is the caller's.
// Elements without anything of their own are made anew, as what they read (files of patterns) may have changed.
bool goes_on(Element& before, const Element& next);
// By element of the graph before: the one of the next graph with its name and class, or kNobody.
std::vector<unsigned> heirs_of(const Router& before, const Router& next);
// By element of the next graph: the one of the graph before that goes on as it, or kNobody.
std::vector<unsigned> same_elements(const Router& before, const Router& next);
// Counters by element of the graph before become those of the next one, which has `elements`. What belongs to nobody
// there is added to `gone`.
void carry_counters(std::vector<ElementCounters>& counters, const std::vector<unsigned>& heirs, size_t elements,
                    ElementCounters& gone);
// Whether a port that is open as `a` is what `b` asks for.
bool same_output(const PortSpec& a, const PortSpec& b);

// What a run has read and written: `past`, and what `before` does, without those outputs with which `next` goes on. The
// next graph's own files must be none of it.
RunFiles files_besides(const RunFiles& past, const Router& before, const Router& next);

}  // namespace sluice

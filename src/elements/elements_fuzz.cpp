// Any text as a configuration of the product's elements: parsing, arguments, patterns, routes, ports and fields. No
// file is opened.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "elements/register_all.h"
#include "graph/stage_slot.h"
#include "graph/table_set.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  static const Registry& registry = []() -> Registry& {
    auto* made = new Registry;
    register_elements(*made);
    return *made;
  }();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ParseOptions limits;
  limits.max_elements = 1000;
  limits.max_connections = 4000;
  limits.max_text_bytes = 1 << 20;
  auto graph = parse_click(text, "fuzz", limits);
  if (!graph) return 0;
  auto router = build_router(*graph, registry, text);
  if (!router) {
    if (to_string(router.error()).empty()) __builtin_trap();
    return 0;
  }
  for (size_t i = 0; i < router->elements.size(); ++i) {
    const Element& e = *router->elements[i];
    if (e.kind() != ElementKind::kStage || !e.tables().empty()) continue;
    StageSlot slot{};
    if (!e.bind({}, slot).ok()) continue;  // it wants a table
    // An accepted stage runs on the text itself.
    (void)slot;
  }
  return 0;
}

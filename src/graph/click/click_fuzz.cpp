// Any text parses or is refused with located findings; what parses prints to a text that parses to the same graph.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "graph/arguments.h"
#include "graph/click/print.h"
#include "graph/click/syntax.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ParseOptions options;
  options.max_elements = 2000;
  options.max_connections = 8000;
  options.max_text_bytes = 1 << 20;
  options.defines = {{"given", "1, \"two\""}};
  if (size % 3 == 1) options.known_classes = {"Idle", "Counter", "Discard", "Queue", "Tee"};
  // Libraries are ends of the text itself, which may require others.
  size_t all = size;
  if (size % 3 == 2) {
    options.max_source_bytes = 1 << 20;
    all = 2 * options.max_source_bytes;
    options.library = [text](const std::string& name, const std::string&) -> Result<ClickLibrary> {
      return ClickLibrary{name, std::string(text.substr(std::min(text.size(), 16 * name.size())))};
    };
  }
  const Result<ClickGraph> graph = parse_click(text, "fuzz.click", options);
  if (!graph.ok()) {
    require(!to_string(graph.error()).empty());
    for (const Diagnostic& d : graph.error().diagnostics) require(d.line > 0 && d.column > 0 && !d.message.empty());
    return 0;
  }
  for (const ClickElement& e : graph->elements) {
    require(is_closed_config(e.configuration));
    for (const ConfigSlice& a : split_arguments(e.configuration)) {
      require(a.offset + a.length <= e.configuration.size());
      require(e.configuration_origin.position(a.offset).offset <= all);
    }
  }
  const std::string printed = print_click(*graph);
  const Result<ClickGraph> again = parse_click(printed, "printed.click");
  require(again.ok());
  require(*again == *graph);
  require(print_click(*again) == printed);
  return 0;
}

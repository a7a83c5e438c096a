// host only
#include "graph/graph_files.h"

#include <fmt/format.h>

#include "formats/route_files.h"

namespace sluice {

void add_files(const Element& element, RunFiles& files) {
  // Elements without a name of their own are called Class@N.
  const bool named = !element.name.empty() && element.name.find('@') == std::string::npos;
  const std::string who = named ? fmt::format("{} ({})", element.name, element.class_name) : element.class_name;
  const auto add = [&](bool output, const std::string& path) {
    output ? files.output(who, path) : files.input(who, path);
  };
  const PortSpec port = element.port();
  if (port.type == PortSpec::Type::kCapture || port.type == PortSpec::Type::kMemory)
    add(element.kind() == ElementKind::kSink, port.path);
  for (const TableDeclaration& table : element.tables()) {
    for (const std::string& file : table.files)
      add(false, table.type == TableDeclaration::Type::kRoutes ? path_of_route_file(file) : file);
  }
  for (const FileUse& file : element.files()) add(file.output, file.path);
}

void add_files(const Router& router, RunFiles& files, std::vector<unsigned>* elements) {
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    add_files(*router.elements[e], files);
    if (elements != nullptr) elements->resize(files.files().size(), e);
  }
}

Result<void> check_files(const Router& router, RunFiles files) {
  const size_t before = files.files().size();
  std::vector<unsigned> elements(before);  // by file
  add_files(router, files, &elements);
  Error errors;
  for (const RunFiles::Clash& clash : files.clashes()) {
    // At the element that writes; else (another file of the run is written) at the one that reads.
    const size_t at = clash.output >= before ? clash.output : clash.other;
    if (at < before) return clash.error;
    Diagnostic d = router.elements[elements[at]]->diagnostic(clash.error.message);
    d.suggestion = clash.error.hint;
    errors.diagnostics.push_back(std::move(d));
  }
  if (errors.diagnostics.empty()) return {};
  const size_t n = errors.diagnostics.size();
  errors.message = fmt::format("{} output{} cannot be written", n, n == 1 ? "" : "s");
  return errors;
}

}  // namespace sluice

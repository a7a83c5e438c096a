// host only
#include "control/control.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "control/command.h"
#include "control/request.h"
#include "graph/table_kind.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

std::string text_in(const Json& request, const char* field) {
  const auto found = request.find(field);
  return found != request.end() && found->is_string() ? found->get<std::string>() : std::string();
}
const CommandRow* row_of(const Json& request) {
  return find_command(text_in(request, "command"));
}

}  // namespace

void Control::use(LiveTables& next, std::string configuration) {
  tables = &next;
  facts.configuration = std::move(configuration);
  cleared.graph_changed(engine.router());
  if (trace != nullptr) trace->graph_changed();
  if (capture != nullptr) capture->graph_changed();
}

bool Control::may_change(const Json& request) {
  const CommandRow* const row = row_of(request);
  return row != nullptr && row->changes;
}

bool Control::is_short(const Json& request) const {
  constexpr size_t kShort = 16384;
  const CommandRow* const row = row_of(request);
  if (row == nullptr || !row->patches || request.contains("dry_run")) return false;
  const auto changes = request.find("changes");
  if (changes == request.end() || !changes->is_string()) return true;  // which is an error
  if (changes->get_ref<const std::string&>().size() > kShort) return false;
  const std::string group = row->name.substr(0, row->name.find(' '));
  return tables->patches(find_table_kind_by_option(group)->name, text_in(request, "table"));
}

std::string Control::answer(std::string_view line) {
  auto request = read_request(line);
  return request.ok() ? answer(*request) : refusal(request.error());
}

std::string Control::answer(Json& read) {
  return answer_request(read, [this](Json& request) { return run(request); });
}

Result<std::string> Control::run(Json& request) {
  if (trace != nullptr) trace->digest(*tables);
  if (capture != nullptr) capture->digest();
  const CommandRow* const row = row_of(request);
  if (row == nullptr || (row->there != nullptr && !row->there(*this))) return no_command(text_in(request, "command"));
  if (auto ok = read_fields(*row, request); !ok) return std::move(ok).error();
  Asked asked(request);
  if (row->run_as_text != nullptr) return row->run_as_text(*this, asked);
  const Result<Json> result = row->run(*this, asked);
  if (!result) return result.error();
  return result_text(*result);
}

Result<void> Control::look(RunReport& report, const std::function<void(const Router&)>& use_it) {
  if (auto ok = engine.look(report); !ok) return ok;
  // Scripts replace their graph themselves.
  if (engine.by_packets()) return engine.ask([&] { use_it(engine.router()); });
  use_it(engine.router());
  return {};
}

Result<std::string> only_table(const NamedImages& tables, const char* kind, std::string name) {
  if (!name.empty()) return name;
  if (tables.size() == 1) return tables.begin()->first;
  if (tables.empty()) return Error(fmt::format("this run has no {}", kind));
  std::vector<std::string> names;
  for (const auto& [table, image] : tables) names.push_back(table);
  return Error(fmt::format("there are several: {}", fmt::join(names, ", ")), "choose one with --table NAME");
}

}  // namespace sluice

// host only
#include "control/live_reload.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <new>
#include <string_view>
#include <tuple>

#include "control/live_parts.h"
#include "tables/acl/algorithms.h"

namespace sluice {
namespace {

bool same_declaration(const TableDeclaration& a, const TableDeclaration& b) {
  const auto all = [](const TableDeclaration& d) {
    return std::tie(d.type, d.name, d.files, d.text, d.format, d.algorithm, d.algorithm6, d.routes, d.neighbours);
  };
  return all(a) == all(b);
}

}  // namespace

LiveTables::Reload::Reload(LiveTables& live, bool all)
    : live_(live), all_(all), unwinding_(std::uncaught_exceptions()) {}

LiveTables::Reload::~Reload() {
  if (committed_) return;
  // A step that found no memory has left its list in pieces.
  for (auto& [table, patched] : patched_) take_back(table, patched, std::uncaught_exceptions() == unwinding_);
}

// `whole`: the list is one that can go back.
void LiveTables::Reload::take_back(const std::string& table, Patched& patched, bool whole) {
  const auto at = live_.acls_.find(table);
  if (at == live_.acls_.end()) return;
  if (whole) {
    try {
      at->second.list.undo();
      // Those that made an image that is not published know too much.
      if (patched.made && patched.fresh == nullptr) at->second.images.reset();
      return;
    } catch (const std::bad_alloc&) {
    }
  }
  // It is made of its image when it is asked for again.
  live_.acls_.erase(at);
}

std::optional<TablesInUse::Unchanged> LiveTables::Reload::unchanged(const TableDeclaration& d) {
  if (all_) return std::nullopt;
  const Key key(kind_of(d.type), d.name);
  const auto source = live_.sources_.find(key);
  if (source == live_.sources_.end() || source->second.unsaved || !same_declaration(source->second.declaration, d))
    return std::nullopt;
  if (d.type == TableDeclaration::Type::kAdjacency && !kept_.contains({"routes", d.routes})) return std::nullopt;
  const auto load = std::ranges::find_if(
      live_.loads_, [&](const TableLoad& one) { return one.kind == key.first && one.name == key.second; });
  if (load == live_.loads_.end() || load->read.size() < d.files.size()) return std::nullopt;
  if (!std::ranges::all_of(load->read, &FileStamp::unchanged)) return std::nullopt;
  const TableSet& set = live_.tables_;
  const auto& tables = d.type == TableDeclaration::Type::kAcl      ? set.acls
                       : d.type == TableDeclaration::Type::kRoutes ? set.routes
                                                                   : set.adjacencies;
  const auto image = tables.find(d.name);
  if (image == tables.end()) return std::nullopt;
  kept_.insert(key);
  return Unchanged{image->second, *load};
}

Result<std::shared_ptr<const Image>> LiveTables::Reload::changed(const TableDeclaration& d, const RuleSet& rules) {
  const std::shared_ptr<const Image> none;
  if (!live_.tables_.acls.contains(d.name) || live_.load_of("acl", d.name).asked != d.algorithm) return none;
  auto found = live_.acl_state(d.name);
  if (!found) return std::move(found).error();
  AclState& state = **found;
  state.list.begin();
  Patched& patched = patched_[d.name];
  const auto built_anew = [&] {
    take_back(d.name, patched, true);
    patched_.erase(d.name);
    return none;
  };
  if (!live_.becomes(state, d.name, rules)) return built_anew();
  TableChange change{.table = d.name};
  auto choice = live_.choose_acl_images(state, state.list, false, change);
  if (!choice) return std::move(choice).error();
  if (choice->image != nullptr || choice->algorithm != TupleMergeAcl::kName) return built_anew();
  patched.chosen_at = choice->chosen_at;
  if (state.images == nullptr || state.algorithm != choice->algorithm)
    patched.fresh = make_acl_images(choice->algorithm, live_.publisher_);
  patched.made = true;
  return (patched.fresh != nullptr ? patched.fresh : state.images)->make(state.list);
}

Rib LiveTables::Reload::best_routes(const std::string& table) {
  const auto found = live_.models_.routes.find(table);
  return found == live_.models_.routes.end() ? Rib() : found->second.best_routes();
}

size_t LiveTables::Reload::bytes_with(const GraphGeneration& next) const {
  size_t sum = live_.bytes();
  for (const TableLoad& load : next.loads) {
    if (kept_.contains({load.kind, load.name})) continue;
    const auto patched = load.kind == "acl" ? patched_.find(load.name) : patched_.end();
    if (patched == patched_.end()) {
      sum += load.bytes;
    } else if (patched->second.fresh != nullptr) {
      sum += patched->second.fresh->bytes();
    }
  }
  return sum;
}

Result<uint64_t> LiveTables::Reload::commit(GraphGeneration next) {
  if (const size_t sum = bytes_with(next); live_.max_bytes_ != 0 && sum > live_.max_bytes_) {
    return Error(fmt::format("the tables before and after would take {}, more than the limit of {}", in_bytes(sum),
                             in_bytes(live_.max_bytes_)),
                 "the tables stay as they are; give run a larger --max-memory");
  }
  auto snapshot = bind_plan(live_.plan_, live_.router_, next.tables);
  if (!snapshot) return std::move(snapshot).error();
  // What takes memory comes first: behind the flip the change is made, and nothing may fail.
  Sources sources = sources_of(next.router);
  decltype(live_.changed_) changed;
  std::map<std::string, std::set<std::string>, std::less<>> stay{{"acl", {}}, {"routes", {}}, {"adjacency", {}}};
  for (const TableLoad& load : next.loads) {
    const Key key(load.kind, load.name);
    changed.emplace(key, kept_.contains(key) ? live_.changed(load.kind, load.name) : 0);
    if (kept_.contains(key) || (load.kind == "acl" && patched_.contains(load.name))) stay[load.kind].insert(load.name);
  }
  uint64_t generation = 0;
  try {
    generation = live_.publisher_.publish(std::move(*snapshot));
  } catch (const std::bad_alloc&) {
    return Error("no memory for another generation", "the tables stay as they are");
  }
  committed_ = true;
  for (auto& [key, last] : changed) {
    if (!kept_.contains(key)) last = generation;
  }
  // What belongs to tables that stay goes on; the rest goes with its tables.
  const auto gone = [&](std::string_view kind) {
    return [&names = stay.find(kind)->second](const auto& one) { return !names.contains(one.first); };
  };
  std::erase_if(live_.acls_, gone("acl"));
  std::erase_if(live_.route_images_, gone("routes"));
  std::erase_if(live_.next_hops_, gone("adjacency"));
  std::erase_if(live_.models_.acls, gone("acl"));
  std::erase_if(live_.models_.routes, gone("routes"));
  std::erase_if(live_.models_.adjacencies, gone("adjacency"));
  live_.models_.acls.merge(next.models.acls);
  live_.models_.routes.merge(next.models.routes);
  live_.models_.adjacencies.merge(next.models.adjacencies);
  std::swap(live_.models_.reach, next.models.reach);
  for (auto& [table, patched] : patched_) {
    AclState& state = live_.acls_.find(table)->second;
    if (patched.fresh != nullptr) state.images = std::move(patched.fresh);
    state.algorithm = TupleMergeAcl::kName;
    state.chosen_at = patched.chosen_at;
  }
  std::swap(live_.tables_, next.tables);
  std::swap(live_.loads_, next.loads);
  std::swap(live_.sources_, sources);
  std::swap(live_.changed_, changed);
  return generation;
}

std::vector<TableReload> LiveTables::Reload::tables() const {
  std::vector<TableReload> all;
  for (const TableLoad& load : live_.loads_) {
    TableReload one{.table = load.name, .kind = load.kind, .entries = load.entries};
    if (kept_.contains({load.kind, load.name})) {
      one.how = TableReload::How::kUnchanged;
    } else if (load.kind == "acl" && patched_.contains(load.name)) {
      one.how = TableReload::How::kRules;
      one.rules = live_.acls_.find(load.name)->second.list.difference();
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace sluice

// host only
#include "control/live_reload.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "base/cancel.h"
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

LiveTables::Reload::Reload(LiveTables& live, bool all) : live_(live), all_(all) {}

LiveTables::Reload::~Reload() {
  if (committed_) return;
  // Those that made an image that is not published know too much.
  for (auto& [table, patched] : patched_) {
    const auto at = live_.acls_.find(table);
    if (patched.fresh == nullptr && at != live_.acls_.end()) at->second.images.reset();
  }
}

std::optional<TablesInUse::Unchanged> LiveTables::Reload::unchanged(const TableDeclaration& d) {
  const auto inside = live_.inside();
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
  const auto& tables = static_cast<const TableSet&>(live_.tables_).of(d.type);
  const auto image = tables.find(d.name);
  if (image == tables.end()) return std::nullopt;
  kept_.insert(key);
  return Unchanged{image->second, *load};
}

Result<std::shared_ptr<const Image>> LiveTables::Reload::changed(const TableDeclaration& d, const RuleSet& rules) {
  const std::shared_ptr<const Image> none;
  const auto inside = live_.inside();
  if (!live_.tables_.acls.contains(d.name) || live_.load_of("acl", d.name).asked != d.algorithm) return none;
  auto found = live_.acl_state(d.name);
  if (!found) return std::move(found).error();
  AclState& state = **found;
  if (state.list.same_as(rules)) {
    kept_.insert({"acl", d.name});
    return live_.tables_.acls.find(d.name)->second;
  }
  // The list of now stays what it is until all tables are read.
  Patched patched{.list = state.list, .fresh = nullptr};
  patched.list.begin();
  if (!live_.becomes(patched.list, d.name, rules)) return none;
  TableChange change{.table = d.name};
  auto choice = live_.choose_acl_images(state, patched.list, false, change);
  if (!choice) return std::move(choice).error();
  if (choice->image != nullptr || choice->algorithm != TupleMergeAcl::kName) return none;
  patched.chosen_at = choice->chosen_at;
  if (state.images == nullptr || state.algorithm != choice->algorithm)
    patched.fresh = make_acl_images(choice->algorithm, live_.publisher_);
  Patched& kept = patched_[d.name];
  kept = std::move(patched);
  return live_.build_images(state, *(kept.fresh != nullptr ? kept.fresh : state.images), kept.list);
}

std::shared_ptr<const Image> LiveTables::Reload::same_routes(const TableDeclaration& d, const SourcedRib& routes) {
  const SourcedRib* now = nullptr;
  std::shared_ptr<const Image> image;
  {
    const auto inside = live_.inside();
    const auto model = live_.models_.routes.find(d.name);
    const auto table = live_.tables_.routes.find(d.name);
    const auto source = live_.sources_.find({"routes", d.name});
    if (model == live_.models_.routes.end() || table == live_.tables_.routes.end() || source == live_.sources_.end() ||
        !same_declaration(source->second.declaration, d))
      return nullptr;
    now = &model->second;
    image = table->second;
  }
  // Only changes write to routes, and this is the only one.
  if (!now->same_routes(routes)) return nullptr;
  kept_.insert({"routes", d.name});
  return image;
}

// What neighbours are known the table follows by itself.
std::optional<TablesInUse::Unchanged> LiveTables::Reload::same_adjacencies(const TableDeclaration& d,
                                                                           const std::string& text) {
  const auto inside = live_.inside();
  const Key key("adjacency", d.name);
  const auto model = live_.models_.adjacencies.find(d.name);
  const auto source = live_.sources_.find(key);
  const auto image = live_.tables_.adjacencies.find(d.name);
  if (model == live_.models_.adjacencies.end() || source == live_.sources_.end() ||
      image == live_.tables_.adjacencies.end() || !kept_.contains({"routes", d.routes}))
    return std::nullopt;
  if (model->second.text != text || source->second.unsaved || !same_declaration(source->second.declaration, d))
    return std::nullopt;
  kept_.insert(key);
  return Unchanged{image->second, live_.load_of("adjacency", d.name)};
}

std::shared_ptr<const Image> LiveTables::Reload::same_list(const TableDeclaration& d,
                                                           const std::vector<std::string>& entries) {
  const auto inside = live_.inside();
  const auto model = live_.models_.lists.find({d.type, d.name});
  if (model == live_.models_.lists.end() || model->second != entries) return nullptr;
  kept_.insert({kind_of(d.type), d.name});
  return live_.tables_.of(d.type).find(d.name)->second;
}

Rib LiveTables::Reload::best_routes(const std::string& table) {
  const auto inside = live_.inside();
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
  if (changes_are_unwanted()) return cancelled_error();
  if (const size_t sum = bytes_with(next); live_.max_bytes_ != 0 && sum > live_.max_bytes_) {
    return Error(fmt::format("the tables before and after would take {}, more than the limit of {}", in_bytes(sum),
                             in_bytes(live_.max_bytes_)),
                 "the tables stay as they are; give run a larger --max-memory");
  }
  if (kept_.size() == next.loads.size()) {
    // Only when its files were looked at is news.
    std::swap(live_.loads_, next.loads);
    Sources sources = sources_of(next.router);
    std::swap(live_.sources_, sources);
    committed_ = true;
    return live_.publisher_.generation();
  }
  auto snapshot = bind_plan(live_.plan_, live_.router_, next.tables);
  if (!snapshot) return std::move(snapshot).error();
  // What takes memory comes first: behind the flip the change is made, and nothing may fail.
  Sources sources = sources_of(next.router);
  decltype(live_.changed_) changed;
  std::map<std::string, std::set<std::string>, std::less<>> stay;
  for (const TableKind* kind : table_kinds()) stay[kind->name];
  for (const TableLoad& load : next.loads) {
    const Key key(load.kind, load.name);
    changed.emplace(key, kept_.contains(key) ? live_.changed(load.kind, load.name) : 0);
    if (kept_.contains(key) || (load.kind == "acl" && patched_.contains(load.name))) stay[load.kind].insert(load.name);
  }
  uint64_t generation = 0;
  if (changes_are_unwanted()) return cancelled_error();
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
  std::erase_if(live_.models_.lists, [&](const auto& one) {
    return !stay.find(kind_of(one.first.first))->second.contains(one.first.second);
  });
  live_.models_.lists.merge(next.models.lists);
  std::swap(live_.models_.reach, next.models.reach);
  for (auto& [table, patched] : patched_) {
    AclState& state = live_.acls_.find(table)->second;
    static_assert(std::is_nothrow_move_assignable_v<RuleList>);
    state.list = std::move(patched.list);
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

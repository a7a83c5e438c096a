// host only
// Routes and what their next hops lead to, which change while packets pass.
#include "control/live_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/scope_exit.h"
#include "control/adjacency_change.h"
#include "control/change_text.h"
#include "control/live_parts.h"
#include "elements/table_use.h"
#include "formats/adjacency_text.h"
#include "formats/route_files.h"
#include "tables/lpm/algorithms.h"

namespace sluice {
namespace {

Result<std::string> routes_algorithm(const Image& image) {
  const ImageSection* four = image.find(SectionTag::kFib4);
  const ImageSection* six = image.find(SectionTag::kFib6);
  if (four == nullptr || six == nullptr) return Error("the route table's image lacks a family");
  return fmt::format("{}+{}", section_algorithm(*four), section_algorithm(*six));
}

}  // namespace

Result<const SourcedRib*> LiveTables::routes(const std::string& table) const {
  if (auto ok = known_table(tables_.routes, "route table", table); !ok) return std::move(ok).error();
  const auto it = models_.routes.find(table);
  return it == models_.routes.end() ? nullptr : &it->second;
}

Result<std::shared_ptr<const Image>> LiveTables::make_routes(const TableChange& change, const SourcedRib& next,
                                                             const std::vector<RouteStep>& steps, bool dry_run) {
  if (const auto at = route_images_.find(change.table); !dry_run && at != route_images_.end() && !steps.empty())
    return at->second->make(next, steps);
  // A build. Its maker is nobody's until it is done: who looks for the size of what there is finds the other one.
  auto fresh = dry_run ? make_rebuilt_route_images(change.algorithm) : make_route_images(change.algorithm, publisher_);
  auto made = [&] {
    // With steps they are the table's own routes, changed already: that is not to be seen.
    const LetGo aside(steps.empty() ? seen_ : nullptr);
    return fresh->make(next, steps);
  }();
  if (made.ok() && !dry_run) route_images_[change.table] = std::move(fresh);
  return made;
}

Result<LiveTables::LiveNextHops*> LiveTables::live_next_hops(const std::string& adjacencies) {
  if (const auto it = next_hops_.find(adjacencies); it != next_hops_.end()) return &it->second;
  const TableDeclaration& d = models_.adjacencies.find(adjacencies)->second;
  auto definitions = next_hop_definitions(d, models_.reach);
  if (!definitions) return std::move(definitions).error();
  NextHops hops(std::move(*definitions));
  if (const auto rib = models_.routes.find(d.routes); rib != models_.routes.end()) {
    hops.extend(rib->second.next_hops());
    hops.settle([&](const IpAddress& a) { return rib->second.match(a); });
  }
  return &next_hops_.emplace(adjacencies, LiveNextHops{std::move(hops), nullptr}).first->second;
}

std::vector<std::pair<std::string, const NextHops*>> LiveTables::next_hops_of(const std::string& routes) {
  std::vector<std::pair<std::string, const NextHops*>> all;
  for (const auto& [name, d] : models_.adjacencies) {
    if (d.routes != routes) continue;
    if (auto live = live_next_hops(name)) all.emplace_back(name, &(*live)->hops);
  }
  return all;
}

Result<std::shared_ptr<const Image>> LiveTables::adjacency_image(LiveNextHops& live, const NextHops& next,
                                                                 const NextHops::Changes& changes, bool dry_run) {
  if (changes.ids.empty() && changes.neighbours.empty()) return std::shared_ptr<const Image>();
  if (dry_run) return share(build_adjacencies(next.model()));
  if (live.images == nullptr) {
    auto made = PatchedAdjacencies::create(next.model());
    if (!made) return std::move(made).error();
    live.images = std::move(*made);
  } else {
    for (const uint32_t n : changes.neighbours) live.images->set_neighbour(n, next.neighbours()[n]);
    for (const uint32_t id : changes.ids) {
      // What is wrong with it is for the builder to say.
      if (!live.images->set_group(id, next.group(id))) return share(build_adjacencies(next.model()));
    }
  }
  return publish_patched(*live.images, publisher_);
}

Result<TableChange> LiveTables::commit_routes(const std::string& table, const SourcedRib& next,
                                              const std::vector<RouteStep>& steps, double parse_seconds, bool dry_run) {
  const Image& before = *tables_.routes.find(table)->second;
  TableChange change{.table = table, .kind = "routes"};
  const TableLoad& load = load_of("routes", table);
  change.entries_before = load.entries;
  change.entries_after = next.prefixes();
  change.bytes_before = before.bytes().size();
  change.parse_seconds = parse_seconds;
  auto algorithm = routes_algorithm(before);
  if (!algorithm) return std::move(algorithm).error();
  change.algorithm = std::move(*algorithm);
  // How a table grows depends on its algorithm: what is there is the least that will do.
  if (auto ok = fits(change, change.entries_after < change.entries_before ? 0 : change.bytes_before); !ok)
    return std::move(ok).error();
  const Stopwatch clock;
  // What is not published in the end leaves no trace: what knows too much is made anew for the next change.
  struct Trace {
    ~Trace() {
      if (makers == nullptr) return;
      makers->erase(table);
      for (auto& [live, hops] : next_hops) live->images.reset();
    }
    decltype(route_images_)* makers;
    const std::string& table;
    std::vector<std::pair<LiveNextHops*, NextHops>> next_hops;
  } trace{dry_run ? nullptr : &route_images_, table, {}};
  auto image = make_routes(change, next, steps, dry_run);
  if (!image) return std::move(image).error();
  TableSet set = tables_;
  set.routes[table] = *image;
  change.bytes_after = (*image)->bytes().size();
  const size_t before_bytes = bytes();
  size_t more = !dry_run && route_images_[table]->bytes() != 0 ? 0 : change.bytes_after;
  // Adjacencies go by the numbers of next hops, and through the routes.
  auto names = NextHopNames::open(before.section(SectionTag::kNextHopNames));
  if (!names) return std::move(names).error();
  const NextHopIds& ids = next.next_hops();
  bool kept = names->count() <= ids.count();
  for (uint32_t id = 1; kept && id <= names->count(); ++id) kept = names->name(id) == ids.name(id);
  const bool same = kept && names->count() == ids.count();
  for (const auto& element : router_.elements) {
    for (const TableDeclaration& d : element->tables()) {
      if (d.type != TableDeclaration::Type::kAdjacency || d.routes != table) continue;
      if (!models_.adjacencies.contains(d.name)) {
        if (same) continue;
        return Error(
            fmt::format("the adjacency table '{}' is a compiled image: it does not know other next hops than it "
                        "was compiled with",
                        d.name),
            "run with the adjacency file");
      }
      auto live = live_next_hops(d.name);
      if (!live) return std::move(live).error();
      NextHops hops = (*live)->hops;
      if (!kept) {
        hops = NextHops((*live)->hops.definitions());
        if (!dry_run) (*live)->images.reset();
      }
      hops.extend(ids);
      if (steps.empty()) hops.all_routes_changed();
      for (const RouteStep& step : steps) hops.route_changed(step.prefix);
      const NextHops::Changes changes = hops.settle([&](const IpAddress& a) { return next.match(a); });
      trace.next_hops.emplace_back(*live, std::move(hops));
      auto adjacencies = adjacency_image(**live, trace.next_hops.back().second, changes, dry_run);
      if (!adjacencies) return std::move(adjacencies).error();
      if (*adjacencies == nullptr) continue;
      if (dry_run) more += (*adjacencies)->bytes().size();
      set.adjacencies[d.name] = std::move(*adjacencies);
    }
  }
  change.build_seconds = clock.seconds();
  change.bytes_peak = std::max(bytes(), before_bytes) + more;
  if (auto ok = fits(change, more); !ok) return std::move(ok).error();
  // The replica before is free once nobody has it.
  image = std::shared_ptr<const Image>();
  if (auto ok = publish(std::move(set), change, dry_run); !ok) return std::move(ok).error();
  trace.makers = nullptr;
  if (!dry_run) {
    static_assert(std::is_nothrow_move_assignable_v<NextHops>);
    for (auto& [live, hops] : trace.next_hops) live->hops = std::move(hops);
  }
  return change;
}

Result<TableChange> LiveTables::change_routes(const std::string& table, std::string_view text, const std::string& name,
                                              bool dry_run) {
  const Stopwatch clock;
  auto before = routes(table);
  if (!before) return std::move(before).error();
  if (*before == nullptr) {
    return Error(fmt::format("the route table '{}' is a compiled image: its routes are not known", table),
                 "replace it with route files, or run with them");
  }
  // What next hops lead to before the change is where their history begins.
  next_hops_of(table);
  SourcedRib& rib = models_.routes.find(table)->second;
  rib.begin();
  ScopeExit routes([&] { rib.rollback(); });
  auto steps = take_route_change(rib, text, name);
  if (!steps) return std::move(steps).error();
  TableChange about{.table = table, .kind = "routes"};
  about.parse_seconds = clock.seconds();
  if (!rib.changed()) return nothing_differs(std::move(about), dry_run);
  if (!dry_run && seen_ != nullptr && !route_images_.contains(table)) {
    // The first change builds what all others patch, of the routes as they were: nobody who looks meanwhile finds a
    // route that packets do not go by.
    about.entries_before = load_of("routes", table).entries;
    about.entries_after = rib.prefixes();
    const Image& before_image = *tables_.routes.find(table)->second;
    if (auto ok = fits(about, about.entries_after < about.entries_before ? 0 : before_image.bytes().size()); !ok)
      return std::move(ok).error();
    auto algorithm = routes_algorithm(before_image);
    if (!algorithm) return std::move(algorithm).error();
    about.algorithm = std::move(*algorithm);
    rib.rollback();
    auto built = make_routes(about, rib, {}, false);
    if (!built) return std::move(built).error();
    rib.begin();
    steps = take_route_change(rib, text, name);
    if (!steps) {
      route_images_.erase(table);
      return std::move(steps).error();
    }
  }
  auto change = commit_routes(table, rib, *steps, clock.seconds(), dry_run);
  if (change.ok() && !dry_run) {
    routes.release();
    rib.commit();
    note_change("routes", table);
  }
  return change;
}

Result<TableChange> LiveTables::replace_routes(const std::string& table, const std::vector<std::string>& files,
                                               InputSet& inputs, bool dry_run) {
  const Stopwatch clock;
  if (auto ok = known_table(tables_.routes, "route table", table); !ok) return std::move(ok).error();
  next_hops_of(table);
  // Next hops keep their numbers, so that what goes by them stays as it is.
  const auto before = models_.routes.find(table);
  NextHopIds known = before == models_.routes.end() ? NextHopIds() : before->second.next_hops();
  bool same = false;
  auto read = [&] {
    // Only changes write to routes, and this is the only one.
    const LetGo aside(seen_);
    auto routes = read_route_sources(files, nullptr, {}, std::move(known), &inputs);
    same = routes.ok() && before != models_.routes.end() && before->second.same_routes(*routes);
    return routes;
  }();
  if (!read) return std::move(read).error();
  if (same) {
    TableChange nothing{.table = table, .kind = "routes"};
    nothing.parse_seconds = clock.seconds();
    return nothing_differs(std::move(nothing), dry_run);
  }
  // Its place is made before the flip.
  decltype(models_.routes) model;
  model.emplace(table, std::move(*read));
  auto change = commit_routes(table, model.begin()->second, {}, clock.seconds(), dry_run);
  if (change.ok() && !dry_run) {
    models_.routes.erase(table);
    models_.routes.merge(model);
    note_change("routes", table);
  }
  return change;
}

Result<TableChange> LiveTables::change_adjacencies(const std::string& table, std::string_view text,
                                                   const std::string& name, bool dry_run) {
  const Stopwatch clock;
  if (auto ok = known_table(tables_.adjacencies, "adjacency table", table); !ok) return std::move(ok).error();
  const auto model = models_.adjacencies.find(table);
  if (model == models_.adjacencies.end()) {
    return Error(fmt::format("the adjacency table '{}' is a compiled image: its next hops are not known", table),
                 "run with the adjacency file");
  }
  const auto rib = models_.routes.find(model->second.routes);
  if (rib == models_.routes.end()) {
    return Error(
        fmt::format("the route table '{}' is a compiled image: its next hops are not known", model->second.routes),
        "run with the route files");
  }
  auto definitions = parse_adjacency_change(text, name);
  if (!definitions) return std::move(definitions).error();
  auto live = live_next_hops(table);
  if (!live) return std::move(live).error();
  NextHops next = (*live)->hops;
  for (auto& [hop, definition] : *definitions) next.define(hop, std::move(definition));
  const NextHops::Changes changes = next.settle([&](const IpAddress& a) { return rib->second.match(a); });
  TableChange change{.table = table, .kind = "adjacency"};
  change.parse_seconds = clock.seconds();
  if (auto done = commit_next_hops(**live, std::move(next), changes, change, dry_run); !done)
    return std::move(done).error();
  if (!dry_run && !definitions->empty()) note_change("adjacency", table);
  return change;
}

Result<void> LiveTables::commit_next_hops(LiveNextHops& live, NextHops next, const NextHops::Changes& changes,
                                          TableChange& change, bool dry_run) {
  const std::string& table = change.table;
  change.entries_before = load_of("adjacency", table).entries;
  change.entries_after = next.count() - next.model().unresolved();
  change.bytes_before = change.bytes_after = tables_.adjacencies.find(table)->second->bytes().size();
  const Stopwatch build;
  ScopeExit images([&] {
    if (!dry_run) live.images.reset();
  });
  auto image = adjacency_image(live, next, changes, dry_run);
  if (!image) return std::move(image).error();
  change.build_seconds = build.seconds();
  if (*image == nullptr) {
    // What was said of them leads no packet elsewhere.
    images.release();
    change.differs = false;
    change.bytes_peak = bytes();
    if (!dry_run) {
      change.generation = publisher_.generation();
      live.hops = std::move(next);
    }
    return {};
  }
  TableSet set = tables_;
  change.bytes_after = (*image)->bytes().size();
  set.adjacencies[table] = std::move(*image);
  change.bytes_peak = bytes() + (dry_run ? change.bytes_after : 0);
  if (auto ok = fits(change, dry_run ? change.bytes_after : 0); !ok) return ok;
  if (auto ok = publish(std::move(set), change, dry_run); !ok) return ok;
  images.release();
  if (!dry_run) live.hops = std::move(next);
  return {};
}

Result<void> LiveTables::neighbours_changed() {
  for (const auto& [table, declaration] : models_.adjacencies) {
    if (!declaration.neighbours) continue;
    // Next hops of a compiled image of routes are those that were marked when it was read: each packet is given its
    // neighbour on its way out.
    const auto rib = models_.routes.find(declaration.routes);
    if (rib == models_.routes.end()) continue;
    auto found = live_next_hops(table);
    if (!found) return std::move(found).error();
    LiveNextHops& live = **found;
    NextHops next = live.hops;
    next.neighbours_changed();
    NextHops::Changes changes = next.settle([&](const IpAddress& a) { return rib->second.match(a); });
    if (live.images == nullptr) {
      // The image that was loaded may be of other neighbours than these: all may have changed.
      for (uint32_t id = 1; id <= next.count(); ++id) changes.ids.push_back(id);
    }
    if (changes.ids.empty() && changes.neighbours.empty()) continue;
    TableChange change{.table = table, .kind = "adjacency"};
    if (auto done = commit_next_hops(live, std::move(next), changes, change, false); !done) return done;
  }
  return {};
}

Result<const NextHops*> LiveTables::next_hops(const std::string& table) {
  if (auto ok = known_table(tables_.adjacencies, "adjacency table", table); !ok) return std::move(ok).error();
  if (!models_.adjacencies.contains(table)) {
    return Error(fmt::format("the adjacency table '{}' is a compiled image: its next hops are not known", table),
                 "run with the adjacency file");
  }
  auto live = live_next_hops(table);
  if (!live) return std::move(live).error();
  return &(*live)->hops;
}

}  // namespace sluice

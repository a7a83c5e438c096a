// host only
#include "control/live_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/scope_exit.h"
#include "control/acl_change.h"
#include "control/adjacency_change.h"
#include "control/change_text.h"
#include "elements/table_use.h"
#include "formats/adjacency_text.h"
#include "formats/route_files.h"
#include "formats/rule_files.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/patch.h"
#include "tables/lpm/algorithms.h"

namespace sluice {
namespace {

class Stopwatch {
 public:
  double seconds() const { return static_cast<double>(now_ns() - start_) * 1e-9; }

 private:
  uint64_t start_ = now_ns();
};

// Errors: no table of that name, with the nearest one.
Result<void> known(const std::map<std::string, std::shared_ptr<const Image>, std::less<>>& tables, const char* kind,
                   const std::string& name) {
  auto found = find_table(tables, kind, name);
  if (found) return {};
  Error error = found.error();
  if (error.hint.empty() && !tables.empty()) {
    std::vector<std::string> names;
    for (const auto& [table, image] : tables) names.push_back(table);
    error.hint = fmt::format("tables: {}", fmt::join(names, ", "));
  }
  return error;
}

std::string human(size_t bytes) {
  return bytes < (size_t{10} << 20) ? fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024)
                                    : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

LiveTables::LiveTables(const Router& router, const Plan& plan, Publisher& publisher, TableSet tables,
                       TableModels models, std::vector<TableLoad> loads, size_t max_bytes)
    : router_(router),
      plan_(plan),
      publisher_(publisher),
      tables_(std::move(tables)),
      models_(std::move(models)),
      loads_(std::move(loads)),
      max_bytes_(max_bytes) {}

size_t LiveTables::bytes() const {
  size_t sum = 0;
  const auto add = [&](const auto& tables, auto&& kept_by) {
    for (const auto& [name, image] : tables) {
      const size_t kept = kept_by(name);
      sum += kept != 0 ? kept : image->bytes().size();
    }
  };
  add(tables_.acls, [&](const std::string& name) {
    const auto it = acls_.find(name);
    return it == acls_.end() || it->second.images == nullptr ? 0 : it->second.images->bytes();
  });
  add(tables_.routes, [&](const std::string& name) {
    const auto it = route_images_.find(name);
    return it == route_images_.end() ? 0 : it->second->bytes();
  });
  add(tables_.adjacencies, [&](const std::string& name) {
    const auto it = next_hops_.find(name);
    const PatchedAdjacencies* patched = it == next_hops_.end() ? nullptr : it->second.images.get();
    return patched == nullptr ? 0 : (1 + patched->replicas().replicas()) * patched->replicas().size();
  });
  return sum;
}

Result<std::shared_ptr<const Image>> LiveTables::make_routes(const TableChange& change, const SourcedRib& next,
                                                             const std::vector<RouteStep>& steps, bool dry_run) {
  if (dry_run) return make_rebuilt_route_images(change.algorithm)->make(next, steps);
  auto& images = route_images_[change.table];
  if (images == nullptr) images = make_route_images(change.algorithm, publisher_);
  return images->make(next, steps);
}

TableLoad& LiveTables::load_of(const char* kind, const std::string& table) {
  for (TableLoad& load : loads_) {
    if (load.kind == kind && load.name == table) return load;
  }
  loads_.push_back({.name = table, .kind = kind});
  return loads_.back();
}

uint64_t LiveTables::changed(const std::string& kind, const std::string& table) const {
  const auto it = changed_.find({kind, table});
  return it == changed_.end() ? 0 : it->second;
}

Result<LiveTables::AclState*> LiveTables::acl_state(const std::string& table) {
  if (auto ok = known(tables_.acls, "ACL table", table); !ok) return std::move(ok).error();
  auto it = acls_.find(table);
  if (it == acls_.end()) {
    const auto model = models_.acls.find(table);
    auto rules = model != models_.acls.end() ? Result<RuleSet>(std::move(model->second))
                                             : configured_rules(*tables_.acls.find(table)->second);
    if (!rules) return std::move(rules).error();
    if (model != models_.acls.end()) models_.acls.erase(model);
    it = acls_.try_emplace(table).first;
    it->second.list = RuleList(std::move(*rules));
  }
  return &it->second;
}

Result<const RuleList*> LiveTables::rules(const std::string& table) {
  auto state = acl_state(table);
  if (!state) return std::move(state).error();
  return &(*state)->list;
}

Result<const SourcedRib*> LiveTables::routes(const std::string& table) const {
  if (auto ok = known(tables_.routes, "route table", table); !ok) return std::move(ok).error();
  const auto it = models_.routes.find(table);
  return it == models_.routes.end() ? nullptr : &it->second;
}

// Whether an image of `bytes` bytes may stand beside what is there.
Result<void> LiveTables::fits(const TableChange& change, size_t bytes) const {
  if (max_bytes_ == 0 || this->bytes() + bytes <= max_bytes_) return {};
  return Error(
      fmt::format("{} '{}' with {} entries needs about {}, and {} with the current tables, more than the limit of {}",
                  change.kind == "acl"      ? "the access list"
                  : change.kind == "routes" ? "the route table"
                                            : "the adjacency table",
                  change.table, change.entries_after, human(bytes), human(this->bytes() + bytes), human(max_bytes_)),
      "the table stays as it is; give run a larger --max-memory");
}

Result<void> LiveTables::publish(TableSet next, TableChange& change, bool dry_run) {
  auto snapshot = bind_plan(plan_, router_, next);
  if (!snapshot) return std::move(snapshot).error();
  if (dry_run) return {};
  const Stopwatch clock;
  // What takes memory comes first: behind the flip the change is made, and nothing may fail.
  TableLoad& load = load_of(change.kind.c_str(), change.table);
  uint64_t& changed = changed_[{change.kind, change.table}];
  std::string algorithm = change.algorithm;
  try {
    change.generation = publisher_.publish(std::move(*snapshot));
  } catch (const std::bad_alloc&) {
    return Error("no memory for another generation", "the table stays as it is");
  }
  change.publish_seconds = clock.seconds();
  for (const auto& resident : publisher_.current()->residents) change.refusing_devices += resident == nullptr ? 1 : 0;
  static_assert(std::is_nothrow_swappable_v<TableSet>);
  std::swap(tables_, next);
  changed = change.generation;
  load.algorithm.swap(algorithm);
  load.entries = change.entries_after;
  load.bytes = change.bytes_after;
  load.parse_seconds = change.parse_seconds;
  load.build_seconds = change.build_seconds;
  load.compiled = false;
  return {};
}

Result<LiveTables::AclChoice> LiveTables::choose_acl_images(const AclState& state, const RuleList& list, bool whole,
                                                            const TableChange& change) {
  const std::string_view now = acl_image_algorithm(*tables_.acls.find(change.table)->second);
  const std::string& asked = load_of("acl", change.table).asked;
  if (asked != kAclAuto && asked != kAclAutoGpu) return AclChoice{std::string(now), nullptr, state.chosen_at};
  const size_t n = list.size();
  if (!whole) {
    const bool far = n > 2 * state.chosen_at + 64 || 2 * n + 64 < state.chosen_at;
    if (state.chosen_at != 0 && !far) return AclChoice{std::string(now), nullptr, state.chosen_at};
    if (n > kAclRebuilt) return AclChoice{TupleMergeAcl::kName, nullptr, n};
  }
  auto chosen = choose_acl(list.set(), asked == kAclAutoGpu ? AclTarget::kGpu : AclTarget::kCpu);
  if (!chosen) return std::move(chosen).error();
  return AclChoice{std::move(chosen->algorithm), std::make_shared<const Image>(std::move(chosen->image)),
                   whole ? 0 : std::max<size_t>(n, 1)};
}

Result<void> LiveTables::commit_acl(AclState& state, const RuleList& list, bool whole, TableChange& change,
                                    bool dry_run) {
  change.kind = "acl";
  change.entries_after = list.size();
  change.bytes_before = tables_.acls.find(change.table)->second->bytes().size();
  const size_t estimate = change.bytes_before / (change.entries_before + 1) * (change.entries_after + 1);
  if (auto ok = fits(change, estimate); !ok) return ok;
  const Stopwatch clock;
  auto choice = choose_acl_images(state, list, whole, change);
  if (!choice) return std::move(choice).error();
  change.algorithm = choice->algorithm;
  std::shared_ptr<const Image> image = std::move(choice->image);
  // A list that is whole another one, by an algorithm that was chosen, is not one that changes yet.
  const bool chosen = image != nullptr && (whole || dry_run);
  std::unique_ptr<AclImages> fresh;
  // Those that made an image that is not published know too much.
  ScopeExit images([&] {
    if (!dry_run && !chosen && fresh == nullptr) state.images.reset();
  });
  if (!chosen) {
    if (dry_run) {
      fresh = make_rebuilt_acl_images(choice->algorithm);
    } else if (whole || state.images == nullptr || state.algorithm != choice->algorithm) {
      fresh = make_acl_images(choice->algorithm, publisher_);
    }
    auto made = (fresh != nullptr ? fresh : state.images)->make(list);
    if (!made) return std::move(made).error();
    image = std::move(*made);
  }
  change.build_seconds = clock.seconds();
  change.bytes_after = image->bytes().size();
  // Images that are kept from before are among those that are there.
  const bool counted = !chosen && fresh == nullptr && state.images->bytes() != 0;
  const size_t more = counted ? 0 : std::max(fresh != nullptr ? fresh->bytes() : 0, change.bytes_after);
  change.bytes_peak = bytes() + more;
  Result<void> done = fits(change, more);
  if (done.ok()) {
    TableSet set = tables_;
    set.acls[change.table] = std::move(image);
    done = publish(std::move(set), change, dry_run);
  }
  if (!done || dry_run) return done;
  images.release();
  if (chosen || fresh != nullptr) state.images = std::move(fresh);
  state.algorithm = std::move(choice->algorithm);
  state.chosen_at = choice->chosen_at;
  return {};
}

size_t LiveTables::rules_that_fit(const std::string& table) const {
  if (max_bytes_ == 0) return kMaxChangeRules;
  const size_t used = bytes(), room = max_bytes_ > used ? max_bytes_ - used : 0;
  // Every image has the rules themselves; one that is patched is two at least, the master and what packets meet.
  const auto needs = [&](size_t rules) {
    const auto load =
        std::ranges::find_if(loads_, [&](const TableLoad& l) { return l.kind == "acl" && l.name == table; });
    const bool patched = rules > kAclRebuilt && load != loads_.end() &&
                         (load->asked == kAclAuto || load->asked == kAclAutoGpu || load->asked == TupleMergeAcl::kName);
    return patched ? 2 * PatchedAcl::estimate_bytes(rules) : rules * sizeof(AclMatchRule);
  };
  size_t low = 0, high = kMaxChangeRules;
  while (low < high) {
    const size_t middle = low + (high - low + 1) / 2;
    needs(middle) <= room ? void(low = middle) : void(high = middle - 1);
  }
  return low;
}

Result<TableChange> LiveTables::change_acl(const std::string& table, std::string_view text, const std::string& name,
                                           bool dry_run) {
  const Stopwatch clock;
  auto found = acl_state(table);
  if (!found) return std::move(found).error();
  AclState& state = **found;
  const size_t room = rules_that_fit(table), most = std::min(room, kMaxChangeRules);
  auto steps = parse_acl_change(text, name, most);
  if (!steps) {
    Error error = std::move(steps).error();
    // Where the limit was in the way, which of the two.
    const bool limit = std::ranges::any_of(error.diagnostics,
                                           [](const Diagnostic& d) { return d.message.starts_with("too many rules"); });
    if (limit) {
      error.hint = room < kMaxChangeRules ? fmt::format(
                                                "no more than about {} rules fit with the current tables into "
                                                "--max-memory, {}; the list stays as it is",
                                                room, human(max_bytes_))
                                          : std::string("split the change, or replace the list by a file");
    }
    return error;
  }
  TableChange change{.table = table};
  change.entries_before = state.list.size();
  state.list.begin();
  ScopeExit list([&] { state.list.undo(); });
  if (cancelled()) return cancelled_error();
  if (auto ok = take_acl_steps(state.list, *steps, text, name); !ok) return std::move(ok).error();
  change.parse_seconds = clock.seconds();
  if (auto done = commit_acl(state, state.list, false, change, dry_run); !done) return std::move(done).error();
  if (!dry_run) list.release();
  return change;
}

Result<TableChange> LiveTables::replace_acl(const std::string& table, InputFile& file, const RuleFormatChoice& format,
                                            bool dry_run) {
  const Stopwatch clock;
  auto found = acl_state(table);
  if (!found) return std::move(found).error();
  AclState& state = **found;
  auto compiled = Image::is_next(file);
  if (!compiled) return std::move(compiled).error();
  Result<RuleSet> rules = RuleSet{};
  if (*compiled) {
    auto image = Image::read(file, ImageKind::kAcl);
    if (!image) return std::move(image).error();
    rules = configured_rules(*image);
  } else {
    rules = read_rules_file(file, format);
  }
  if (!rules) return std::move(rules).error();
  RuleList next(std::move(*rules));
  TableChange change{.table = table};
  change.entries_before = state.list.size();
  change.parse_seconds = clock.seconds();
  if (auto ok = commit_acl(state, next, true, change, dry_run); !ok) return std::move(ok).error();
  if (!dry_run) state.list = std::move(next);
  return change;
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
  const ImageSection* four = before.find(SectionTag::kFib4);
  const ImageSection* six = before.find(SectionTag::kFib6);
  if (four == nullptr || six == nullptr) return Error("the route table's image lacks a family");
  change.algorithm = fmt::format("{}+{}", section_algorithm(*four), section_algorithm(*six));
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
  auto change = commit_routes(table, rib, *steps, clock.seconds(), dry_run);
  if (change.ok() && !dry_run) {
    routes.release();
    rib.commit();
  }
  return change;
}

Result<TableChange> LiveTables::replace_routes(const std::string& table, const std::vector<std::string>& files,
                                               InputSet& inputs, bool dry_run) {
  const Stopwatch clock;
  if (auto ok = known(tables_.routes, "route table", table); !ok) return std::move(ok).error();
  next_hops_of(table);
  // Next hops keep their numbers, so that what goes by them stays as it is.
  const auto before = models_.routes.find(table);
  auto read = read_route_sources(files, nullptr, {},
                                 before == models_.routes.end() ? NextHopIds() : before->second.next_hops(), &inputs);
  if (!read) return std::move(read).error();
  // Its place is made before the flip.
  decltype(models_.routes) model;
  model.emplace(table, std::move(*read));
  auto change = commit_routes(table, model.begin()->second, {}, clock.seconds(), dry_run);
  if (change.ok() && !dry_run) {
    models_.routes.erase(table);
    models_.routes.merge(model);
  }
  return change;
}

Result<TableChange> LiveTables::change_adjacencies(const std::string& table, std::string_view text,
                                                   const std::string& name, bool dry_run) {
  const Stopwatch clock;
  if (auto ok = known(tables_.adjacencies, "adjacency table", table); !ok) return std::move(ok).error();
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
  TableSet set = tables_;
  if (*image != nullptr) {
    change.bytes_after = (*image)->bytes().size();
    set.adjacencies[table] = std::move(*image);
  }
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
  if (auto ok = known(tables_.adjacencies, "adjacency table", table); !ok) return std::move(ok).error();
  if (!models_.adjacencies.contains(table)) {
    return Error(fmt::format("the adjacency table '{}' is a compiled image: its next hops are not known", table),
                 "run with the adjacency file");
  }
  auto live = live_next_hops(table);
  if (!live) return std::move(live).error();
  return &(*live)->hops;
}

}  // namespace sluice

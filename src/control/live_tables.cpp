// host only
#include "control/live_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

#include "base/cancel.h"
#include "control/live_parts.h"
#include "elements/table_use.h"

namespace sluice {

Result<void> known_table(const NamedImages& tables, const char* kind, const std::string& name) {
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

std::string in_bytes(size_t bytes) {
  return bytes < (size_t{10} << 20) ? fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024)
                                    : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

LiveTables::LiveTables(const Router& router, const Plan& plan, Publisher& publisher, TableSet tables,
                       TableModels models, std::vector<TableLoad> loads, size_t max_bytes)
    : router_(router),
      plan_(plan),
      publisher_(publisher),
      tables_(std::move(tables)),
      models_(std::move(models)),
      loads_(std::move(loads)),
      sources_(sources_of(router)),
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
    return it == route_images_.end() ? size_t{0} : it->second->bytes();
  });
  add(tables_.adjacencies, [&](const std::string& name) {
    const auto it = next_hops_.find(name);
    const PatchedAdjacencies* patched = it == next_hops_.end() ? nullptr : it->second.images.get();
    return patched == nullptr ? 0 : (1 + patched->replicas().replicas()) * patched->replicas().size();
  });
  for (const auto& [type, tables] : tables_.lists) add(tables, [](const std::string&) { return size_t{0}; });
  return sum;
}

bool LiveTables::patches(const std::string& kind, const std::string& table) const {
  if (kind == "acl") {
    const auto it = acls_.find(table);
    return it != acls_.end() && it->second.images != nullptr && it->second.images->bytes() != 0;
  }
  if (kind == "routes") return route_images_.contains(table);
  if (kind != "adjacency") return false;
  const auto it = next_hops_.find(table);
  return it != next_hops_.end() && it->second.images != nullptr;
}

TableChange LiveTables::nothing_differs(TableChange change, bool dry_run) {
  const TableLoad& load = load_of(change.kind.c_str(), change.table);
  change.differs = false;
  change.algorithm = load.algorithm;
  change.entries_before = change.entries_after = load.entries;
  change.bytes_before = change.bytes_after = load.bytes;
  change.bytes_peak = bytes();
  if (!dry_run) change.generation = publisher_.generation();
  return change;
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

// Whether an image of `bytes` bytes may stand beside what is there.
Result<void> LiveTables::fits(const TableChange& change, size_t bytes) const {
  if (max_bytes_ == 0 || this->bytes() + bytes <= max_bytes_) return {};
  return Error(
      fmt::format("the {} '{}' with {} entries needs about {}, and {} with the current tables, more than the limit of "
                  "{}",
                  find_table_kind(change.kind)->words, change.table, change.entries_after, in_bytes(bytes),
                  in_bytes(this->bytes() + bytes), in_bytes(max_bytes_)),
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
  if (changes_are_unwanted()) return cancelled_error();
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

}  // namespace sluice

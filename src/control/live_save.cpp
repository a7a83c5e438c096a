// host only
// Tables that changed while packets passed, back in the files that they came from.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/atomic_file.h"
#include "base/cancel.h"
#include "control/live_parts.h"
#include "control/live_tables.h"
#include "control/table_text.h"
#include "formats/route_files.h"
#include "formats/rule_files.h"

namespace sluice {
namespace {

std::string name_of(const std::string& kind) {
  const TableKind* const table = find_table_kind(kind);
  return table == nullptr ? "classes of service" : table->words;
}

// Whether a file that this process makes can have the owner and the group of the one that is there.
bool can_own(const struct stat& status) {
  if (::geteuid() == 0) return true;
  if (status.st_uid != ::geteuid()) return false;
  if (status.st_gid == ::getegid()) return true;
  std::vector<gid_t> groups(static_cast<size_t>(std::max(0, ::getgroups(0, nullptr))));
  const int n = ::getgroups(static_cast<int>(groups.size()), groups.data());
  return n > 0 && std::find(groups.begin(), groups.begin() + n, status.st_gid) != groups.begin() + n;
}

// What the file holds, which is to be edited and written back. Errors: it is not plain text in a file that is as it was
// read, or not this process's to write.
Result<std::string> text_to_edit(const std::string& path, const FileStamp& stamp) {
  struct stat status {};
  if (path == "-" || ::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
    return Error(fmt::format("{} is not a file", path == "-" ? "standard input" : path));
  if (!FileStamp::of(path).same_content(stamp))
    return Error(fmt::format("{} has been written since it was read", path), "sluice reload: the file wins");
  if (!can_own(status))
    return Error(fmt::format("{} belongs to another user or group (uid {}, gid {}), which this process cannot keep",
                             path, status.st_uid, status.st_gid));
  auto file = InputFile::open(path);
  if (!file) return std::move(file).error();
  auto image = Image::is_next(*file);
  if (!image) return std::move(image).error();
  if (*image) return Error(fmt::format("{} is a compiled image", path));
  auto text = file->table();
  if (!text) return std::move(text).error();
  if (std::string_view(file->compression()) != "plain")
    return Error(fmt::format("{} is compressed ({})", path, file->compression()));
  return text;
}

}  // namespace

LiveTables::Sources LiveTables::sources_of(const Router& router) {
  Sources sources;
  for (const auto& element : router.elements) {
    for (const TableDeclaration& d : element->tables()) {
      Source source;
      source.declaration = d;
      if (d.files.size() == 1) source.path = path_of(d, d.files[0]);
      sources.emplace(std::pair(kind_of(d.type), d.name), std::move(source));
    }
  }
  return sources;
}

FileStamp& LiveTables::stamp_of(const Source& source) {
  TableLoad& load = load_of(kind_of(source.declaration.type), source.declaration.name);
  if (load.read.empty()) load.read.emplace_back();
  return load.read.front();
}

void LiveTables::note_change(const std::string& kind, const std::string& table) {
  if (const auto at = sources_.find({kind, table}); at != sources_.end()) at->second.unsaved = true;
}

bool LiveTables::unsaved(const std::string& kind, const std::string& table) const {
  const auto at = sources_.find({kind, table});
  return at != sources_.end() && at->second.unsaved;
}

Result<std::string> LiveTables::text(const std::string& kind, const std::string& table) {
  if (kind == "acl") {
    auto list = rules(table);
    if (!list) return std::move(list).error();
    return rules_text(**list);
  }
  if (kind == "routes") {
    auto rib = routes(table);
    if (!rib) return std::move(rib).error();
    if (*rib != nullptr) return routes_text(**rib);
    return Error(fmt::format("the route table '{}' is a compiled image: its routes are not known", table));
  }
  if (kind == "adjacency") {
    auto hops = next_hops(table);
    if (!hops) return std::move(hops).error();
    return adjacencies_text((*hops)->definitions());
  }
  const TableKind* const known = find_table_kind(kind);
  if (known == nullptr) return Error(fmt::format("'{}' is not a kind of table", kind), "acl, routes or adjacency");
  auto entries = list(*known, table);
  if (!entries) return std::move(entries).error();
  return edit_list(*known, {}, **entries);
}

Result<std::string> LiveTables::edited(const Source& source) {
  const TableDeclaration& d = source.declaration;
  const std::string& path = source.path;
  if (d.files.empty()) return Error(d.text.empty() ? "no file was given for it" : "it is written in the graph itself");
  if (d.files.size() > 1) return Error(fmt::format("it comes from {} files", d.files.size()));
  auto text = text_to_edit(path, stamp_of(source));
  if (!text) return std::move(text).error();
  if (d.type == TableDeclaration::Type::kAcl) {
    auto choice = parse_rule_format(d.format);
    if (!choice) return std::move(choice).error();
    // A line that is put in or taken out would be one for packets of the other states, too.
    if (choice->state) {
      return Error(fmt::format("{} is read for {} connections alone, and its lines are for all of them", path,
                               to_string(*choice->state)),
                   "edit the file and reload it");
    }
    const RuleFormat format = choice->format == RuleFormat::kAuto ? detect_rule_format(*text) : choice->format;
    if (format != RuleFormat::kNative)
      return Error(
          fmt::format("{} is of format {}, and native rules are what can be written", path, to_string(format)));
    auto list = rules(d.name);
    if (!list) return std::move(list).error();
    return edit_rules(*text, path, **list);
  }
  if (d.type == TableDeclaration::Type::kRoutes) {
    auto named = parse_route_file(d.files[0]);
    if (!named) return std::move(named).error();
    auto rib = routes(d.name);
    if (!rib) return std::move(rib).error();
    if (*rib == nullptr) return Error("it is a compiled image");
    if (looks_like_mrt(std::as_bytes(std::span(*text)))) return Error(fmt::format("{} is an MRT dump", path));
    return edit_routes(*text, *named, **rib);
  }
  if (d.type == TableDeclaration::Type::kAdjacency) {
    auto hops = next_hops(d.name);
    if (!hops) return std::move(hops).error();
    return edit_adjacencies(*text, path, (*hops)->definitions());
  }
  const TableKind& kind = table_kind(d.type);
  auto entries = list(kind, d.name);
  if (!entries) return std::move(entries).error();
  return edit_list(kind, *text, **entries);
}

Result<std::vector<LiveTables::Saved>> LiveTables::save(const std::optional<AlsoSaved>& also) {
  struct Writing {
    bool* unsaved;  // nullptr: it is no table
    FileStamp* stamp;
    Saved saved;
  };
  std::vector<Writing> all;
  std::vector<AtomicFile> files;  // of those
  std::set<FileId> known;
  Error refused;
  const auto refuse = [&](const Saved& one, Error error) {
    Diagnostic d;
    d.file = one.path.empty() ? one.table : one.path;
    if (error.message.starts_with(d.file + ": ")) error.message.erase(0, d.file.size() + 2);
    d.message = one.table.empty() ? fmt::format("{}: {}", name_of(one.kind), error.message)
                                  : fmt::format("{} '{}': {}", name_of(one.kind), one.table, error.message);
    d.suggestion = error.hint;
    refused.diagnostics.push_back(std::move(d));
    refused.system |= error.system;
    for (Diagnostic& more : error.diagnostics) refused.diagnostics.push_back(std::move(more));
  };
  const auto write = [&](bool* unsaved, FileStamp* stamp, const Result<std::string>& text, Saved one) {
    if (!text) return refuse(one, text.error());
    if (!known.insert(stamp->id).second)
      return refuse(one, Error(fmt::format("{} is the file of another table, too", one.path)));
    auto file = AtomicFile::create(one.path);
    if (!file) return refuse(one, std::move(file).error());
    file->write(*text);
    if (auto done = file->settle(); !done) return refuse(one, std::move(done).error());
    one.in_place = file->in_place();
    all.push_back({unsaved, stamp, std::move(one)});
    files.push_back(std::move(*file));
  };
  for (auto& [key, source] : sources_) {
    const auto& [kind, table] = key;
    if (!source.unsaved) continue;
    const auto& names = source.declaration.files;
    const auto text = edited(source);
    const size_t entries = !text                 ? 0
                           : kind == "adjacency" ? (*next_hops(table))->definitions().names.size()
                                                 : load_of(kind.c_str(), table).entries;
    write(&source.unsaved, &stamp_of(source), text,
          {table, kind, names.empty() ? std::string() : path_of(source.declaration, names[0]), entries});
  }
  if (also) {
    const auto there = text_to_edit(also->path, also->stamp);
    write(nullptr, &also->stamp, there ? also->text : there, {{}, also->kind, also->path});
  }
  if (!refused.diagnostics.empty()) {
    refused.message = "nothing was saved";
    refused.hint = "sluice save --to DIRECTORY writes the tables into files of their own";
    return refused;
  }
  // What is about to be told takes its memory before the files change.
  std::vector<Saved> saved;
  saved.reserve(all.size());
  if (changes_are_unwanted()) return cancelled_error();
  if (auto done = AtomicFile::commit(files); !done) return std::move(done).error();
  for (Writing& one : all) {
    if (one.unsaved != nullptr) *one.unsaved = false;
    *one.stamp = FileStamp::of(one.saved.path);
    saved.push_back(std::move(one.saved));
  }
  return saved;
}

}  // namespace sluice

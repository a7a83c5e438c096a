// host only
// Tables that are lists of lines, which change while packets pass.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "control/change_text.h"
#include "control/live_parts.h"
#include "control/live_tables.h"

namespace sluice {

Result<std::vector<std::string>*> LiveTables::list(const TableKind& kind, const std::string& table) {
  if (auto ok = known_table(tables_.of(kind.type), kind.words.c_str(), table); !ok) return std::move(ok).error();
  return &models_.lists[{kind.type, table}];
}

Result<TableChange> LiveTables::change_list(const TableKind& kind, const std::string& table, std::string_view text,
                                            const std::string& name, bool dry_run) {
  const Stopwatch clock;
  auto before = list(kind, table);
  if (!before) return std::move(before).error();
  std::vector<std::string> next = **before;
  std::set<std::string> there(next.begin(), next.end());
  Diagnostics findings(name, text);
  each_line(text, [&](uint32_t, size_t begin, size_t end) {
    Words words(text, begin, end);
    if (words.done()) return;
    const bool add = words.peek() == "add";
    if (!add && words.peek() != "delete") return wrong_verb(findings, words, words.peek(), {"add", "delete"});
    words.take();
    const size_t at = words.at();
    const std::string_view line = list_line(text.substr(at, end - at));
    auto entry =
        line.empty() ? Result<std::string>(Error(fmt::format("the {} is missing", kind.entry))) : kind.parse(line);
    if (!entry) {
      findings.error_at(at, std::max<size_t>(1, line.size()), entry.error().message).expected = entry.error().hint;
    } else if (there.contains(*entry) == add) {
      findings.error_at(at, line.size(), fmt::format("{} {}", *entry, add ? "is there already" : "is not there"));
    } else if (add) {
      there.insert(*entry);
      next.push_back(std::move(*entry));
    } else {
      there.erase(*entry);
      std::erase(next, *entry);
    }
  });
  if (!findings.ok()) return findings.to_error();
  return commit_list(kind, table, std::move(next), clock.seconds(), dry_run);
}

Result<TableChange> LiveTables::replace_list(const TableKind& kind, const std::string& table, InputFile& file,
                                             bool dry_run) {
  const Stopwatch clock;
  auto before = list(kind, table);
  if (!before) return std::move(before).error();
  auto entries = [&] {
    const LetGo aside(seen_);
    return read_list(kind, file);
  }();
  if (!entries) return std::move(entries).error();
  return commit_list(kind, table, std::move(*entries), clock.seconds(), dry_run);
}

Result<TableChange> LiveTables::commit_list(const TableKind& kind, const std::string& table,
                                            std::vector<std::string> next, double parse_seconds, bool dry_run) {
  std::vector<std::string>& kept = models_.lists[{kind.type, table}];
  TableChange change{.table = table, .kind = kind.name};
  change.parse_seconds = parse_seconds;
  if (kept == next) return nothing_differs(std::move(change), dry_run);
  const auto at = tables_.of(kind.type).find(table);
  change.entries_before = kept.size();
  change.entries_after = next.size();
  change.bytes_before = at->second->bytes().size();
  const Stopwatch build;
  auto image = [&] {
    const LetGo aside(seen_);
    return share(build_list(kind, next));
  }();
  if (!image) return std::move(image).error();
  change.build_seconds = build.seconds();
  change.bytes_after = (*image)->bytes().size();
  change.bytes_peak = bytes() + change.bytes_after;
  if (auto ok = fits(change, change.bytes_after); !ok) return std::move(ok).error();
  TableSet set = tables_;
  set.of(kind.type)[table] = std::move(*image);
  if (auto ok = publish(std::move(set), change, dry_run); !ok) return std::move(ok).error();
  if (dry_run) return change;
  kept.swap(next);
  note_change(kind.name, table);
  return change;
}

}  // namespace sluice

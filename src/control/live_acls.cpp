// host only
// Access lists that change while packets pass.
#include "control/live_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <type_traits>
#include <utility>

#include "base/cancel.h"
#include "base/scope_exit.h"
#include "control/acl_change.h"
#include "control/live_parts.h"
#include "formats/rule_files.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/patch.h"

namespace sluice {
namespace {

// A list whose rules differ in more places is built anew: comparing costs the square of the steps.
constexpr size_t kMostDiffering = 1024;
constexpr size_t kMostNames = 16;

// Whether an element looks for the list while packets pass: a ConnTrack, which remembers what its rules keep.
bool begins_connections(const Router& router, TableSet tables, const std::string& list) {
  tables.acls.erase(list);
  return std::ranges::any_of(router.elements, [&](const auto& e) { return !e->check_tables(tables).ok(); });
}

}  // namespace

Result<LiveTables::AclState*> LiveTables::acl_state(const std::string& table) {
  if (auto ok = known_table(tables_.acls, "ACL table", table); !ok) return std::move(ok).error();
  auto it = acls_.find(table);
  if (it == acls_.end()) {
    // Without memory for it half of it is nobody's: the next one is made of the image.
    ScopeExit half([&] {
      acls_.erase(table);
      models_.acls.erase(table);
    });
    const auto model = models_.acls.find(table);
    auto rules = model != models_.acls.end() ? Result<RuleSet>(std::move(model->second))
                                             : configured_rules(*tables_.acls.find(table)->second);
    if (!rules) return std::move(rules).error();
    if (model != models_.acls.end()) models_.acls.erase(model);
    it = acls_.try_emplace(table).first;
    it->second.list = RuleList(std::move(*rules));
    half.release();
  }
  return &it->second;
}

Result<const RuleList*> LiveTables::rules(const std::string& table) {
  auto state = acl_state(table);
  if (!state) return std::move(state).error();
  return &(*state)->list;
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
  const auto target = asked == kAclAutoGpu ? TableTarget::kGpu : TableTarget::kCpu;
  // One that changes is short here.
  auto chosen = [&] {
    const LetGo aside(whole ? seen_ : nullptr);
    return choose_acl(list.set(), target);
  }();
  if (!chosen) return std::move(chosen).error();
  return AclChoice{std::move(chosen->algorithm), std::make_shared<const Image>(std::move(chosen->image)),
                   whole ? 0 : std::max<size_t>(n, 1)};
}

Result<void> LiveTables::commit_acl(AclState& state, const RuleList& list, bool whole, TableChange& change,
                                    bool dry_run) {
  change.kind = "acl";
  change.entries_after = list.size();
  change.bytes_before = tables_.acls.find(change.table)->second->bytes().size();
  // A short list says little of a long one: what there is for each rule of it may be as much for a thousand.
  const size_t estimate = std::min(change.bytes_before / (change.entries_before + 1) * (change.entries_after + 1),
                                   PatchedAcl::estimate_bytes(change.entries_after));
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
    auto made = build_images(state, *(fresh != nullptr ? fresh : state.images), list);
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

Result<std::shared_ptr<const Image>> LiveTables::build_images(AclState& state, AclImages& maker, const RuleList& list) {
  // A patch takes no longer than the steps that it is of. The maker is looked at for its size, too.
  if (maker.bytes() != 0 || seen_ == nullptr) return maker.make(list);
  if (&list != &state.list) {
    const LetGo aside(seen_);
    return maker.make(list);
  }
  // Who looks finds the list as it is until the change is made. Only changes write to it, and this is the only one.
  RuleList next = state.list;
  state.list.undo();
  auto made = [&] {
    const LetGo aside(seen_);
    return maker.make(next);
  }();
  state.list = std::move(next);
  return made;
}

auto LiveTables::goes_back(AclState& state, const std::string& table) {
  return ScopeExit([this, &state, table, unwinding = std::uncaught_exceptions()] {
    // A step that found no memory has left the list in pieces: the next one is made of the image.
    if (std::uncaught_exceptions() == unwinding) {
      try {
        return state.list.undo();
      } catch (const std::bad_alloc&) {
      }
    }
    acls_.erase(table);
  });
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
  auto steps = parse_acl_change(text, name, most, begins_connections(router_, tables_, table));
  if (!steps) {
    Error error = std::move(steps).error();
    // Where the limit was in the way, which of the two.
    const bool limit = std::ranges::any_of(error.diagnostics,
                                           [](const Diagnostic& d) { return d.message.starts_with("too many rules"); });
    if (limit) {
      error.hint = room < kMaxChangeRules ? fmt::format(
                                                "no more than about {} rules fit with the current tables into "
                                                "--max-memory, {}; the list stays as it is",
                                                room, in_bytes(max_bytes_))
                                          : std::string("split the change, or replace the list by a file");
    }
    return error;
  }
  TableChange change{.table = table};
  change.entries_before = state.list.size();
  state.list.begin();
  ScopeExit list = goes_back(state, table);
  if (cancelled()) return cancelled_error();
  if (auto ok = take_acl_steps(state.list, *steps, text, name); !ok) return std::move(ok).error();
  change.parse_seconds = clock.seconds();
  if (!state.list.changed()) {
    change.kind = "acl";
    return nothing_differs(std::move(change), dry_run);
  }
  if (auto done = commit_acl(state, state.list, false, change, dry_run); !done) return std::move(done).error();
  if (!dry_run) {
    list.release();
    note_change("acl", table);
  }
  return change;
}

// Not where an algorithm was chosen that takes no patches: it would be given up.
bool LiveTables::becomes(RuleList& list, const std::string& table, const RuleSet& rules) const {
  return acl_image_algorithm(*tables_.acls.find(table)->second) == TupleMergeAcl::kName &&
         rules.rules.size() > kAclRebuilt && list.become(rules, std::min(rules.rules.size() / 16, kMostDiffering));
}

namespace {

// Whether two names, each relative to a folder (empty: this process's own), are of one path.
bool same_path(const std::string& a, const std::string& folder_a, const std::string& b, const std::string& folder_b) {
  namespace fs = std::filesystem;
  const auto whole = [](const std::string& name, const std::string& folder) {
    std::error_code error;
    const fs::path path = fs::absolute(fs::path(folder) / name, error);
    return error ? fs::path() : path.lexically_normal();
  };
  const fs::path one = whole(a, folder_a);
  return !one.empty() && one == whole(b, folder_b);
}

struct RulesRead {
  RuleSet rules;
  std::string text;  // that they were read from; empty: an image
};

// The rules of a file, or of an image.
Result<RulesRead> rules_in(InputFile& file, const RuleFormatChoice& format, const RuleText& before) {
  auto compiled = Image::is_next(file);
  if (!compiled) return std::move(compiled).error();
  RulesRead read;
  Result<RuleSet> rules = RuleSet{};
  if (*compiled) {
    auto image = Image::read(file, ImageKind::kAcl);
    if (!image) return std::move(image).error();
    rules = configured_rules(*image);
  } else {
    auto text = file.table();
    if (!text) return std::move(text).error();
    read.text = std::move(*text);
    rules = before.read(read.text, file.name(), format);
  }
  if (!rules) return std::move(rules).error();
  read.rules = std::move(*rules);
  return read;
}

}  // namespace

Result<TableChange> LiveTables::replace_acl(const std::string& table, InputFile& file, const RuleFormatChoice& format,
                                            bool dry_run) {
  const Stopwatch clock;
  auto found = acl_state(table);
  if (!found) return std::move(found).error();
  AclState& state = **found;
  auto read = [&] {
    // Only changes write to the text that is kept, and this is the only one.
    const LetGo aside(seen_);
    return rules_in(file, format, state.text);
  }();
  if (!read) return std::move(read).error();
  RuleSet* const rules = &read->rules;
  const auto keep_text = [&](RuleSet of_text) { state.text.keep(std::move(read->text), std::move(of_text), format); };
  TableChange change{.table = table};
  change.entries_before = state.list.size();
  change.parse_seconds = clock.seconds();
  // A file that the process has read by one name, and a client by another, is the same.
  const auto same_file = [&](const std::string& mine, const std::string& its) {
    return mine == its || same_path(mine, {}, its, format.folder);
  };
  if (state.list.same_as(*rules, same_file)) {
    if (!dry_run) keep_text(std::move(*rules));
    change.kind = "acl";
    return nothing_differs(std::move(change), dry_run);
  }
  {
    state.list.begin();
    ScopeExit list = goes_back(state, table);
    if (becomes(state.list, table, *rules)) {
      change.rules = state.list.difference();
      if (auto done = commit_acl(state, state.list, false, change, dry_run); !done) return std::move(done).error();
      if (!dry_run) {
        list.release();
        keep_text(std::move(*rules));
        note_change("acl", table);
      }
      return change;
    }
  }
  // Names of files that were there before stay known, so that two files may take turns.
  for (const std::string& name : state.list.files()) {
    if (rules->files.size() >= kMostNames) break;
    if (std::ranges::find(rules->files, name) == rules->files.end()) rules->files.push_back(name);
  }
  // Behind the change nothing may fail: what is kept is copied before.
  const bool kept = !dry_run && !read->text.empty() && rules->rules.size() <= RuleText::kMostRules;
  RuleSet of_text = kept ? *rules : RuleSet();
  RuleList next(std::move(*rules));
  if (auto ok = commit_acl(state, next, true, change, dry_run); !ok) return std::move(ok).error();
  if (!dry_run) {
    state.list = std::move(next);
    kept ? keep_text(std::move(of_text)) : state.text.forget();
    note_change("acl", table);
  }
  return change;
}

}  // namespace sluice

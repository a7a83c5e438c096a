// host only
// Tables that are changed while packets pass: a change is made aside and published whole, or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "base/turn_lock.h"
#include "control/acl_images.h"
#include "control/route_images.h"
#include "control/rule_list.h"
#include "control/rule_text.h"
#include "elements/tables.h"
#include "exec/engine/publisher.h"
#include "exec/walk/plan.h"
#include "formats/rule_files.h"
#include "graph/router.h"
#include "graph/table_kind.h"
#include "tables/adjacency/next_hops.h"
#include "tables/lpm/rib_sources.h"

namespace sluice {

// What a change did, or with dry_run would do.
struct TableChange {
  std::string table, kind, algorithm;
  uint64_t generation = 0;  // 0: a dry run
  bool differs = true;      // false: the table is what the change asks for; nothing was built, the generation stays
  std::optional<RuleList::Difference> rules;  // of a list that changed by its rules: those that came and went
  size_t entries_before = 0, entries_after = 0;
  size_t bytes_before = 0, bytes_after = 0;  // of the table's image
  size_t bytes_peak = 0;                     // of all images while the old generation and the new one are both there
  double parse_seconds = 0;
  double build_seconds = 0;
  unsigned refusing_devices = 0;  // that did not take the generation: their packets stay on the host
  double publish_seconds = 0;     // from the image to the moment since which every new batch meets it
};

// The tables of a running Engine and what they were made of. One thread at a time, but for `set_lock`.
class LiveTables {
 public:
  // All arguments but the sets outlive this. `loads` says how the tables were made; `max_bytes`: of all images, the
  // generation that is replaced included; 0: no limit.
  LiveTables(const Router& router, const Plan& plan, Publisher& publisher, TableSet tables, TableModels models,
             std::vector<TableLoad> loads, size_t max_bytes);

  // From here on a thread that holds `seen` may look while another changes: every call is made with it held, and
  // changes (one at a time: what else excludes them is the caller's) let it go where a table is read or built. What is
  // looked at meanwhile is as it was before the change.
  void set_lock(TurnLock& seen) { seen_ = &seen; }

  // A change in text, a step a line; `name` stands for the text in messages.
  //   add [at N] RULE        N: where the rule will stand; without it: at the end
  //   delete N | delete RULE
  //   replace N RULE
  // RULE is of the native language (formats/native_rules.h), whose `define` and `include` lines, comments and blank
  // lines may stand between. Errors: every line that is wrong; there is no such rule; as of `replace_acl`.
  Result<TableChange> change_acl(const std::string& table, std::string_view text, const std::string& name,
                                 bool dry_run);
  // Puts the rules of a file, or of an image, in place of all. Errors: those of the file; it does not fit max_bytes;
  // out of memory. The old list stays in use then.
  // A list that differs from the one before in few rules changes by these, as by change_acl.
  Result<TableChange> replace_acl(const std::string& table, InputFile& file, const RuleFormatChoice& format,
                                  bool dry_run);

  //   add PREFIX [via] NEXTHOP [metric N] [OPTIONS]      in place of the route of the same source and metric
  //   append PREFIX [via] NEXTHOP [metric N] [OPTIONS]   another next hop beside those that this route has
  //   delete PREFIX [metric N] [source NAME]             without either: the route that packets go by now
  //   delete all source NAME                             every route of a source
  // OPTIONS: source NAME (default: control), preference N (default: the source's, rib_sources.h).
  // Errors: every line that is wrong; there is no such route; the table is of a compiled image, which has no routes to
  // change; as of `change_acl`.
  Result<TableChange> change_routes(const std::string& table, std::string_view text, const std::string& name,
                                    bool dry_run);
  // `files` are named as route files are (route_files.h); what `inputs` holds of them is taken from there.
  Result<TableChange> replace_routes(const std::string& table, const std::vector<std::string>& files, InputSet& inputs,
                                     bool dry_run);

  //   set LINE          a line of an adjacency file; all lines for a next hop together say what it is from now on
  //   delete NEXTHOP    nothing says what it is
  // Errors: every line that is wrong; the table is a compiled image.
  Result<TableChange> change_adjacencies(const std::string& table, std::string_view text, const std::string& name,
                                         bool dry_run);

  // Of a table that is a list of lines:
  //   add ENTRY         at the end
  //   delete ENTRY
  // Errors: every line that is wrong; an entry to add is there, or one to delete is not; as of `change_acl`.
  Result<TableChange> change_list(const TableKind& kind, const std::string& table, std::string_view text,
                                  const std::string& name, bool dry_run);
  Result<TableChange> replace_list(const TableKind& kind, const std::string& table, InputFile& file, bool dry_run);

  // The kernel knows other interfaces or neighbours: what next hops lead to by them is published, where it differs.
  // Errors: those of a change; the tables of the error and those behind it are as they were.
  Result<void> neighbours_changed();

  const TableSet& tables() const { return tables_; }
  const std::vector<TableLoad>& loads() const { return loads_; }
  // Of all images that are kept.
  size_t bytes() const;
  size_t max_bytes() const { return max_bytes_; }
  // The rules of a list. Errors: there is none of that name; a damaged image.
  Result<const RuleList*> rules(const std::string& table);
  // The routes of a table, nullptr where they are not known. Errors: there is none of that name.
  Result<const SourcedRib*> routes(const std::string& table) const;
  // What the next hops of an adjacency table lead to. Errors: there is none of that name; it is a compiled image.
  Result<const NextHops*> next_hops(const std::string& adjacencies);
  // What the next hops of a route table lead to, for each adjacency table that goes by it and is no compiled image.
  std::vector<std::pair<std::string, const NextHops*>> next_hops_of(const std::string& routes);
  // The generation with which a table was changed last; 0: never.
  uint64_t changed(const std::string& kind, const std::string& table) const;

  // Whether a change to a table by text patches what there is, and so takes as long as its steps: seldom, where the
  // image has no more room for them, longer.
  bool patches(const std::string& kind, const std::string& table) const;

  // Reads all tables again, while they are in use: is made first, then given to load_generation, then committed. What
  // is not committed leaves no trace. Nothing else changes the tables meanwhile.
  class Reload;

  // Whether a request has changed a table since it was read or saved.
  bool unsaved(const std::string& kind, const std::string& table) const;
  // The text that a table would be read from, whole. Errors: there is none of that name; it is a compiled image.
  Result<std::string> text(const std::string& kind, const std::string& table);
  struct Saved {
    std::string table, kind, path;  // table: empty for what is none
    size_t entries = 0;
    bool in_place = false;  // AtomicFile::in_place
  };
  // A file beside those of the tables, and what it is to hold.
  struct AlsoSaved {
    std::string kind, path;  // as Saved
    FileStamp& stamp;        // as it was when it was read; as it is, once it is saved
    Result<std::string> text;
  };
  // Writes the tables that are unsaved into the files that they were read from, and `also`, all or none: each has to be
  // one plain file of its own language that nobody has written since, and whose owner this process can keep
  // (AtomicFile::commit). Errors: cancelled(); every table that cannot be saved, with the reason;
  // nothing was written then, but where a file could not be put in its place, which says what was.
  Result<std::vector<Saved>> save(const std::optional<AlsoSaved>& also = {});

 private:
  // An access list as it is, and as it changes.
  struct AclState {
    RuleList list;
    std::unique_ptr<AclImages> images;  // nullptr: it has not changed yet
    std::string algorithm;              // of the images
    RuleText text;                      // that a request sent last, whatever has changed since
    size_t chosen_at = 0;               // rules when `auto` chose an algorithm for a list that changes; 0: it has not
  };
  Result<AclState*> acl_state(const std::string& table);
  // What takes back, at the end of its scope, what was changed in the list since RuleList::begin(); defined where it is
  // used.
  auto goes_back(AclState& state, const std::string& table);
  // Whether the list, which is the table's or a copy, much like these rules, has become them by the steps that differ.
  bool becomes(RuleList& list, const std::string& table, const RuleSet& rules) const;
  // The image of the list by `maker`, which nobody looks at yet. Where that is a build, nobody waits for it.
  Result<std::shared_ptr<const Image>> build_images(AclState& state, AclImages& maker, const RuleList& list);
  // Publishes `list` in place of the list; `change` has what is known by then. `whole`: it is another list.
  Result<void> commit_acl(AclState& state, const RuleList& list, bool whole, TableChange& change, bool dry_run);
  struct AclChoice {
    std::string algorithm;
    std::shared_ptr<const Image> image;  // where choosing made one
    size_t chosen_at;
  };
  // What the images of `list` are made by: what was asked for. Where that is `auto`, what is best for a list that is
  // whole another one; for one that changes, tuple_merge above kAclRebuilt rules, which takes patches, and below what
  // is best, which is built anew in no time. It is chosen with the first change, and again when the list has twice or
  // half as many rules as then, and some more.
  Result<AclChoice> choose_acl_images(const AclState& state, const RuleList& list, bool whole,
                                      const TableChange& change);
  // `next` are the routes after the steps; without steps they have nothing to do with those before.
  Result<TableChange> commit_routes(const std::string& table, const SourcedRib& next,
                                    const std::vector<RouteStep>& steps, double parse_seconds, bool dry_run);
  // An adjacency table's next hops, and the image that is patched; made when they are asked for first.
  struct LiveNextHops {
    NextHops hops;
    std::unique_ptr<PatchedAdjacencies> images;
  };
  Result<LiveNextHops*> live_next_hops(const std::string& adjacencies);
  // The entries of a list. Errors: there is none of that name.
  Result<std::vector<std::string>*> list(const TableKind& kind, const std::string& table);
  Result<TableChange> commit_list(const TableKind& kind, const std::string& table, std::vector<std::string> next,
                                  double parse_seconds, bool dry_run);
  // Publishes `next` in place of what the next hops lead to. `change` has what is known by then.
  Result<void> commit_next_hops(LiveNextHops& live, NextHops next, const NextHops::Changes& changes,
                                TableChange& change, bool dry_run);
  // The image of what has changed, or nullptr: nothing has.
  Result<std::shared_ptr<const Image>> adjacency_image(LiveNextHops& live, const NextHops& next,
                                                       const NextHops::Changes& changes, bool dry_run);
  // The image of a version: by the table's maker, or for a dry run built on its own.
  Result<std::shared_ptr<const Image>> make_routes(const TableChange& change, const SourcedRib& next,
                                                   const std::vector<RouteStep>& steps, bool dry_run);
  Result<void> fits(const TableChange& change, size_t bytes) const;
  // How many rules a change may add to a list at most, by max_bytes and kMaxChangeRules.
  size_t rules_that_fit(const std::string& table) const;
  Result<void> publish(TableSet next, TableChange& change, bool dry_run);
  TableLoad& load_of(const char* kind, const std::string& table);
  // As long as it lives nobody else looks, where the tables are shared.
  std::unique_lock<TurnLock> inside() const {
    return seen_ != nullptr ? std::unique_lock(*seen_) : std::unique_lock<TurnLock>();
  }
  // Of one that changes nothing.
  TableChange nothing_differs(TableChange change, bool dry_run);
  // Of a change that is made.
  void note_change(const std::string& kind, const std::string& table);
  struct Source;
  // What its file is to hold.
  Result<std::string> edited(const Source& source);
  // The file of a table that comes from one, as it was when it was read.
  FileStamp& stamp_of(const Source& source);

  const Router& router_;
  const Plan& plan_;
  Publisher& publisher_;
  TableSet tables_;
  TableModels models_;
  std::vector<TableLoad> loads_;
  std::map<std::string, AclState> acls_;
  std::map<std::string, std::unique_ptr<RouteImages>> route_images_;
  std::map<std::string, LiveNextHops> next_hops_;
  std::map<std::pair<std::string, std::string>, uint64_t> changed_;
  // Where a table comes from: its declaration, in the graph that it was read for.
  struct Source {
    TableDeclaration declaration;
    std::string path;      // empty: there is not one file
    bool unsaved = false;  // a request has changed the table since
  };
  using Sources = std::map<std::pair<std::string, std::string>, Source>;  // by kind and name
  static Sources sources_of(const Router& router);
  Sources sources_;
  size_t max_bytes_;
  TurnLock* seen_ = nullptr;  // nullptr: nobody looks meanwhile
};

}  // namespace sluice

// host only
// Tables that are read again while packets pass: what has not changed stays, what has is published in one generation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/live_tables.h"
#include "exec/engine/generation.h"

namespace sluice {

// What became of one table.
struct TableReload {
  enum class How : uint8_t { kUnchanged, kRules, kReplaced } how = How::kReplaced;
  std::string table, kind;
  size_t entries = 0;
  RuleList::Difference rules;  // kRules: those that came and went
};

// Where the tables have a lock (LiveTables::set_lock): made, committed and destroyed with it held, and asked without
// it.
class LiveTables::Reload final : public TablesInUse {
 public:
  // `all`: no table is known to be unchanged.
  Reload(LiveTables& live, bool all);
  ~Reload() override;
  Reload(const Reload&) = delete;
  Reload& operator=(const Reload&) = delete;

  // A table is as it was where its declaration is the same, no request has changed it since it was read, and all of its
  // files, those that they include among them, are unchanged (FileStamp::unchanged). An adjacency table goes with its
  // routes.
  std::optional<Unchanged> unchanged(const TableDeclaration& declaration) override;
  Result<std::shared_ptr<const Image>> changed(const TableDeclaration& declaration, const RuleSet& rules) override;
  std::shared_ptr<const Image> same_routes(const TableDeclaration& declaration, const SourcedRib& routes) override;
  std::optional<Unchanged> same_adjacencies(const TableDeclaration& declaration, const std::string& text) override;
  std::shared_ptr<const Image> same_list(const TableDeclaration& declaration,
                                         const std::vector<std::string>& entries) override;
  Rib best_routes(const std::string& table) override;

  // Publishes what was read with this, and takes it over. The graph is that of the run. Returns the generation, which
  // stays where no table differs from what it was. Errors: more than max_bytes; a table that an element uses is not
  // there; out of memory. The tables are as they were then.
  Result<uint64_t> commit(GraphGeneration next);
  // After commit, in the order of declaration.
  std::vector<TableReload> tables() const;

 private:
  using Key = std::pair<std::string, std::string>;  // kind and name
  // A list that has become another by steps, whose images are `fresh` where it has none to patch.
  struct Patched {
    RuleList list;
    std::unique_ptr<AclImages> fresh;
    size_t chosen_at = 0;
  };
  // All images while both generations are there.
  size_t bytes_with(const GraphGeneration& next) const;

  LiveTables& live_;
  bool all_;
  bool committed_ = false;
  std::set<Key> kept_;
  std::map<std::string, Patched> patched_;
};

}  // namespace sluice

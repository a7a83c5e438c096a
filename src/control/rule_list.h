// host only
// The rules of an access list that changes: by position, each with a priority that stays while others come and go. A
// step costs a chunk of rules and the logarithm of their count, not the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tables/acl/patch.h"
#include "tables/acl/rule_set.h"

namespace sluice {

// One thread. Positions are 1-based and those of the moment.
class RuleList {
 public:
  RuleList() = default;
  explicit RuleList(RuleSet set);

  size_t size() const { return size_; }
  const AclRule& at(size_t position) const;
  // The first rule that matches what `rule` matches and does what it does; 0: there is none. The first call looks at
  // all rules, others at a few.
  uint32_t find(const AclRule& rule);
  const std::vector<std::string>& files() const { return files_; }
  // The number of a file's name, which is added where it is new.
  uint32_t file(const std::string& name);
  RuleSet set() const;
  std::vector<OrderedRule> ordered() const;

  // From here on changes are noted.
  void begin();
  void insert(size_t position, const AclRule& rule);
  // Where the same rule stands there already, it stays.
  void replace(size_t position, const AclRule& rule);
  void erase(size_t position);
  // Whether `next` has the same rules in the same lines of the same files, which may be called otherwise there:
  // `same_file` gets the name of one of these files and of one of `next`.
  using SameFile = std::function<bool(const std::string&, const std::string&)>;
  bool same_as(const RuleSet& next, const SameFile& same_file = std::equal_to<std::string>()) const;
  // Becomes the list `next` by steps, at most `most`; rules that both have stay, and what is written elsewhere is
  // noted. False, and nothing has changed: it takes more steps, or `next` is of files that this one does not know.
  bool become(const RuleSet& next, size_t most);
  // Takes back what was changed since begin().
  void undo();
  // The same by priorities, where those of before still hold: numbering() is what it was at begin() then.
  const AclChange& change() const { return change_; }
  uint64_t numbering() const { return numbering_; }
  // Rules that have come and gone since begin(); one that another replaced is both.
  struct Difference {
    size_t added = 0, deleted = 0;
  };
  Difference difference() const;
  // Whether anything was changed since begin().
  bool changed() const { return !undo_.empty(); }

  // Entries that were moved or compared since the list was made: what changes cost.
  uint64_t work() const { return work_; }

 private:
  struct Entry {
    uint64_t priority;
    AclRule rule;
  };
  using Chunk = std::vector<Entry>;
  struct Place {
    size_t chunk, at;
  };
  struct Undo {
    enum class Verb : uint8_t { kInsert, kReplace, kPlace, kErase } verb;
    uint32_t position;
    uint32_t file = 0, line = 0;  // kPlace: of before
  };
  Place place(size_t position) const;
  Entry& entry(const Place& p) { return chunks_[p.chunk][p.at]; }
  size_t position_of(uint64_t priority) const;
  uint64_t priority_for(size_t position);
  // Of the rules of `next`, by number of this list's, those that stay; nothing where more than `most` do not.
  std::optional<std::vector<uint32_t>> kept_in(const RuleSet& next, size_t most) const;
  void number();
  void spread(size_t position);
  void count_chunks();
  void count(size_t chunk, ptrdiff_t more);
  size_t rules_before(size_t chunk) const;
  void put(size_t position, Entry entry);
  Entry take(size_t position);
  void index(const Entry& entry, bool there);

  std::vector<Chunk> chunks_;  // none is empty
  size_t size_ = 0;
  std::vector<std::string> files_;
  uint64_t numbering_ = 0, last_ = 0;  // last_: the priority given last
  bool indexed_ = false;
  std::set<std::pair<uint64_t, uint64_t>> by_identity_;  // hash, priority
  std::vector<Undo> undo_;
  std::vector<Entry> gone_;  // of kReplace and kErase, in their order: what was there before
  size_t files_before_ = 0;
  uint64_t numbering_before_ = 0;
  AclChange change_;
  std::vector<uint32_t> sums_;  // a Fenwick tree of the chunks' sizes: [i], i from 1, is the sum of the lowest bit of i
  uint64_t work_ = 0;
};

}  // namespace sluice

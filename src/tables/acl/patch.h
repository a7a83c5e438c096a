// An access list that changes while packets are looked up: tuple_merge's image, patched. Host only.
//
// apply() changes a master image rule by rule, publish() hands out a replica of it (replica.h): an image like any
// other, for a Snapshot, a device or a Program, whose view and kernels are those of tuple_merge. Tables are chosen by
// tuple_merge's builder for the rules at creation; a rule goes into the first table that covers it and has room, else
// among the loose rules, else a table is made for it. When the image has no room left, a larger one is built aside and
// takes its place at the next publish(): readers keep what they hold.
//
// Rules are known by a 64-bit priority, lowest first, sparse: an insertion renumbers nothing that a user sees. What a
// lookup returns is a number inside one image ("word"): it grows with the priority, and later images may have the rule
// at another one. priority_of() says which rule a word of the last published image stands for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tables/acl/rule_set.h"
#include "tables/replica.h"

namespace sluice {

struct OrderedRule {
  uint64_t priority = 0;
  AclRule rule;
};

// Operations that take effect together, in this order. A line at the top of a file moves all others: what is only
// written elsewhere is a few words, and rules are kept of those that come.
class AclChange {
 public:
  enum class Kind : uint8_t { kAdd, kRemove, kPlace };
  struct Operation {
    uint64_t priority;
    Kind kind;
    uint32_t file = 0, line = 0;  // kPlace
    uint32_t added = 0;           // kAdd: which of the rules that are added
  };

  void add(uint64_t priority, const AclRule& rule) {
    operations_.push_back({.priority = priority, .kind = Kind::kAdd, .added = static_cast<uint32_t>(added_.size())});
    added_.push_back(rule);
  }
  void remove(uint64_t priority) { operations_.push_back({.priority = priority, .kind = Kind::kRemove}); }
  // The rule with this priority stays, and is written elsewhere.
  void place(uint64_t priority, uint32_t file, uint32_t line) {
    operations_.push_back({.priority = priority, .kind = Kind::kPlace, .file = file, .line = line});
  }
  // A rule with the same priority is there and gives way.
  void replace(uint64_t priority, const AclRule& rule) {
    remove(priority);
    add(priority, rule);
  }
  void clear() {
    operations_.clear();
    added_.clear();
  }
  void reserve(size_t operations) { operations_.reserve(operations); }
  const std::vector<Operation>& operations() const { return operations_; }
  // Of one that adds it.
  const AclRule& rule(const Operation& operation) const { return added_[operation.added]; }

 private:
  std::vector<Operation> operations_;
  std::vector<AclRule> added_;
};

// How much an image has room for beside the rules that it is made of; tests have less, so that each kind of room runs
// out soon. The defaults are the most that there can be of tables and loose rules.
struct PatchedAclRoom {
  size_t tables = 96;                  // of each kind of keys
  size_t slots = size_t{1} << 14;      // of tables that are made later; at least 2
  size_t blocks4 = 256, blocks6 = 64;  // more than what the rules and their growth take
  size_t loose4 = 128, loose6 = 48;    // IPv4: what a bitmap holds; the others are compared one by one
};

struct PatchedAclOptions {
  std::vector<std::string> files;  // of RuleSet::files; rules of later changes may name these
  size_t room = 0;                // rules that the first image has room for, if more than an eighth more than there are
  size_t max_bytes = ~size_t{0};  // of one image; the master and two replicas are three of them
  PatchedAclRoom beside = {};
};

// One control thread at a time. Images that publish() returned may be read and let go on any thread.
class PatchedAcl {
 public:
  // Errors: a rule that cannot be used, a priority twice, memory or max_bytes.
  static Result<std::unique_ptr<PatchedAcl>> create(std::span<const OrderedRule> rules,
                                                    const PatchedAclOptions& options = {});
  ~PatchedAcl();
  PatchedAcl(const PatchedAcl&) = delete;
  PatchedAcl& operator=(const PatchedAcl&) = delete;

  // The bytes of an image with room for `rules` rules, about.
  static size_t estimate_bytes(size_t rules);

  // Applies all of `change` or, on an error, nothing; readers see it from the next publish() on. Where the image has no
  // room for it, a larger one is built. Errors, each with its operation: a rule that cannot be used, a priority that is
  // taken or absent; no memory for a larger image, or more than max_bytes.
  Result<void> apply(const AclChange& change);

  // A hint: apply(change) will be called, some changes from now. Where changes come as a stream, the memory that one of
  // them touches can be on its way while others are applied; a dozen operations ahead are enough. Changes nothing, and
  // a change that never comes, or is refused, does no harm.
  void expect(const AclChange& change);

  // The image of all that was applied. Errors: those of ImageReplicas::publish and, where the image could not take back
  // what a refused change had removed, of rebuild(); the changes are kept for another try.
  Result<std::shared_ptr<const Image>> publish();

  size_t size() const;
  // The rules in order.
  std::vector<OrderedRule> rules() const;
  // The priority of the rule at `word` as of now; nullopt: no rule is there.
  std::optional<uint64_t> priority_of(uint32_t word) const;

  const ImageReplicas& replicas() const;
  // How often a larger image was built, and rules that stand where a builder would not have put them (in buckets past
  // their length, in tables made for them): many of them are a reason to rebuild().
  size_t rebuilds() const { return rebuilds_; }
  size_t misplaced() const;
  // Chooses tables anew for the rules of now. Errors: memory, max_bytes; nothing has changed then.
  Result<void> rebuild();

 private:
  struct State;
  explicit PatchedAcl(std::unique_ptr<State> state, PatchedAclOptions options);
  // Rules in order; room for as many additions in one change.
  static Result<std::unique_ptr<State>> build(std::span<const OrderedRule> rules, const PatchedAclOptions& options,
                                              size_t adds4, size_t adds6);
  // A larger image of the rules of now takes the place of this one. Errors: those of build(); nothing has changed then.
  Result<void> grow(size_t adds, size_t adds4, size_t adds6);
  // No error unless an exception has left a change half made.
  Result<void> intact() const;

  std::unique_ptr<State> state_;
  PatchedAclOptions options_;
  size_t rebuilds_ = 0;
};

}  // namespace sluice

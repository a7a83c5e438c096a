// An access list that changes while it is searched: tuple_merge's structure, updated bucket by bucket. Host only.
//
// One writer (calls are serialised inside), any number of readers up to kMaxReaders; readers take no lock. Blocks are
// never written once a reader can reach them: a change writes new blocks for the buckets that it touches and swings
// their slots. Around that it announces itself in a log: `started` before the first store, `finished` after the last. A
// reader notes `finished`, searches, then looks at `started`: rules of changes in between are compared with its
// packets, and a packet that one of them matches is searched again. So every packet's result is that of exactly one
// version; a packet that no rule of a change matches cannot tell the versions apart. Memory that a change frees is used
// again when every reader has moved on (each shows the version it began with).
//
// Rules are known by a 64-bit priority, lowest first, sparse: an insertion renumbers nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "net/flow_key.h"
#include "tables/acl/rule_set.h"

namespace sluice {

struct LiveRule {
  uint64_t priority = 0;
  AclRule rule;
};

// What a reader gets for a packet; verb kNone: no rule matched.
struct LiveMatch {
  uint64_t priority = 0;
  AclAction action;
};

// Operations that take effect together, in this order.
class LiveChange {
 public:
  void add(uint64_t priority, const AclRule& rule) { ops_.push_back({Kind::kAdd, {priority, rule}}); }
  void remove(uint64_t priority) { ops_.push_back({Kind::kRemove, {priority, {}}}); }
  // A rule with the same priority is there and gives way.
  void replace(uint64_t priority, const AclRule& rule) {
    remove(priority);
    add(priority, rule);
  }
  void clear() { ops_.clear(); }
  size_t size() const { return ops_.size(); }

 private:
  friend class LiveAcl;
  enum class Kind : uint8_t { kAdd, kRemove };
  struct Op {
    Kind kind;
    LiveRule rule;
  };
  std::vector<Op> ops_;
};

class LiveAcl {
 public:
  static constexpr size_t kMaxReaders = 64;
  static constexpr size_t kMaxChange = 1024;  // operations in one change

  // `capacity`: the most rules it may ever hold; memory for them is reserved now and touched when used. The tables are
  // chosen for `rules`. Errors: a rule that cannot be used, a priority twice, too many rules, memory.
  static Result<std::unique_ptr<LiveAcl>> create(std::span<const LiveRule> rules, size_t capacity);
  ~LiveAcl();
  LiveAcl(const LiveAcl&) = delete;
  LiveAcl& operator=(const LiveAcl&) = delete;

  // The bytes that a table of `capacity` rules reserves.
  static size_t reserved_bytes(size_t capacity);

  // Applies all of `change` or, on an error, nothing; returns the new version. Errors, each with its operation: a rule
  // that cannot be used, a priority that is taken or absent, more rules than the capacity, more than kMaxChange
  // operations, no memory left.
  Result<uint64_t> apply(const LiveChange& change);

  size_t size() const;
  uint64_t version() const;
  // Bytes of blocks in use, those not yet free for reuse included.
  size_t used_bytes() const;
  // The rules in order: what an image of this version is built from.
  std::vector<LiveRule> rules() const;

  // For one thread at a time. Must not outlive the table.
  class Reader {
   public:
    explicit Reader(LiveAcl& table);
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    // `n` (at most 32) keys at once.
    void lookup_burst(const FlowKey* const* keys, LiveMatch* matches, size_t n);
    // Packets that were searched again because a change touched them.
    uint64_t again() const { return again_; }

   private:
    LiveAcl& table_;
    size_t place_ = 0;
    uint64_t again_ = 0;
  };

 private:
  struct State;
  explicit LiveAcl(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice

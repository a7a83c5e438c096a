// host only
// How often each rule of an access list decided, and over how many bytes; kept while the list changes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph/stage_slot.h"
#include "graph/table_set.h"

namespace sluice {

struct Snapshot;

struct HitCount {
  uint64_t packets = 0;
  uint64_t bytes = 0;  // the packets' lengths on arrival at the list
  void add(const HitCount& other) {
    packets += other.packets;
    bytes += other.bytes;
  }
  friend bool operator==(const HitCount&, const HitCount&) = default;
};

// Counters of one version of a list: an array a worker, entry 0 for "no rule matched". One thread adds to each array,
// any thread reads (relaxed: plain loads and stores on x86).
class RuleHits {
 public:
  // 16 bytes a rule and worker, of which the operating system gives what is used. Throws std::bad_alloc.
  RuleHits(uint32_t rules, unsigned workers);

  uint32_t rules() const { return rules_; }
  // What one worker adds to; lives as long as this.
  class Adder {
   public:
    Adder() = default;
    explicit operator bool() const { return counts_ != nullptr; }
    // A rule that the list does not have counts as none.
    void add(uint32_t rule, uint64_t bytes) const {
      HitCount& c = counts_[rule <= rules_ ? rule : 0];
      __atomic_store_n(&c.packets, __atomic_load_n(&c.packets, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
      __atomic_store_n(&c.bytes, __atomic_load_n(&c.bytes, __ATOMIC_RELAXED) + bytes, __ATOMIC_RELAXED);
    }
    void prefetch(uint32_t rule) const { __builtin_prefetch(&counts_[rule <= rules_ ? rule : 0], 1); }

   private:
    friend class RuleHits;
    HitCount* counts_ = nullptr;
    uint32_t rules_ = 0;
  };
  Adder of(unsigned worker) {
    Adder adder;
    adder.counts_ = counts_[worker].get();
    adder.rules_ = rules_;
    return adder;
  }
  HitCount sum(uint32_t rule) const;

 private:
  struct Free {
    void operator()(HitCount* counts) const;
  };
  uint32_t rules_;
  std::vector<std::unique_ptr<HitCount, Free>> counts_;
};

// The counters of all versions of all lists. A rule is the rule of the version before that matches the same packets and
// does the same with them, wherever it stands. Of several that are the same, those that stand before or behind all that
// changed stay what they are; of the others the first is the first. Thread-safe.
class HitLedger {
 public:
  explicit HitLedger(unsigned workers) : workers_(workers) {}

  // The counters of a version, made when it is asked for the first time; it follows the version before. Linear in the
  // rules then. `image` is an ACL image. Throws std::bad_alloc.
  std::shared_ptr<RuleHits> of(const std::string& table, const std::shared_ptr<const Image>& image);

  struct Counts {
    std::shared_ptr<const Image> image;  // the newest version; nullptr: nothing was counted yet
    std::vector<HitCount> rules;         // of the newest version by 1-based position; 0: no rule matched
    HitCount removed;                    // rules that are gone
  };
  Counts read(const std::string& table);

 private:
  static constexpr uint32_t kGone = ~0u;
  struct Version {
    std::weak_ptr<const Image> image;
    std::shared_ptr<RuleHits> hits;
    std::vector<uint32_t> now;  // rule - 1 -> position in the newest version, or kGone; empty: unchanged
    uint32_t place(uint32_t rule) const { return rule == 0 || now.empty() ? rule : now[rule - 1]; }
  };
  struct Table {
    std::string name;
    std::shared_ptr<const Image> newest;
    std::list<Version> versions;  // oldest first
    std::vector<HitCount> base;   // of versions that nobody adds to any more, by position in the newest
    HitCount removed;
  };
  Table& table(const std::string& name);
  static void fold(Table& table);

  unsigned workers_;
  std::mutex mutex_;
  std::list<Table> tables_;
};

// The name of the access list whose rules a bound stage's packets are counted by, or nullptr: not a stage of a list of
// the set.
const std::string* counted_table(const StageSlot& slot, const TableSet& tables);

// Gives the snapshot's elements the counters that their packets go to (Snapshot::hits).
void attach_hits(Snapshot& snapshot, HitLedger& ledger);

}  // namespace sluice

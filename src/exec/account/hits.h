// host only
// How often each rule of an access list decided, and over how many bytes; kept while the list changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
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

// Counters of one version of a list, by its rules' numbers; entry 0 for "no rule matched". They lie in blocks, each
// with an array a worker, which versions share where their rules are the same. One thread adds to each array, any
// thread reads (relaxed: plain loads and stores on x86).
class RuleHits {
 public:
  static constexpr uint32_t kBlock = 256;  // rules

  // What one worker adds to; lives as long as this.
  class Adder {
   public:
    Adder() = default;
    explicit operator bool() const { return blocks_ != nullptr; }
    // A rule that the list does not have counts as none. `sign`: -1 takes a packet back.
    void add(uint32_t rule, uint64_t bytes, uint64_t sign = 1) const {
      const uint32_t r = rule <= rules_ ? rule : 0;
      HitCount& c = blocks_[r / kBlock][first_ + r % kBlock];
      bytes *= sign;
#if defined(__x86_64__) && !defined(SLUICE_SANITIZED_THREADS)
      // One load and one store for both: aligned to 16 bytes, either half is read and written whole.
      using Pair = uint64_t __attribute__((vector_size(16)));
      auto* const both = reinterpret_cast<Pair __attribute__((may_alias))*>(&c);
      *both += Pair{sign, bytes};
#else
      __atomic_store_n(&c.packets, __atomic_load_n(&c.packets, __ATOMIC_RELAXED) + sign, __ATOMIC_RELAXED);
      __atomic_store_n(&c.bytes, __atomic_load_n(&c.bytes, __ATOMIC_RELAXED) + bytes, __ATOMIC_RELAXED);
#endif
    }

   private:
    friend class RuleHits;
    HitCount* const* blocks_ = nullptr;
    uint32_t rules_ = 0, first_ = 0;
  };
  Adder of(unsigned worker) const {
    Adder adder;
    adder.blocks_ = places_.data();
    adder.rules_ = rules_;
    adder.first_ = worker * kBlock;
    return adder;
  }
  uint32_t rules() const {
    return rules_;
  }

 private:
  friend class HitLedger;
  struct Block {
    // kBlock counters for each of n workers, of which the operating system gives what is used. Throws std::bad_alloc.
    explicit Block(unsigned n);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    HitCount sum(uint32_t at) const;
    HitCount* counts;
    unsigned workers;
  };
  RuleHits(uint32_t rules, unsigned workers);
  void put(size_t at, unsigned workers);  // a block without counts

  uint32_t rules_;
  std::vector<std::shared_ptr<const Block>> blocks_;
  std::vector<HitCount*> places_;  // of the blocks' counters
};

// The counters of all versions of all lists. A rule is the rule of the version before that matches the same packets and
// does the same with them, wherever it stands. Of several that are the same, those that stand before or behind all that
// changed stay what they are; of the others the first is the first. Thread-safe.
class HitLedger {
 public:
  explicit HitLedger(unsigned workers) : workers_(workers) {}

  // The counters of a version, made when it is asked for the first time; it follows the version before. Between
  // versions of one image that is patched (ImageReplicas) this looks at what the patches touched, and at a pointer for
  // every RuleHits::kBlock rules; otherwise at all rules. `image` is an ACL image. Throws std::bad_alloc.
  std::shared_ptr<RuleHits> of(const std::string& table, const std::shared_ptr<const Image>& image);

  struct Counts {
    std::shared_ptr<const Image> image;  // the newest version; nullptr: nothing was counted yet
    std::vector<HitCount> rules;         // of the newest version by 1-based position; 0: no rule matched
    HitCount removed;                    // rules that are gone
  };
  Counts read(const std::string& table);
  // From here on `read_since_clear` counts, for every list; `read` goes on as before. Throws std::bad_alloc, and then
  // nothing was cleared.
  void clear();
  Counts read_since_clear(const std::string& table);

  // Rules that were looked at, and blocks that were made, to follow changes since the ledger was made.
  struct Work {
    uint64_t rules = 0, blocks = 0;
  };
  Work work();

 private:
  static constexpr uint32_t kGone = ~0u;
  struct Moves;
  // A block that the newest version does not have.
  struct Retired {
    std::shared_ptr<const RuleHits::Block> block;
    std::vector<uint32_t> now;  // of its rules: the number in the newest version, or kGone
  };
  // By a rule's number, and of rules that are gone.
  struct Sums {
    std::vector<HitCount> rules;
    HitCount removed;
    HitCount& of(uint32_t now) { return now == kGone ? removed : rules[now]; }
    // By the numbers of the next version: anew where any may have moved, for `rules` of them; else in place, by `room`.
    Sums moved(const Moves& to, uint32_t rules) const;
    void move(const Moves& to, std::vector<std::pair<uint32_t, HitCount>>& room);
  };
  struct Table {
    std::string name;
    std::shared_ptr<const Image> newest;
    std::shared_ptr<RuleHits> hits;  // of the newest version
    std::list<Retired> retired;
    // By number in the newest version: of blocks that nobody adds to any more, and of what was there at clear().
    Sums base, cleared;
  };
  Table& table(const std::string& name);
  Moves moves(const Image& before, const Image& after);
  static void fold(Table& table);
  static Counts sum(Table& table);

  unsigned workers_;
  std::mutex mutex_;
  std::list<Table> tables_;
  Work work_;
};

// Whether a bound stage is of an access list: it notes the rule that decided.
bool notes_rule(const StageSlot& slot);
// The name of the access list whose rules a bound stage's packets are counted by, or nullptr: not a stage of a list of
// the set.
const std::string* counted_table(const StageSlot& slot, const TableSet& tables);

// Gives the snapshot's elements the counters that their packets go to (Snapshot::rules).
void attach_hits(Snapshot& snapshot, HitLedger& ledger);

}  // namespace sluice

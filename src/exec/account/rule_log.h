// host only
// Packets that rules with `log` decided: workers record them, one thread takes the records.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/spsc_queue.h"
#include "graph/router.h"
#include "graph/table_set.h"
#include "net/flow_key.h"
#include "tables/acl/rule_set.h"

namespace sluice {

struct Plan;
struct Snapshot;

// What a worker records of a packet.
struct LoggedPacket {
  static constexpr uint16_t kNoSource = 0xffff;

  uint64_t version = 0;         // of the LoggedRules that it met
  uint64_t timestamp_ns = 0;    // the packet's
  FlowKey key;                  // as the list saw it
  uint32_t slot = 0;            // the rule, among those of the version
  uint32_t bytes = 0;           // of the frame as it came to the list
  uint32_t ip_bytes = 0;        // of these, from the network header on
  uint16_t source = kNoSource;  // of the plan; kNoSource: an element made the packet, or it is not known
  uint16_t worker = 0;
};

// A rule with `log`, the same in every version that has it. Of equal rules of one list the first decides all packets:
// they are one.
struct LoggedRule {
  std::string table;
  AclMatchRule match{};
  AclAction action;
  std::atomic<int64_t> left{0};  // records that it may still give before the next are granted

  // Of the thread that takes the records, under RuleLog's mutex.
  struct Place {
    uint32_t position = 0;                    // in the list, from 1
    std::shared_ptr<const std::string> file;  // nullptr: unknown
    uint32_t line = 0;
  };
  Place place;          // in the newest version that has it
  uint64_t logged = 0;  // packets whose records were taken
  uint64_t missed = 0;  // and those without a record, of versions that are gone
  uint64_t told = 0;    // of all that are missed, those that take_missed gave
  uint64_t now = 0;     // of all that are missed, as count_missed found them
};

// The rules with `log` of one version of a list, for one element that goes by it. Immutable but for what workers count.
class LoggedRules {
 public:
  struct Rule {
    uint32_t number = 0;  // in the image
    std::shared_ptr<LoggedRule> rule;
    LoggedRule::Place place;
  };

  // Data path -----------------------------------------------------------------------------------------------------
  // All rules that it has are among these numbers. Mostly there are few such rules: whole columns are compared at once.
  struct Range {
    uint32_t first = 1, span = 0;
    bool holds(uint32_t rule) const { return rule - first <= span; }
  };
  Range range() const { return range_; }
  bool has(uint32_t rule) const { return range_.holds(rule) && (words_[rule / 64].bits >> (rule % 64) & 1) != 0; }
  // Whether a record of it would be taken now. Precondition of these three: has(rule).
  bool grants(uint32_t rule) const { return rules_[slot(rule)].rule->left.load(std::memory_order_relaxed) > 0; }
  // Records a packet that it decided, or counts it as missed: there have been too many, or the ring is full. `make`
  // fills the record's packet (all but version, slot and worker), and is called only where there is room for it. By the
  // thread of worker `worker`; never waits, allocates nothing.
  template <typename Make>
  void record(unsigned worker, uint32_t rule, Make&& make) const {
    const uint32_t s = slot(rule);
    std::atomic<int64_t>& left = rules_[s].rule->left;
    if (left.load(std::memory_order_relaxed) > 0) {
      if (left.fetch_sub(1, std::memory_order_relaxed) > 0) {
        LoggedPacket packet;
        packet.version = version_;
        packet.slot = s;
        packet.worker = static_cast<uint16_t>(worker);
        make(packet);
        if (rings_[worker]->push(packet)) return;
      }
      left.fetch_add(1, std::memory_order_relaxed);
    }
    count_missed(worker, s);
  }
  void miss(unsigned worker, uint32_t rule) const { count_missed(worker, slot(rule)); }

  // Others ----------------------------------------------------------------------------------------------------------
  const Rule& rule(uint32_t slot) const { return rules_[slot]; }
  const std::string& element() const { return element_; }
  // Empty: kNoSource.
  std::string input(uint16_t source) const { return source < inputs_->size() ? (*inputs_)[source] : std::string(); }

 private:
  friend class RuleLog;
  using Ring = SpscQueue<LoggedPacket>;
  struct Word {
    uint64_t bits = 0;
    uint32_t before = 0;  // rules in the words before
  };
  uint32_t slot(uint32_t rule) const {
    const Word& word = words_[rule / 64];
    return word.before + static_cast<uint32_t>(std::popcount(word.bits & ((uint64_t{1} << rule % 64) - 1)));
  }
  // One thread adds to each counter.
  void count_missed(unsigned worker, uint32_t slot) const {
    std::atomic<uint64_t>& count = missed_[worker * stride_ + slot];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  uint64_t missed(uint32_t slot, unsigned workers) const {
    uint64_t sum = 0;
    for (unsigned w = 0; w < workers; ++w) sum += missed_[w * stride_ + slot].load(std::memory_order_relaxed);
    return sum;
  }

  uint64_t version_ = 0;
  Range range_;
  std::string element_;
  std::shared_ptr<const std::vector<std::string>> inputs_;  // by source
  std::vector<Word> words_;                                 // a bit for each number of the image
  std::vector<Rule> rules_;                                 // by number
  size_t stride_ = 0;                                       // counters of one worker, on cache lines of its own
  std::unique_ptr<std::atomic<uint64_t>[]> missed_;         // by worker, then by slot
  const std::unique_ptr<Ring>* rings_ = nullptr;            // by worker: RuleLog's
};

// The records of a run. Each rule gives `rate` of them a second over all workers, and as many at once after a quiet
// second. What is recorded and what is counted as missed are together the packets that rules with `log` decided.
class RuleLog {
 public:
  static constexpr uint64_t kDefaultRate = 100, kMostRate = 1'000'000;
  static constexpr uint32_t kRoom = 4096;  // records that one worker's ring holds; less for each of many workers

  explicit RuleLog(uint64_t rate = kDefaultRate) : rate_(static_cast<int64_t>(rate)) {}

  // For a run's engine ------------------------------------------------------------------------------------------------
  // Before the first version. Workers are 0 .. workers - 1.
  void open(unsigned workers) { workers_ = workers; }
  // Gives the snapshot's elements the rules whose packets they record (Snapshot::rules). Where no list has any this
  // leaves nothing there. `router` and `plan` are those of the snapshot. Throws std::bad_alloc.
  void attach(Snapshot& snapshot, const Router& router, const Plan& plan);
  // The same for one element, named `element`, that goes by `table`; nullptr: the list has no such rule. Versions of a
  // list that is patched cost what the patches touched, a bit for each rule and the rules with `log`.
  std::shared_ptr<const LoggedRules> of(const std::string& table, const std::shared_ptr<const Image>& image,
                                        const std::string& element,
                                        std::shared_ptr<const std::vector<std::string>> inputs);

  // For the thread that takes the records -----------------------------------------------------------------------------
  struct Event {
    LoggedPacket packet;
    std::shared_ptr<const LoggedRules> rules;
    const LoggedRules::Rule& rule() const { return rules->rule(packet.slot); }
  };
  // All records that are there, by their time stamps; grants more. `now_ns` as of base/clock.h.
  std::vector<Event> take(uint64_t now_ns);
  // Packets that were missed since the last call, by rule.
  struct Missed {
    std::shared_ptr<const LoggedRule> rule;
    LoggedRule::Place place;
    uint64_t packets = 0;
  };
  std::vector<Missed> take_missed();
  // Until there may be something to take: `period` where lists have rules with `log`, and else until they have some or
  // `stop` is asked for.
  void wait(const std::stop_token& stop, std::chrono::milliseconds period);

  // Any thread --------------------------------------------------------------------------------------------------------
  struct Sums {
    uint64_t logged = 0;  // packets whose records were taken
    uint64_t missed = 0;
  };
  Sums sums() const;
  uint64_t rate() const { return static_cast<uint64_t>(rate_); }

 private:
  // The newest version of a list for one element, as long as somebody else has it.
  struct Newest {
    std::weak_ptr<const Image> image;
    uint64_t image_version = 0;  // a replica that was given back may show another one
    bool any = false;            // it has rules with `log`
    std::weak_ptr<LoggedRules> rules;
  };
  std::shared_ptr<LoggedRules> make(const std::string& table, const Image* before, const LoggedRules* rules_before,
                                    const Image& image);
  std::shared_ptr<LoggedRule> find(const std::string& table, const AclMatchRule& match, const AclAction& action,
                                   const std::string& identity);
  void make_rings();
  void count_missed() const;

  const int64_t rate_;
  unsigned workers_ = 1;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::unique_ptr<LoggedRules::Ring>> rings_;         // by worker; empty: no list has had a rule with `log`
  std::map<std::pair<std::string, std::string>, Newest> newest_;  // by table and element
  std::vector<std::shared_ptr<LoggedRules>> versions_;            // ascending
  std::map<std::pair<std::string, std::string>, std::shared_ptr<LoggedRule>> rules_;  // by table and identity
  uint64_t last_version_ = 0;
  uint64_t granted_ns_ = 0;
  Sums gone_;  // of rules that are forgotten
};

}  // namespace sluice

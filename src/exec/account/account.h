// host only
// Account: counters, drops by reason, hits and records by rule, and fates. Tiles, bursts, results of a device and the
// packet scheduler all write them here.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "batch/batch.h"
#include "exec/account/counters.h"
#include "exec/account/hits.h"
#include "exec/account/rule_log.h"
#include "exec/cpu/tile.h"
#include "net/dscp.h"

namespace sluice {

// By element, where packets are counted and recorded by rule. Immutable once a generation is published.
struct RuleAccounts {
  std::vector<std::shared_ptr<RuleHits>> hits;           // nullptr, or past the end: they are not counted
  std::vector<std::shared_ptr<const LoggedRules>> logs;  // nullptr, or past the end: no rule has `log`

  bool empty() const { return hits.empty() && logs.empty(); }
  template <typename Entry>
  static void put(std::vector<Entry>& entries, unsigned element, Entry entry) {
    if (entry == nullptr && element >= entries.size()) return;
    if (entries.size() <= element) entries.resize(element + size_t{1});
    entries[element] = std::move(entry);
  }
  RuleHits::Adder hits_of(unsigned element, unsigned worker) const {
    return element < hits.size() && hits[element] != nullptr ? hits[element]->of(worker) : RuleHits::Adder{};
  }
  const LoggedRules* logs_of(unsigned element) const { return element < logs.size() ? logs[element].get() : nullptr; }
};

// Why a packet is dropped that leaves an element by an output without a successor. A well-formed packet has no reason
// of its own.
inline DropReason reason_to_leave(DropReason own) {
  return own == DropReason::kNone ? DropReason::kUnconnectedOutput : own;
}

// The counters of one thread. It gets the packets of a stage as lanes, a class with, for lane i,
//   uint32_t rule(i), length(i)         the rule that decided the packet, and the packet's length on arrival
//   uint32_t near(LoggedRules::Range)   a mask that has every lane whose rule is in the range, and may have more
//   void log(i, LoggedPacket&)          fills the packet's record
//   DropReason reason(i)                why the packet leaves by an output without a successor
//   uint32_t with(DropReason)           where it can say so at once: the lanes of that reason
//   uint32_t row(i), next_hop(i)        for the packet's fate
// With kRecords = false there is no log(), and packets of rules with `log` count as missed records.
class Account {
 public:
  explicit Account(unsigned worker = 0) : worker_(worker) {}

  // What packets are accounted to from here on. `fates`: by row, nullptr where none are kept.
  void to(const RuleAccounts& rules, PacketFate* fates) {
    rules_ = rules.empty() ? nullptr : &rules;
    fates_ = fates;
  }

  // Packets that reach an element, `bytes` long together on arrival.
  void arrive(unsigned element, uint64_t packets, uint64_t bytes) {
    ElementCounters& counters = stats.elements[element];
    counters.packets += packets;
    counters.bytes += bytes;
  }
  // Packets that came into the graph by a source.
  void come_in(unsigned source, const Batch& batch, const Selection& rows) {
    const uint64_t packets = rows.count(), bytes = batch.bytes(rows);
    stats.packets_in += packets;
    stats.bytes_in += bytes;
    arrive(source, packets, bytes);
    if (!stats.dscp.empty()) rows.for_each([&](uint32_t row) { add_dscp(batch.arrived(row)); });
  }
  // One that no element has.
  void come_in(std::span<const uint8_t> frame) {
    ++stats.packets_in;
    stats.bytes_in += frame.size();
    if (!stats.dscp.empty()) add_dscp(frame);
  }
  void drop(unsigned element, DropReason reason, uint64_t packets = 1) {
    stats.elements[element].drops[static_cast<size_t>(reason)] += packets;
  }
  // A packet of a row whose fate may be kept.
  void drop(unsigned element, DropReason reason, uint32_t row, uint32_t rule, uint32_t next_hop) {
    drop(element, reason);
    if (fates_ != nullptr) end(row, {rule, next_hop, static_cast<uint16_t>(element), reason});
  }
  // The lanes of `came` have met the access list of an element: before stage() has them, and where fates are kept.
  template <typename Lanes>
  void meet_list(unsigned element, uint32_t came, const Lanes& lanes) {
    for_lanes(came, [&](uint32_t i) { fates_[lanes.row(i)].list = static_cast<uint16_t>(element); });
  }

  // The lanes of `came` have passed a stage, with `bytes` together on arrival, and those of `dropped` end there. A
  // `sign` of -1 takes back what was counted.
  template <typename Lanes>
  void stage(unsigned element, uint32_t came, uint64_t bytes, uint32_t dropped, const Lanes& lanes, uint64_t sign = 1) {
    arrive(element, sign * static_cast<uint64_t>(std::popcount(came)), sign * bytes);
    if (rules_ != nullptr) decide(element, came, lanes, sign);
    if (dropped != 0) drop_lanes(element, dropped, lanes, sign);
  }

  // The rules that decided packets of a list's element, where they are counted and recorded.
  template <typename Lanes>
  void decide(unsigned element, uint32_t came, const Lanes& lanes, uint64_t sign = 1) {
    if (rules_ == nullptr) return;
    if (const RuleHits::Adder hits = rules_->hits_of(element, worker_))
      for_lanes(came, [&](uint32_t i) { hits.add(lanes.rule(i), lanes.length(i), sign); });
    const LoggedRules* const logs = rules_->logs_of(element);
    if (logs == nullptr) return;
    for_lanes(came & lanes.near(logs->range()), [&](uint32_t i) {
      if (!logs->has(lanes.rule(i))) return;
      if constexpr (Lanes::kRecords) {
        logs->record(worker_, lanes.rule(i), [&](LoggedPacket& packet) { lanes.log(i, packet); });
      } else {
        logs->miss(worker_, lanes.rule(i));
      }
    });
  }
  // Of the packets of an element; none: they are not counted by rules.
  RuleHits::Adder hits_of(unsigned element) const {
    return rules_ != nullptr ? rules_->hits_of(element, worker_) : RuleHits::Adder{};
  }
  const LoggedRules* logs_of(unsigned element) const { return rules_ != nullptr ? rules_->logs_of(element) : nullptr; }
  bool keeps_fates() const { return fates_ != nullptr; }
  unsigned worker() const { return worker_; }

  WorkerStats stats;

 private:
  // Not in line: most calls of stage() drop nothing.
  template <typename Lanes>
  [[gnu::noinline]] void drop_lanes(unsigned element, uint32_t dropped, const Lanes& lanes, uint64_t sign) {
    if constexpr (requires { lanes.with(DropReason::kNone); }) {
      if (fates_ == nullptr) {
        for (uint32_t left = dropped; left != 0;) {
          const DropReason reason = lanes.reason(static_cast<uint32_t>(std::countr_zero(left)));
          const uint32_t same = left & lanes.with(reason);
          drop(element, reason_to_leave(reason), sign * static_cast<uint64_t>(std::popcount(same)));
          left &= ~same;
        }
        return;
      }
    }
    for_lanes(dropped, [&](uint32_t i) {
      const DropReason reason = reason_to_leave(lanes.reason(i));
      drop(element, reason, sign);
      if (fates_ != nullptr)
        end(lanes.row(i), {lanes.rule(i), lanes.next_hop(i), static_cast<uint16_t>(element), reason});
    });
  }
  // What lists the packet met is known already.
  void end(uint32_t row, PacketFate fate) {
    fate.list = fates_[row].list;
    fates_[row] = fate;
  }
  void add_dscp(std::span<const uint8_t> frame) { stats.dscp[dscp_of(frame)] += frame.size(); }

  unsigned worker_;
  const RuleAccounts* rules_ = nullptr;
  PacketFate* fates_ = nullptr;
};

}  // namespace sluice

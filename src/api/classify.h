// A burst of keys against one generation of an access list, with its counters: for whoever has keys in a form of their
// own. host only
#pragma once

#include <sluice/sluice.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "api/column_burst.h"
#include "api/table.h"
#include "exec/account/hits.h"
#include "net/flow_key.h"

namespace sluice::api {

// Counters of one thread at a time.
class Counting {
 public:
  Counting(CountingSeat* seats, const OpenedAcl& opened) {
    if (opened.hits == nullptr) return;
    // Threads begin at different seats, so that each finds its own free, as a rule.
    static std::atomic<unsigned> threads{0};
    thread_local const unsigned mine = threads.fetch_add(1, std::memory_order_relaxed);
    for (unsigned at = mine;; ++at) {
      auto& taken = seats[at % kCountingSeats].taken;
      if (taken.load(std::memory_order_relaxed) || taken.exchange(true, std::memory_order_acquire)) continue;
      seat_ = &taken;
      adder_ = opened.hits->of(at % kCountingSeats);
      return;
    }
  }
  ~Counting() {
    if (seat_ != nullptr) seat_->store(false, std::memory_order_release);
  }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;
  explicit operator bool() const { return seat_ != nullptr; }
  void add(uint32_t rule, uint32_t bytes) const { adder_.add(rule, bytes); }

 private:
  std::atomic<bool>* seat_ = nullptr;
  RuleHits::Adder adder_;
};

// Calls of(i) for the keys [0, n), at most 32, and writes the numbers of the first rules that match, which it counts.
template <typename Of>
inline void lookup_burst(const OpenedAcl& opened, const Counting& counting, Of&& of, size_t n, uint32_t* rules) {
  if (n == 0) return;
  std::array<const FlowKey*, kAclBurst> keys;
#pragma GCC unroll 8
  for (size_t i = 0; i < n; ++i) keys[i] = of(i);
  // Rules are about IP packets. Most lookups see on their way that all are.
  if (!opened.view.lookup_burst(keys.data(), rules, n)) [[unlikely]] {
    for (size_t i = 0; i < n; ++i) rules[i] = keys[i]->family == 4 || keys[i]->family == 6 ? rules[i] : 0;
  }
  if (counting) {
    for (size_t i = 0; i < n; ++i) counting.add(rules[i], keys[i]->reserved);
  }
}

// The same of keys that stand in columns.
inline void lookup_burst(const OpenedAcl& opened, const Counting& counting, ColumnBurst& keys, size_t n,
                         uint32_t* rules) {
  if (opened.view.takes_columns() && keys.pack()) {
    opened.view.lookup_columns(keys.columns(), rules, n);
    if (counting) {
      for (size_t i = 0; i < n; ++i) counting.add(rules[i], keys.bytes[i]);
    }
    return;
  }
  std::array<FlowKey, kAclBurst> some;
  for (size_t i = 0; i < n; ++i) keys.store(i, keys.family, &some[i]);
  lookup_burst(
      opened, counting, [&](size_t i) { return &some[i]; }, n, rules);
}

// The same, and their positions instead. `keys`: as either of lookup_burst's.
template <typename Keys>
inline void find_burst(const OpenedAcl& opened, const Counting& counting, Keys&& keys, size_t n, uint32_t* positions) {
  lookup_burst(opened, counting, keys, n, positions);
  if (opened.positions != nullptr) {
    for (size_t i = 0; i < n; ++i) positions[i] = opened.positions->position(positions[i]);
  }
}

// The same with what the rules do.
template <typename Keys>
inline void classify_burst(const OpenedAcl& opened, const Counting& counting, Keys&& keys, size_t n,
                           sluice_match* out) {
  std::array<uint32_t, kAclBurst> rules;
  lookup_burst(opened, counting, keys, n, rules.data());
  const AclActionsView actions = opened.actions;  // of which no store to `out` can be a part
  for (size_t i = 0; i < n; ++i) {
    const AclAction action = actions.action(rules[i]);
    out[i] = {rules[i], static_cast<uint32_t>(action.verb), action.mark};
  }
  if (opened.positions != nullptr) {
    for (size_t i = 0; i < n; ++i) out[i].rule = opened.positions->position(out[i].rule);
  }
}

}  // namespace sluice::api

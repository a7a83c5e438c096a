// A burst of keys against one generation of an access list, with its counters: for whoever has keys in a form of their
// own. host only
#pragma once

#include <sluice/sluice.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "api/table.h"
#include "exec/hits.h"
#include "net/flow_key.h"

namespace sluice::api {

// Counters of one thread at a time.
class Counting {
 public:
  Counting(const sluice_acl& acl, const OpenedAcl& opened) {
    if (opened.hits == nullptr) return;
    // Threads begin at different seats, so that each finds its own free, as a rule.
    static std::atomic<unsigned> threads{0};
    thread_local const unsigned mine = threads.fetch_add(1, std::memory_order_relaxed);
    for (unsigned at = mine;; ++at) {
      auto& taken = acl.seats[at % sluice_acl::kCounting].taken;
      if (taken.load(std::memory_order_relaxed) || taken.exchange(true, std::memory_order_acquire)) continue;
      seat_ = &taken;
      adder_ = opened.hits->of(at % sluice_acl::kCounting);
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

// Calls of(i) for the keys [0, n), at most 32, whose results go to `out`.
template <typename Of>
inline void classify_burst(const OpenedAcl& opened, const Counting& counting, Of&& of, size_t n, sluice_match* out) {
  std::array<const FlowKey*, kAclBurst> keys;
  std::array<uint32_t, kAclBurst> rules;
  for (size_t i = 0; i < n; ++i) keys[i] = of(i);
  opened.view.lookup_burst(keys.data(), rules.data(), n);
  for (size_t i = 0; i < n; ++i) {
    // Rules are about IP packets.
    const uint32_t rule = keys[i]->family == 4 || keys[i]->family == 6 ? rules[i] : 0;
    const AclAction action = opened.actions.action(rule);
    out[i] = {rule, static_cast<uint32_t>(action.verb), action.mark};
  }
  if (counting) {
    for (size_t i = 0; i < n; ++i) counting.add(out[i].rule, keys[i]->reserved);
  }
  if (opened.positions != nullptr) {
    for (size_t i = 0; i < n; ++i) out[i].rule = opened.positions->position(out[i].rule);
  }
}

}  // namespace sluice::api

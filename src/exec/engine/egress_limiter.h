// host only
// EgressLimiter: holds packets of one element to its rate, by their time stamps. Source: the generic cell rate
// algorithm (ITU-T I.371).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "exec/walk/worker.h"
#include "graph/element.h"

namespace sluice {

struct EgressLimiter {
  uint64_t interval_ns = 0;
  uint64_t tolerance_ns = 0;
  uint64_t theoretical_ns = 0;
  uint64_t latest_ns = 0;

  // `rate.per_second` is not 0.
  static EgressLimiter of(Element::EgressRate rate) {
    const uint64_t interval = std::max<uint64_t>(1, 1'000'000'000 / rate.per_second);
    EgressLimiter limiter;
    limiter.interval_ns = interval;
    limiter.tolerance_ns = interval * (std::max(1u, rate.burst) - 1);
    return limiter;
  }
  // A time stamp that goes back is the latest one.
  bool admit(uint64_t timestamp_ns) {
    latest_ns = std::max(latest_ns, timestamp_ns);
    const uint64_t arrival = std::max(theoretical_ns, latest_ns);
    if (arrival - latest_ns > tolerance_ns) return false;
    theoretical_ns = arrival + interval_ns;
    return true;
  }
};

// Asks `admit(record)` about every limited packet of a batch, in the order of packets whichever sinks they came to, and
// takes away those that are refused. `limited` is room to work in.
template <typename Admit>
void hold_to_rates(std::span<JobShare> shares, std::vector<TxRecord*>& limited, Admit&& admit) {
  limited.clear();
  for (JobShare& share : shares) {
    for (JobShare::Sent& sent : share.sent) {
      for (TxRecord& record : sent.made) {
        if (record.limiter != 0) limited.push_back(&record);
      }
    }
  }
  if (limited.empty()) return;
  std::sort(limited.begin(), limited.end(), [](const TxRecord* x, const TxRecord* y) {
    return std::tuple(x->order, x->sequence) < std::tuple(y->order, y->sequence);
  });
  bool refused = false;
  for (TxRecord* record : limited) {
    if (admit(*record)) continue;
    record->data = nullptr;
    refused = true;
  }
  if (!refused) return;
  for (JobShare& share : shares) {
    for (JobShare::Sent& sent : share.sent)
      std::erase_if(sent.made, [](const TxRecord& record) { return record.data == nullptr; });
  }
}

}  // namespace sluice

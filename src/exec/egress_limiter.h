// host only
// EgressLimiter: holds packets of one element to its rate, by their time stamps. Source: the generic cell rate
// algorithm (ITU-T I.371).
#pragma once

#include <algorithm>
#include <cstdint>

#include "graph/element.h"

namespace sluice {

struct EgressLimiter {
  uint64_t interval_ns = 0;
  uint64_t tolerance_ns = 0;
  uint64_t theoretical_ns = 0;

  // `rate.per_second` is not 0.
  static EgressLimiter of(Element::EgressRate rate) {
    const uint64_t interval = std::max<uint64_t>(1, 1'000'000'000 / rate.per_second);
    return {interval, interval * (std::max(1u, rate.burst) - 1)};
  }
  bool admit(uint64_t timestamp_ns) {
    const uint64_t arrival = std::max(theoretical_ns, timestamp_ns);
    if (arrival - timestamp_ns > tolerance_ns) return false;
    theoretical_ns = arrival + interval_ns;
    return true;
  }
};

}  // namespace sluice

// host only
// Many packets of one color-blind policer, one behind the other, that are all green: most are, where a policer is there
// for those who send too much. police() says each packet's color before the next one's; here both buckets are paid from
// as if they could not be empty, and one look at the most that they ever lacked says whether that was so.
//
// A bucket is what it lacks of its burst, so that what comes in is subtracted down to 0. What comes in does not depend
// on the bucket: a pause is cut to the time that fills both, so that its product fits 64 bits (two bursts are less than
// 2^64 units, by more than a nanosecond of any rate).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.h"
#include "qos/policer.h"

namespace sluice {

class PolicerRun {
 public:
  PolicerRun() = default;
  explicit PolicerRun(const PolicerConfig& config)
      : two_rates_(config.two_rates != 0),
        committed_rate_(config.committed_bps),
        peak_rate_(config.peak_bps),
        committed_burst_(config.committed_burst_bytes * PolicerConfig::kUnitsPerByte),
        excess_burst_(config.excess_burst_bytes * PolicerConfig::kUnitsPerByte) {
    const uint64_t both = committed_burst_ + excess_burst_;
    committed_fills_ns_ = committed_rate_ == 0 ? 0 : both / committed_rate_ + 1;
    peak_fills_ns_ = peak_rate_ == 0 ? 0 : both / peak_rate_ + 1;
  }

  // Of `count` packets, 64 at most, of `bytes[i]` of the IP packet that come at `now_ns[i]`: whether all are green,
  // which are paid for then. Times do not go down, and none is before state.last_ns. False: not all are, or one is
  // longer than any frame, and nothing was paid.
  bool all_green(PolicerState& state, const uint64_t* now_ns, const uint32_t* bytes, uint32_t count) const {
    return two_rates_ ? run<true>(state, now_ns, bytes, count) : run<false>(state, now_ns, bytes, count);
  }

 private:
  // What both buckets lack, and the most that they lacked behind a packet.
  struct Lacks {
    uint64_t committed, excess, most_committed = 0, most_excess = 0;
  };
  // `kLong`: pauses may be longer than those that fill both buckets. `kExcess`: something comes to the second bucket,
  // or is taken from it.
  template <bool kTwoRates, bool kLong, bool kExcess>
  void walk(Lacks& lacks, uint64_t last, const uint64_t* now_ns, const uint32_t* bytes, uint32_t count) const {
    uint64_t committed = lacks.committed, excess = lacks.excess, most_committed = 0, most_excess = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t elapsed = now_ns[i] - last;
      last = now_ns[i];
      const uint64_t gained = (kLong ? std::min(elapsed, committed_fills_ns_) : elapsed) * committed_rate_;
      const uint64_t cost = bytes[i] * PolicerConfig::kUnitsPerByte;
      if constexpr (kExcess) {
        // One rate: what the first bucket has no room for goes to the second (RFC 2697 section 3).
        excess = left_of(excess, kTwoRates ? (kLong ? std::min(elapsed, peak_fills_ns_) : elapsed) * peak_rate_
                                           : left_of(gained, committed));
        if (kTwoRates) excess += cost;
        most_excess = std::max(most_excess, excess);
      }
      committed = left_of(committed, gained) + cost;
      most_committed = std::max(most_committed, committed);
    }
    lacks = {committed, excess, most_committed, most_excess};
  }
  template <bool kTwoRates>
  bool run(PolicerState& state, const uint64_t* now_ns, const uint32_t* bytes, uint32_t count) const {
    if (count == 0) return true;
    SLUICE_CHECK(count <= 64 && now_ns[0] >= state.last_ns);
    uint32_t longest = 0;
    for (uint32_t i = 0; i < count; ++i) longest |= bytes[i];
    // 64 packets of less fit 64 bits above the largest burst.
    if (longest >= 1u << 20) return false;
    Lacks lacks{committed_burst_ - state.committed, excess_burst_ - state.excess};
    const uint64_t elapsed = now_ns[count - 1] - state.last_ns;
    if (elapsed > committed_fills_ns_ || (kTwoRates && elapsed > peak_fills_ns_)) {
      walk<kTwoRates, true, true>(lacks, state.last_ns, now_ns, bytes, count);
    } else if (kTwoRates || lacks.excess != 0) {
      walk<kTwoRates, false, true>(lacks, state.last_ns, now_ns, bytes, count);
    } else {
      walk<kTwoRates, false, false>(lacks, state.last_ns, now_ns, bytes, count);
    }
    if (lacks.most_committed > committed_burst_ || lacks.most_excess > excess_burst_) return false;
    state = {committed_burst_ - lacks.committed, excess_burst_ - lacks.excess, now_ns[count - 1]};
    return true;
  }
  // a - b, 0 where it is less: without a branch, as nobody guesses when a bucket is full.
  static uint64_t left_of(uint64_t a, uint64_t b) {
    uint64_t less = a < b ? 1 : 0;
    asm("" : "+r"(less));
    return (a - b) & (less - 1);
  }

  bool two_rates_ = false;
  uint64_t committed_rate_ = 0, peak_rate_ = 0;
  uint64_t committed_burst_ = 0, excess_burst_ = 0;      // in units
  uint64_t committed_fills_ns_ = 0, peak_fills_ns_ = 0;  // until both buckets are full
};

}  // namespace sluice

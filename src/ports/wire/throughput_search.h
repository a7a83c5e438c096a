// host only
// RFC 2544 section 26.1: the highest rate at which a device loses nothing (or no more than it may), by trials.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace sluice {

// A binary search over the rate, from the highest. What a generator gave counts and not what it was asked for: a rate
// that it did not give bounds the search as one that did not pass does.
class ThroughputSearch {
 public:
  // `highest`: 0 is as fast as the generator goes. Ends where what is left to search is `resolution_percent` of the
  // first trial's rate, or one packet a second.
  ThroughputSearch(uint64_t highest_pps, double resolution_percent)
      : high_(highest_pps), resolution_percent_(resolution_percent) {}

  // The rate of the next trial, 0: as fast as the generator goes. Nothing: the search is over.
  std::optional<uint64_t> next() const {
    if (trials_ == 0) return high_;
    const uint64_t left = high_ - low_;
    if (left <= 1 || static_cast<double>(left) <= resolution_percent_ / 100 * static_cast<double>(top_))
      return std::nullopt;
    return low_ + left / 2;
  }

  // What came of the trial that `next` asked for.
  void add(uint64_t offered_pps, bool passed) {
    const uint64_t asked = next().value_or(0);
    const bool first = trials_++ == 0;
    if (passed && offered_pps >= best_) {
      best_ = offered_pps;
      ceiling_ = first || is_short(asked, offered_pps);
    }
    if (first) {
      top_ = high_ = offered_pps;
      if (passed) low_ = high_;
      return;
    }
    const bool gave_it = !is_short(asked, offered_pps);
    if (passed) low_ = gave_it ? asked : std::max(low_, std::min(offered_pps, asked));
    if (!passed || !gave_it) high_ = asked;
  }

  // The highest rate that was offered and passed; 0: none did.
  uint64_t throughput_pps() const { return best_; }
  // The generator went no faster, or was asked for no more: the device may.
  bool limited_by_generator() const { return ceiling_; }

  // Whether a generator gave less than it was asked for: by more than 1 %.
  static bool is_short(uint64_t asked_pps, uint64_t offered_pps) {
    return asked_pps != 0 && static_cast<double>(offered_pps) < 0.99 * static_cast<double>(asked_pps);
  }

 private:
  uint64_t high_, low_ = 0, top_ = 0, best_ = 0;
  double resolution_percent_;
  unsigned trials_ = 0;
  bool ceiling_ = false;
};

}  // namespace sluice

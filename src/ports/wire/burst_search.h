// host only
// The longest burst that passes (RFC 9004): by bisection of its length.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace sluice {

// The first burst is as long as the caller makes it; next() asks for the others. Ends where what is left to search is
// `resolution_percent` of the longest that passed, or one frame.
class BurstSearch {
 public:
  // first_frames: of the first burst, which `passed` or not.
  BurstSearch(uint64_t first_frames, bool passed, double resolution_percent)
      : low_(passed ? first_frames : 0),
        high_(first_frames),
        resolution_percent_(resolution_percent),
        limited_(passed) {}

  // The length of the next burst, above 0. Nothing: the search is over.
  std::optional<uint64_t> next() const {
    const uint64_t left = high_ - low_;
    if (left <= 1 || static_cast<double>(left) <= resolution_percent_ / 100 * static_cast<double>(low_))
      return std::nullopt;
    return low_ + left / 2;
  }
  // What came of the burst that next() asked for. A generator that is stopped short has sent no such burst: not passed.
  void add(bool passed) {
    if (const auto asked = next()) (passed ? low_ : high_) = *asked;
  }

  uint64_t longest() const { return low_; }
  // To how many frames exactly that is known.
  uint64_t step() const { return high_ - low_; }
  // The first one passed: the longest may be longer.
  bool limited_by_generator() const { return limited_; }

 private:
  uint64_t low_, high_;
  double resolution_percent_;
  bool limited_;
};

}  // namespace sluice

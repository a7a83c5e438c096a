// host only
// BatchSizer: how many packets a batch takes, so that batches meet a latency target.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice {

// Additive increase, multiplicative decrease (Chiu and Jain, "Analysis of the increase and decrease algorithms for
// congestion avoidance", 1989): a batch over the target takes a quarter off the limit; a full batch below three
// quarters of the target adds kStep. Between the two nothing changes. Deterministic; belongs to one thread.
//
// Batches that were read before the last change say nothing about the limit as it is now: they carry the `round` of
// their reading, and only those of the present round count. So several batches that are on their way together, and are
// late together, take one quarter off and not one each.
class BatchSizer {
 public:
  static constexpr uint32_t kSmallest = 32;
  static constexpr uint32_t kStep = 32;

  // Limits lie in [min(smallest, largest), largest]. `target_ns` 0: the limit is `largest` for ever.
  BatchSizer(uint64_t target_ns, uint32_t largest, uint32_t smallest = kSmallest)
      : target_ns_(target_ns), smallest_(std::min(smallest, largest)), largest_(largest), limit_(largest) {}

  uint32_t limit() const { return limit_; }
  uint64_t round() const { return raised_ + lowered_; }
  uint64_t raised() const { return raised_; }
  uint64_t lowered() const { return lowered_; }

  // A batch of `packets`, read in `round`, took `ns` from its reading to its end.
  void took(uint64_t ns, uint32_t packets, uint64_t round) {
    if (target_ns_ == 0 || round != this->round()) return;
    if (ns > target_ns_) {
      if (limit_ == smallest_) return;
      limit_ = std::max(smallest_, limit_ - (limit_ + 3) / 4);
      ++lowered_;
    } else if (ns < target_ns_ - target_ns_ / 4 && packets >= limit_ && limit_ < largest_) {
      limit_ = std::min(largest_, limit_ + kStep);
      ++raised_;
    }
  }

 private:
  uint64_t target_ns_;
  uint32_t smallest_;
  uint32_t largest_;
  uint32_t limit_;
  uint64_t raised_ = 0;
  uint64_t lowered_ = 0;
};

}  // namespace sluice

// Latency histogram with a bounded relative error (the layout that HdrHistogram made known).
// host only
//
// Values below 64 have a counter each. Above, every octave [2^k, 2^(k+1)) is cut into 64 equal buckets:
//
//   value  0 1 2 ... 63 | 64 65 ... 127 | 128,129  130,131 ... | 256..259 ...      bucket width 1, 1, 2, 4, 8 ...
//   index  0 1 2 ... 63 | 64 65 ... 127 | 128      129     ... | 192      ...
//
// A bucket is never wider than 1/64 of its lowest value, so percentile() is never below the true sample and above it by
// less than 1/64 (1.6 %). Any u64 fits: nothing is clamped, nothing saturates. 30 KiB, which are not on the stack of
// whoever has one: reports have several. Only making and copying one allocates.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace sluice {

// One thread records; any thread may read or merge from it at the same time and sees each counter at some recent value
// (relaxed atomics: plain loads and stores on x86). Copying takes such a snapshot.
class Histogram {
 public:
  static constexpr unsigned kSubBits = 6;
  static constexpr uint64_t kSubBuckets = uint64_t{1} << kSubBits;
  static constexpr size_t kBuckets = (64 - kSubBits + 1) * kSubBuckets;
  // percentile(p) <= true sample * (1 + kRelativeError).
  static constexpr double kRelativeError = 1.0 / kSubBuckets;

  Histogram() = default;
  Histogram(const Histogram& other) { merge(other); }
  Histogram& operator=(const Histogram& other) {
    if (this != &other) {
      clear();
      merge(other);
    }
    return *this;
  }

  // Adds `count` samples of `value` (any unit; nanoseconds by custom). Writer's thread only.
  void record(uint64_t value, uint64_t count = 1) {
    if (count == 0) return;
    add((*buckets_)[index_of(value)], count);
    if (value < load(min_)) store(min_, value);
    if (value > load(max_)) store(max_, value);
  }

  // Adds every sample of `other`. Writer's thread only.
  void merge(const Histogram& other) {
    for (size_t i = 0; i < kBuckets; ++i) {
      if (const uint64_t n = load((*other.buckets_)[i])) add((*buckets_)[i], n);
    }
    const uint64_t low = load(other.min_);
    const uint64_t high = load(other.max_);
    if (low < load(min_)) store(min_, low);
    if (high > load(max_)) store(max_, high);
  }

  // Takes away the samples of `earlier`, a copy of this from before. The least and the greatest value that are left are
  // those of their buckets. Writer's thread only.
  void subtract(const Histogram& earlier) {
    uint64_t low = ~uint64_t{0}, high = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      const uint64_t all = load((*buckets_)[i]), gone = load((*earlier.buckets_)[i]);
      const uint64_t left = all > gone ? all - gone : 0;
      if (gone != 0) store((*buckets_)[i], left);
      if (left == 0) continue;
      if (low == ~uint64_t{0}) low = lowest(i);
      high = lowest(i) + (width(i) - 1);
    }
    // Of no samples both are what they are at first.
    if (low == ~uint64_t{0} || low > load(min_)) store(min_, low);
    if (high < load(max_)) store(max_, high);
  }

  // Writer's thread only.
  void clear() {
    for (auto& bucket : *buckets_) store(bucket, 0);
    store(min_, ~uint64_t{0});
    store(max_, 0);
  }

  uint64_t count() const {
    uint64_t total = 0;
    for (const auto& bucket : *buckets_) total += load(bucket);
    return total;
  }
  bool empty() const { return count() == 0; }
  // Samples of at most `highest`, the highest value of a bucket: 2^k - 1, or one of 63 even steps on the way to it.
  uint64_t count_up_to(uint64_t highest) const {
    uint64_t total = 0;
    for (size_t i = 0; i <= index_of(highest); ++i) total += load((*buckets_)[i]);
    return total;
  }
  // Exact. 0 when empty.
  uint64_t min() const { return empty() ? 0 : load(min_); }
  uint64_t max() const { return empty() ? 0 : load(max_); }

  // From the middles of the buckets: off by less than kRelativeError / 2. 0 when empty.
  double mean() const {
    double sum = 0;
    uint64_t total = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      const uint64_t n = load((*buckets_)[i]);
      if (n == 0) continue;
      sum += static_cast<double>(n) * (static_cast<double>(lowest(i)) + static_cast<double>(width(i) - 1) / 2);
      total += n;
    }
    return total == 0 ? 0 : sum / static_cast<double>(total);
  }

  // The sample of rank ceil(percent / 100 * n) of the n samples in ascending order (rank 1 for 0 and below, rank n for
  // 100 and above), rounded up to its bucket's highest value but never above max(). 0 when empty.
  uint64_t percentile(double percent) const {
    const uint64_t total = count();
    if (total == 0) return 0;
    uint64_t rank = 1;
    if (percent >= 100) {
      rank = total;
    } else if (percent > 0) {
      // percent * n / 100 and not percent / 100 * n: 99.9 / 100 is already rounded and would push rank 999.0 to 1000.
      const double exact = std::ceil(percent * static_cast<double>(total) / 100);
      rank = exact >= static_cast<double>(total) ? total : exact < 1 ? 1 : static_cast<uint64_t>(exact);
    }
    const uint64_t high = load(max_);
    uint64_t seen = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      seen += load((*buckets_)[i]);
      if (seen >= rank) {
        const uint64_t edge = lowest(i) + (width(i) - 1);
        return edge < high ? edge : high;
      }
    }
    return high;
  }

  // The bucket of a value, and the lowest value and the width of a bucket.
  static constexpr size_t index_of(uint64_t value) {
    if (value < kSubBuckets) return static_cast<size_t>(value);
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - 1 - kSubBits;
    // (value >> shift) is in [64, 128): its octave starts at index (shift + 1) * 64.
    return static_cast<size_t>(shift * kSubBuckets + (value >> shift));
  }
  static constexpr uint64_t lowest(size_t index) {
    if (index < kSubBuckets) return index;
    const unsigned shift = static_cast<unsigned>(index / kSubBuckets - 1);
    return (kSubBuckets + index % kSubBuckets) << shift;
  }
  static constexpr uint64_t width(size_t index) {
    return index < kSubBuckets ? 1 : uint64_t{1} << (index / kSubBuckets - 1);
  }

 private:
  using Counter = std::atomic<uint64_t>;
  static uint64_t load(const Counter& counter) { return counter.load(std::memory_order_relaxed); }
  static void store(Counter& counter, uint64_t v) { counter.store(v, std::memory_order_relaxed); }
  // One writer, so a load and a store do; fetch_add would lock the bus for nothing.
  static void add(Counter& counter, uint64_t n) { store(counter, load(counter) + n); }

  using Buckets = std::array<Counter, kBuckets>;
  const std::unique_ptr<Buckets> buckets_ = std::make_unique<Buckets>();
  Counter min_{~uint64_t{0}};
  Counter max_{0};
};

}  // namespace sluice

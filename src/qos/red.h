// host only
// Random early detection of one queue, in integers.
//
// Source: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance" (IEEE/ACM ToN 1993), figures 2
// and 17. The average is a weighted mean of the queue's length at arrivals, w = 2^-weight_bits; an idle time counts as
// so many arrivals at an empty queue as packets could have been sent in it.
// Deviation: numbers are fixed point with 32 bits behind the point, and a drop compares R * (1 - count * pb) with pb in
// place of R with pb / (1 - count * pb), which is the same without a division.
#pragma once

#include <cstdint>

#include "base/assert.h"

namespace sluice {

struct RedConfig {
  uint32_t min_pkts = 0;  // below: nothing is dropped
  uint32_t max_pkts = 0;  // from here on everything is; 0: no RED
  uint32_t weight_bits = 9;
  uint32_t max_probability_ppm = 20'000;  // at max_pkts, in millionths
  uint64_t idle_packet_ns = 10'000;       // how long a typical packet takes to send; QosModel::egress sets it by rate

  bool enabled() const { return max_pkts != 0; }
  bool operator==(const RedConfig&) const = default;
};

class Red {
 public:
  // Drops depend on the configuration, the seed and what was asked alone.
  explicit Red(const RedConfig& config = {}, uint64_t seed = 1) : config_(config), random_(seed) {
    SLUICE_CHECK(!config.enabled() || config.min_pkts < config.max_pkts);
  }

  // Whether a packet is to be dropped that finds `length` packets in the queue.
  bool drops(uint64_t now_ns, uint32_t length) {
    if (!config_.enabled()) return false;
    if (length == 0 && idle_) decay(now_ns);
    idle_ = false;
    const uint64_t sample = static_cast<uint64_t>(length) << kPoint;
    // Without signs; both directions round towards the old average.
    if (sample >= average_) {
      average_ += (sample - average_) >> config_.weight_bits;
    } else {
      average_ -= (average_ - sample) >> config_.weight_bits;
    }
    const uint64_t low = static_cast<uint64_t>(config_.min_pkts) << kPoint;
    const uint64_t high = static_cast<uint64_t>(config_.max_pkts) << kPoint;
    if (average_ < low) {
      count_ = -1;
      return false;
    }
    if (average_ >= high) {
      count_ = 0;
      return true;
    }
    ++count_;
    // pb = max_p (average - min) / (max - min), 32 bits behind the point.
    const auto pb = static_cast<uint64_t>(static_cast<unsigned __int128>(average_ - low) * config_.max_probability_ppm /
                                          (static_cast<uint64_t>(config_.max_pkts - config_.min_pkts) * 1'000'000));
    const unsigned __int128 taken = static_cast<unsigned __int128>(pb) * static_cast<uint64_t>(count_);
    const uint64_t one = uint64_t{1} << kPoint;
    last_random_ = next_random();
    // R (1 - count pb) < pb; where count * pb >= 1 always.
    const bool drop =
        taken >= one || static_cast<unsigned __int128>(last_random_) * (one - static_cast<uint64_t>(taken)) <
                            static_cast<unsigned __int128>(pb) << kPoint;
    if (drop) count_ = 0;
    return drop;
  }
  // The queue has become empty.
  void emptied(uint64_t now_ns) {
    idle_ = true;
    idle_since_ns_ = now_ns;
  }

  // Packets, 32 bits behind the point.
  uint64_t average() const { return average_; }
  // What the last drop was decided by, of 2^32; for tests.
  uint32_t last_random() const { return last_random_; }

 private:
  static constexpr unsigned kPoint = 32;

  // average *= (1 - w)^m for the m packets that could have been sent while nothing was there; by squaring.
  void decay(uint64_t now_ns) {
    if (now_ns <= idle_since_ns_ || config_.idle_packet_ns == 0) return;
    uint64_t m = (now_ns - idle_since_ns_) / config_.idle_packet_ns;
    uint64_t factor = (uint64_t{1} << kPoint) - ((uint64_t{1} << kPoint) >> config_.weight_bits);
    while (m != 0 && average_ != 0) {
      if ((m & 1) != 0) average_ = static_cast<uint64_t>(static_cast<unsigned __int128>(average_) * factor >> kPoint);
      factor = static_cast<uint64_t>(static_cast<unsigned __int128>(factor) * factor >> kPoint);
      m >>= 1;
    }
  }
  // SplitMix64 (Steele, Lea and Flood 2014).
  uint32_t next_random() {
    uint64_t z = random_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return static_cast<uint32_t>((z ^ z >> 31) >> 32);
  }

  RedConfig config_;
  uint64_t average_ = 0;
  uint64_t idle_since_ns_ = 0;
  uint64_t random_;
  int64_t count_ = -1;
  uint32_t last_random_ = 0;
  bool idle_ = true;
};

}  // namespace sluice

// host only
// Blocks of packets of one color-blind policer that are all green, which most are where a policer is there for those
// who send too much. What a block does to a bucket is known without the bucket: whoever has the packets finds it,
// beside others, and the policer's one owner takes a block by a few comparisons.
//
// Let a bucket lack l of its burst when the first packet comes, and packet i cost c_i and find what came in since the
// one before, g_i. Behind it l_i = max(l_{i-1} - g_i, 0) + c_i is lacking, as long as the bucket pays for all. With
//   a_i = c_1 + ... + c_i - (g_2 + ... + g_i)     what it lacks of them, had it never been full
//   b_k = a_{k-1} - g_k,  b_1 = 0
// l_i is the largest of l + a_i and, of all k <= i, a_i - b_k: the bucket was full when packet k came. So of a block
// the largest a_i, the largest a_i - b_k and both of its last packet are enough (the max-plus convolution of Le Boudec
// and Thiran, Network Calculus, 2001, section 1.2).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.h"
#include "qos/policer.h"

namespace sluice {

class PolicerRun {
 public:
  // What a block does to a bucket; in units.
  struct Bucket {
    int64_t most = 0,
            most_from_full = 0;          // that it lacks behind a packet, beside what it lacked before; from a full one
    int64_t end = 0, end_from_full = 0;  // the same behind the last
  };
  struct Block {
    bool known = false;  // else packets have to be asked for one by one
    uint64_t first_ns = 0, last_ns = 0;
    int64_t cost = 0;
    Bucket committed, peak;  // two rates: the second
  };

  PolicerRun() = default;
  explicit PolicerRun(const PolicerConfig& config)
      : two_rates_(config.two_rates != 0),
        committed_rate_(config.committed_bps),
        peak_rate_(config.peak_bps),
        committed_burst_(config.committed_burst_bytes * PolicerConfig::kUnitsPerByte),
        excess_burst_(config.excess_burst_bytes * PolicerConfig::kUnitsPerByte) {
    // Two bursts are less than 2^64 units, by more than a nanosecond of any rate.
    const uint64_t both = committed_burst_ + excess_burst_;
    committed_fills_ns_ = committed_rate_ == 0 ? 0 : both / committed_rate_ + 1;
    peak_fills_ns_ = peak_rate_ == 0 ? 0 : both / peak_rate_ + 1;
    longest_ns_ = (uint64_t{1} << 62) / std::max({committed_rate_, two_rates_ ? peak_rate_ : 0, uint64_t{1}});
  }

  // `count` packets, 1 to 64, of `bytes[i]` of the IP packet that come at `now_ns[i]`, which do not go down.
  // Thread-safe.
  Block block(const uint64_t* now_ns, const uint32_t* bytes, uint32_t count) const {
    SLUICE_CHECK(count >= 1 && count <= 64);
    Block block{false, now_ns[0], now_ns[count - 1], 0, {}, {}};
    uint32_t longest = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; ++i) {
      longest |= bytes[i];
      sum += bytes[i];
    }
    // 64 packets of 2^20 bytes are less than 2^60 units.
    if (longest >= 1u << 20 || block.last_ns - block.first_ns > longest_ns_) return block;
    block.known = true;
    block.cost = static_cast<int64_t>(sum * PolicerConfig::kUnitsPerByte);
    block.committed = bucket(committed_rate_, now_ns, bytes, count);
    if (two_rates_) block.peak = bucket(peak_rate_, now_ns, bytes, count);
    return block;
  }
  // Whether all of the block are green, which are paid for then. Its first packet does not come before state.last_ns.
  // False: not all are, or nobody knows, and nothing was paid.
  bool all_green(PolicerState& state, const Block& block) const {
    if (!block.known) return false;
    SLUICE_CHECK(block.first_ns >= state.last_ns);
    const uint64_t elapsed = block.first_ns - state.last_ns;
    const uint64_t committed = committed_burst_ - state.committed, excess = excess_burst_ - state.excess;
    const uint64_t gained = std::min(elapsed, committed_fills_ns_) * committed_rate_;
    const auto lacks = static_cast<int64_t>(left_of(committed, gained));
    if (most(lacks, block.committed) > static_cast<int64_t>(committed_burst_)) return false;
    const int64_t end = std::max(lacks + block.committed.end, block.committed.end_from_full);
    uint64_t excess_end = 0;
    if (two_rates_) {
      const auto second = static_cast<int64_t>(left_of(excess, std::min(elapsed, peak_fills_ns_) * peak_rate_));
      if (most(second, block.peak) > static_cast<int64_t>(excess_burst_)) return false;
      excess_end = static_cast<uint64_t>(std::max(second + block.peak.end, block.peak.end_from_full));
    } else {
      // What the first bucket has no room for goes to the second (RFC 2697 section 3): before the block, and in it all
      // that came in but did not make up for what the first one lacked and paid.
      const uint64_t came = (block.last_ns - block.first_ns) * committed_rate_;
      const auto taken = static_cast<uint64_t>(lacks + block.cost - end);
      excess_end = left_of(left_of(excess, left_of(gained, committed)), came - taken);
    }
    state = {committed_burst_ - static_cast<uint64_t>(end), excess_burst_ - excess_end, block.last_ns};
    return true;
  }

 private:
  static Bucket bucket(uint64_t rate, const uint64_t* now_ns, const uint32_t* bytes, uint32_t count) {
    int64_t a = 0, least_b = 0;
    Bucket bucket{INT64_MIN, INT64_MIN, 0, 0};
    uint64_t last = now_ns[0];
    for (uint32_t i = 0; i < count; ++i) {
      const int64_t b = a - static_cast<int64_t>((now_ns[i] - last) * rate);
      last = now_ns[i];
      least_b = std::min(least_b, b);
      a = b + static_cast<int64_t>(bytes[i] * PolicerConfig::kUnitsPerByte);
      bucket.most = std::max(bucket.most, a);
      bucket.most_from_full = std::max(bucket.most_from_full, a - least_b);
    }
    bucket.end = a;
    bucket.end_from_full = a - least_b;
    return bucket;
  }
  static int64_t most(int64_t lacks, const Bucket& bucket) {
    return std::max(lacks + bucket.most, bucket.most_from_full);
  }
  static uint64_t left_of(uint64_t a, uint64_t b) { return a < b ? 0 : a - b; }

  bool two_rates_ = false;
  uint64_t committed_rate_ = 0, peak_rate_ = 0;
  uint64_t committed_burst_ = 0, excess_burst_ = 0;      // in units
  uint64_t committed_fills_ns_ = 0, peak_fills_ns_ = 0;  // until both buckets are full
  uint64_t longest_ns_ = 0;                              // of a block
};

}  // namespace sluice

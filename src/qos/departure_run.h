// host only
// Blocks of packets that a schedule need not delay. As with policers (policer_run.h), what a block does to the word is
// known without the word, by whoever has the packets; the schedule's one owner takes it by a few comparisons.
//
// Let packet i bring b_i units when the rate had sent n_i by its time, and let the word be w in front of packet 1. In
// front of packet i it is the largest of max(w, n_1) + b_1 + ... + b_{i-1} and, of all k < i, n_k + b_k + ... +
// b_{i-1}. Packet i need not wait while that is less than n_i and a burst: n_i is rounded up, and what is below has
// been sent. (Whether the unit between was, departure() says by the time.) All of it counts from n_1 here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/assert.h"
#include "qos/departure.h"

namespace sluice {

struct DepartureBlock {
  bool known = false;  // else packets have to be asked for one by one
  uint64_t first_ns = 0, last_ns = 0;
  uint64_t first_units = 0;                           // n_1
  int64_t most = INT64_MIN, most_of_own = INT64_MIN;  // of the word in front of a packet, less what was sent by then
  int64_t end = 0, end_of_own = 0;                    // of the word behind the last

  // `count` packets, 1 to 64, of `bytes[i]` that come at `now_ns[i]`, which do not go down. The rate is not unlimited.
  static DepartureBlock of(const DepartureRate& rate, const uint64_t* now_ns, const uint32_t* bytes, uint32_t count) {
    SLUICE_CHECK(count >= 1 && count <= 64);
    DepartureBlock block{.first_ns = now_ns[0], .last_ns = now_ns[count - 1], .first_units = rate.units_at(now_ns[0])};
    uint32_t longest = 0;
    for (uint32_t i = 0; i < count; ++i) longest |= bytes[i];
    // 64 packets of 2^20 bytes are less than 2^54 units of a 2^27th of a byte.
    if (longest >= 1u << 20 || rate.units_at(block.last_ns) - block.first_units >= uint64_t{1} << 62) return block;
    block.known = true;
    int64_t brought = 0, best = 0;  // b_1 + ... + b_{i-1}; the largest n_k - (b_1 + ... + b_{k-1})
    int64_t sent = 0;
    for (uint32_t i = 0; i < count; ++i) {
      if (i != 0) {
        if (now_ns[i] != now_ns[i - 1]) sent = static_cast<int64_t>(rate.units_at(now_ns[i]) - block.first_units);
        block.most = std::max(block.most, brought - sent);
        block.most_of_own = std::max(block.most_of_own, best + brought - sent);
        best = std::max(best, sent - brought);
      }
      brought += static_cast<int64_t>(uint64_t{bytes[i]} << rate.unit_bits);
    }
    block.end = brought;
    block.end_of_own = best + brought;
    return block;
  }
};

// Whether all packets of a block may go when they come, and find this word in front of the first; if so, they are
// charged. False: not all may, or nobody knows, and nothing was done.
inline bool nobody_waits(const DepartureRate& rate, uint64_t& word, const DepartureBlock& block) {
  if (!block.known) return false;
  if (word > rate.burst_units && word - rate.burst_units >= block.first_units) return false;
  const uint64_t ahead = word > block.first_units ? word - block.first_units : 0;
  const auto burst = static_cast<int64_t>(rate.burst_units);
  if (ahead >= uint64_t{1} << 62) return false;
  const auto before = static_cast<int64_t>(ahead);
  if (std::max(before + block.most, block.most_of_own) >= burst) return false;
  word = block.first_units + static_cast<uint64_t>(std::max(before + block.end, block.end_of_own));
  return true;
}

}  // namespace sluice

// Randomness that is the same on every machine: integer arithmetic only, no std:: distribution, no libm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "net/flow_key.h"

namespace sluice {

// xoshiro256** of Blackman and Vigna ("Scrambled linear pseudorandom number generators", ACM TOMS 47:4, 2021), seeded
// with SplitMix64 as they recommend. Period 2^256 - 1. Not for secrets.
class Random {
 public:
  // `stream` gives independent sequences for one user seed, so that one part of a generator never shifts another.
  explicit Random(uint64_t seed, uint64_t stream = 0) {
    uint64_t x = seed ^ mix64(stream * 0xd1342543de82ef95ull + 1);
    for (uint64_t& word : state_) word = mix64(x += 0x9e3779b97f4a7c15ull);
  }

  uint64_t next() {
    const uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound), bound > 0. Multiply-shift of Lemire (ACM TOMACS 29:1, 2019) without its rejection step: the
  // bias is below bound / 2^64, far under what any sample of ours can show.
  uint64_t below(uint64_t bound) { return static_cast<uint64_t>(static_cast<unsigned __int128>(next()) * bound >> 64); }
  // Uniform in [low, high], both included; the span must be below 2^64 - 1.
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  // True with probability threshold / 2^32; chance_threshold makes one.
  bool chance(uint64_t threshold) { return (next() >> 32) < threshold; }

 private:
  static uint64_t rotate(uint64_t x, int k) { return x << k | x >> (64 - k); }
  uint64_t state_[4];
};

// A probability as a threshold for Random::chance. Scaling by a power of two is exact, so this is the same everywhere.
constexpr uint64_t chance_threshold(double probability) {
  if (!(probability > 0)) return 0;
  if (probability >= 1) return uint64_t{1} << 32;
  return static_cast<uint64_t>(probability * 4294967296.0);
}

// Draws index i with probability weight[i] / sum, in constant time: Walker's alias method with Vose's construction
// (IEEE TSE 17:9, 1991), in integers. 12 bytes an entry.
class AliasTable {
 public:
  AliasTable() = default;
  // At most 2^32 - 1 weights; their sum must be positive and below 2^64. Zero weights are never drawn.
  explicit AliasTable(std::span<const uint64_t> weights);

  uint32_t draw(Random& random) const {
    const uint64_t slot = random.below(threshold_.size());
    return random.next() < threshold_[slot] ? static_cast<uint32_t>(slot) : alias_[slot];
  }
  size_t size() const { return threshold_.size(); }

 private:
  std::vector<uint64_t> threshold_;
  std::vector<uint32_t> alias_;
};

// Zipf's law: weight of rank k (from 1) is k^-exponent. Weights are scaled so that their sum stays below 2^63 for up to
// 2^24 ranks; the smallest is at least 1. exponent in [0, 8], taken to the nearest 1/65536. The powers are computed in
// fixed point.
std::vector<uint64_t> zipf_weights(uint64_t count, double exponent);

// log2(x) in units of 2^-32, x >= 1, rounded down, and 2^-y in units of 2^-63 for y in units of 2^-32; exposed for
// tests.
uint64_t fixed_log2(uint64_t x);
uint64_t fixed_exp2_negative(uint64_t y);

}  // namespace sluice

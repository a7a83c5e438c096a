// A subset of a batch's packets, in index order.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace sluice {

// A bitmap over 4096 indices: merging two streams of one batch is an OR, and the order of packets is never lost.
class Selection {
 public:
  static constexpr uint32_t kWords = 64;

  void clear() { std::memset(words_, 0, sizeof words_); }
  void add(uint32_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  void remove(uint32_t i) { words_[i / 64] &= ~(uint64_t{1} << (i % 64)); }
  bool has(uint32_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }
  // The first `n` packets.
  void fill(uint32_t n) {
    clear();
    for (uint32_t w = 0; w < n / 64; ++w) words_[w] = ~uint64_t{0};
    if (n % 64 != 0) words_[n / 64] = (uint64_t{1} << (n % 64)) - 1;
  }
  void merge(const Selection& other) {
    for (uint32_t w = 0; w < kWords; ++w) words_[w] |= other.words_[w];
  }
  bool empty() const {
    uint64_t any = 0;
    for (uint64_t w : words_) any |= w;
    return any == 0;
  }
  uint32_t count() const {
    uint32_t n = 0;
    for (uint64_t w : words_) n += static_cast<uint32_t>(std::popcount(w));
    return n;
  }
  uint64_t word(uint32_t w) const { return words_[w]; }
  void set_word(uint32_t w, uint64_t bits) { words_[w] = bits; }
  void or_word(uint32_t w, uint64_t bits) { words_[w] |= bits; }

  // Calls f(index) in ascending order.
  template <typename F>
  void for_each(F&& f) const {
    for (uint32_t w = 0; w < kWords; ++w) {
      const uint64_t all = words_[w];
      if (all == ~uint64_t{0}) {
        // Most often; a plain loop.
        for (uint32_t i = w * 64; i < w * 64 + 64; ++i) f(i);
        continue;
      }
      for (uint64_t bits = all; bits != 0; bits &= bits - 1) f(w * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
    }
  }

 private:
  uint64_t words_[kWords] = {};
};

}  // namespace sluice

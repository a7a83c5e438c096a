// A subset of a batch's packets, in index order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace sluice {

// A bitmap over 8192 indices: merging two streams of one batch is an OR, and the order of packets is never lost. Only
// the words up to the last one that was written hold anything, so that a small batch pays for its own size; an empty
// selection is a number.
class Selection {
 public:
  static constexpr uint32_t kWords = 128;

  Selection() noexcept {}  // words_ is not written: it holds nothing yet
  Selection(const Selection& other) noexcept : used_(other.used_) {
    std::memcpy(words_, other.words_, used_ * sizeof words_[0]);
  }
  Selection& operator=(const Selection& other) noexcept {
    std::memmove(words_, other.words_, other.used_ * sizeof words_[0]);
    used_ = other.used_;
    return *this;
  }
  ~Selection() = default;

  void clear() { used_ = 0; }
  void add(uint32_t i) { or_word(i / 64, uint64_t{1} << (i % 64)); }
  void remove(uint32_t i) {
    if (i / 64 < used_) words_[i / 64] &= ~(uint64_t{1} << (i % 64));
  }
  bool has(uint32_t i) const { return (word(i / 64) >> (i % 64) & 1) != 0; }
  // The first `n` packets.
  void fill(uint32_t n) {
    for (uint32_t w = 0; w < n / 64; ++w) words_[w] = ~uint64_t{0};
    if (n % 64 != 0) words_[n / 64] = (uint64_t{1} << (n % 64)) - 1;
    used_ = (n + 63) / 64;
  }
  void merge(const Selection& other) {
    const uint32_t both = std::min(used_, other.used_);
    for (uint32_t w = 0; w < both; ++w) words_[w] |= other.words_[w];
    for (uint32_t w = both; w < other.used_; ++w) words_[w] = other.words_[w];
    used_ = std::max(used_, other.used_);
  }
  // The packets that are in `other` too.
  Selection both(const Selection& other) const {
    Selection out;
    out.used_ = std::min(used_, other.used_);
    for (uint32_t w = 0; w < out.used_; ++w) out.words_[w] = words_[w] & other.words_[w];
    return out;
  }
  void subtract(const Selection& other) {
    for (uint32_t w = 0; w < std::min(used_, other.used_); ++w) words_[w] &= ~other.words_[w];
  }
  bool empty() const {
    uint64_t any = 0;
    for (uint32_t w = 0; w < used_; ++w) any |= words_[w];
    return any == 0;
  }
  uint32_t count() const {
    uint32_t n = 0;
    for (uint32_t w = 0; w < used_; ++w) n += static_cast<uint32_t>(std::popcount(words_[w]));
    return n;
  }
  uint64_t word(uint32_t w) const { return w < used_ ? words_[w] : 0; }
  void set_word(uint32_t w, uint64_t bits) {
    reach(w);
    words_[w] = bits;
  }
  void or_word(uint32_t w, uint64_t bits) {
    reach(w);
    words_[w] |= bits;
  }

  // Calls f(index) in ascending order.
  template <typename F>
  void for_each(F&& f) const {
    const uint32_t used = used_;
    for (uint32_t w = 0; w < used; ++w) {
      const uint64_t all = words_[w];
      if (all == ~uint64_t{0}) {
        // Most often; a plain loop.
        for (uint32_t i = w * 64; i < w * 64 + 64; ++i) f(i);
        continue;
      }
      for (uint64_t bits = all; bits != 0; bits &= bits - 1) f(w * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
    }
  }
  // The same until f gives false; then it is false, too.
  template <typename F>
  bool each_while(F&& f) const {
    for (uint32_t w = 0; w < used_; ++w) {
      for (uint64_t bits = words_[w]; bits != 0; bits &= bits - 1) {
        if (!f(w * 64 + static_cast<uint32_t>(std::countr_zero(bits)))) return false;
      }
    }
    return true;
  }
  // Takes the first `n` out.
  Selection take_first(uint32_t n) {
    Selection first;
    for (uint32_t w = 0; w < used_ && n != 0; ++w) {
      uint64_t kept = words_[w];
      const auto here = static_cast<uint32_t>(std::popcount(kept));
      if (here <= n) {
        kept = 0;
      } else {
        for (uint32_t i = 0; i < n; ++i) kept &= kept - 1;
      }
      first.set_word(w, words_[w] ^ kept);
      words_[w] = kept;
      n -= std::min(n, here);
    }
    return first;
  }

 private:
  void reach(uint32_t w) {
    while (used_ <= w) words_[used_++] = 0;
  }

  uint32_t used_ = 0;  // words from here on hold nothing, and count as 0
  uint64_t words_[kWords];
};

}  // namespace sluice

// Internal to patch.cpp: rules in order of priority, each at a number ("word") that grows with it. Host only.
//
// Search structures compare words in place of priorities, and a word is also where a rule lies in the image. So an
// insertion between two neighbours needs a free word between theirs: some words are free, a sixth of them at least.
// Where none is free, rules give way: to the nearest free word when it is near, else a stretch of words is spread
// evenly, the shortest that is not too full (packed memory arrays: Itai, Konheim, Rodeh, ICALP 1981). A rule in place
// of another moves nobody, one between two others few as a rule; n insertions in one place move O(log^2) each.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/prefetch.h"
#include "memory/huge_vector.h"

namespace sluice::acl_patch {

class RuleOrder {
 public:
  // Words below are nobody's: 0 is no rule, 1 stands in lanes without one.
  static constexpr uint32_t kFirst = 2;

  // The most rules that words up to `last` are for, and words enough for so many rules. Precondition: last >= 64.
  static constexpr uint64_t most(uint64_t last) { return last * 82 / 100; }
  static constexpr uint64_t words_for(uint64_t rules) { return rules * 100 / 82 + 64; }

  // Words up to `last`.
  explicit RuleOrder(uint32_t last) : last_(last), used_(last / 64 + 2, 0) {
    // What stands past `last`, and in the levels for it, is the highest there is.
    size_t n = last + size_t{2};
    do {
      n = (n + kStep - 1) / kStep;
      levels_.emplace_back(n * kStep, ~uint64_t{0});
    } while (n > 1);
    for (uint32_t v = 0; v <= last_; ++v) put(v, 0);
  }

  uint32_t last() const { return last_; }
  uint32_t size() const { return size_; }
  uint64_t priority(uint32_t word) const { return levels_[0][word]; }
  bool used(uint32_t word) const { return word <= last_ && (used_[word / 64] >> (word % 64) & 1) != 0; }
  // The first word in use from `word` on; last() + 1: none.
  uint32_t next(uint32_t word) const { return next_bit(word, 0); }

  // Asks for the memory that find() and insert() of this priority will read.
  void expect(uint64_t priority) const { prefetch_read(levels_[0].data() + line_of(priority) * kStep); }
  // Where a rule with this priority is, or about where it would be.
  uint32_t near(uint64_t priority) const { return std::max(after(priority) - 1, kFirst); }
  // The word of the rule with this priority; 0: there is none.
  uint32_t find(uint64_t priority) const {
    const uint32_t before = previous_bit(after(priority) - 1, 0);
    return before >= kFirst && levels_[0][before] == priority ? before : 0;
  }
  // The same at less cost where it is the rule behind the one at `word`, as in a change of one rule after another.
  uint32_t find_behind(uint32_t word, uint64_t priority) const {
    if (word < kFirst) return find(priority);
    const uint32_t behind = next(word + 1);
    return behind <= last_ && levels_[0][behind] == priority ? behind : find(priority);
  }

  // Spreads rules over all words. Precondition: empty; priorities ascend. Calls place(index, word).
  template <typename F>
  void fill(const std::vector<uint64_t>& priorities, F&& place) {
    const uint64_t span = last_ - kFirst + 1, n = priorities.size();
    SLUICE_CHECK(size_ == 0 && n <= span);
    for (uint64_t i = 0; i < n; ++i) {
      const auto word = static_cast<uint32_t>(kFirst + (i * span + span / 2) / n);
      set(word, priorities[i]);
      place(i, word);
    }
    smooth(kFirst, last_);
  }

  // A word for a priority that nobody has. Calls move(from, to) for each rule that gives way; `to` is free then.
  // 0: too full, and nothing has changed.
  template <typename F>
  uint32_t insert(uint64_t priority, F&& move) {
    const uint32_t at = after(priority);
    const uint32_t before = std::max(previous_bit(at - 1, 0), kFirst - 1), behind = next_bit(at, 0);
    uint32_t word = 0;
    if (behind - before > 1) {
      word = before + (behind - before) / 2;
      // At the ends rules often come one after another; the large gap there is for all of them.
      if (behind > last_) {
        word = std::min(word, before + 2);
      } else if (before < kFirst) {
        word = std::max(word, behind > 2 + kFirst ? behind - 2 : kFirst);
      }
      for (uint32_t v = word; v-- > before + 1 && levels_[0][v] > priority;) put(v, priority);
      for (uint32_t v = word + 1; v < behind && levels_[0][v] < priority; ++v) put(v, priority);
    } else {
      const uint32_t right = next_bit(behind, ~uint64_t{0}), left = previous_bit(before, ~uint64_t{0});
      const uint32_t to_right = right <= last_ ? right - behind : ~0u, to_left = left >= kFirst ? before - left : ~0u;
      if (std::min(to_left, to_right) > kNear) return spread(priority, std::max(before, kFirst), move);
      if (to_right <= to_left) {
        for (uint32_t v = right; v > behind; --v) give_way(v - 1, v, move);
        word = behind;
      } else {
        for (uint32_t v = left; v < before; ++v) give_way(v + 1, v, move);
        word = before;
      }
    }
    set(word, priority);
    return word;
  }

  void erase(uint32_t word) {
    SLUICE_CHECK(used(word));
    used_[word / 64] &= ~(uint64_t{1} << (word % 64));
    --size_;
  }

 private:
  static constexpr uint32_t kNear = 8;

  static constexpr uint32_t kStep = 8;  // entries in a line of the cache

  // The first word whose entry is past `priority`. Entries of free words keep the array in order. Down the levels, a
  // line of each, without a branch on what is looked for; all but the last are in the caches as a rule.
  uint32_t after(uint64_t priority) const {
    const size_t line = line_of(priority);
    const auto word = static_cast<uint32_t>(line * kStep + not_past(levels_[0].data() + line * kStep, priority));
    return std::clamp(word, kFirst, last_ + 1);
  }
  // The line of the words' entries that the last one not past `priority` is in.
  size_t line_of(uint64_t priority) const {
    size_t line = 0;
    // The first entry is 0, which is never past it.
    for (size_t level = levels_.size(); level-- > 1;)
      line = line * kStep + not_past(levels_[level].data() + line * kStep, priority) - 1;
    return line;
  }
  static size_t not_past(const uint64_t* line, uint64_t priority) {
    size_t n = 0;
    for (size_t i = 0; i < kStep; ++i) n += line[i] <= priority;
    return n;
  }
  void put(uint32_t word, uint64_t priority) {
    size_t at = word;
    for (auto& level : levels_) {
      level[at] = priority;
      if (at % kStep != 0) break;
      at /= kStep;
    }
  }
  // The nearest word whose bit differs from those of `flip` (0: in use; ~0: free).
  uint32_t next_bit(uint32_t word, uint64_t flip) const {
    if (word > last_) return last_ + 1;
    size_t i = word / 64;
    uint64_t bits = (used_[i] ^ flip) & ~uint64_t{0} << (word % 64);
    while (bits == 0 && (i + 1) * 64 <= last_) bits = used_[++i] ^ flip;
    if (bits == 0) return last_ + 1;
    return std::min(last_ + 1, static_cast<uint32_t>(i * 64 + static_cast<size_t>(std::countr_zero(bits))));
  }
  // 0 (or 1 for free ones, which the caller takes for the same): none.
  uint32_t previous_bit(uint32_t word, uint64_t flip) const {
    size_t i = word / 64;
    uint64_t bits = (used_[i] ^ flip) & ~uint64_t{0} >> (63 - word % 64);
    while (bits == 0 && i > 0) bits = used_[--i] ^ flip;
    if (bits == 0) return 0;
    return static_cast<uint32_t>(i * 64 + 63 - static_cast<size_t>(std::countl_zero(bits)));
  }
  void set(uint32_t word, uint64_t priority) {
    put(word, priority);
    used_[word / 64] |= uint64_t{1} << (word % 64);
    ++size_;
  }
  template <typename F>
  void give_way(uint32_t from, uint32_t to, F&& move) {
    move(from, to);
    const uint64_t priority = levels_[0][from];
    erase(from);
    set(to, priority);
  }
  // Entries of free words in [lo, hi] become those before them.
  void smooth(uint32_t lo, uint32_t hi) {
    for (uint32_t v = lo; v <= hi; ++v) {
      if (!used(v)) put(v, levels_[0][v - 1]);
    }
  }
  uint32_t count(uint32_t lo, uint32_t hi) const {
    uint32_t n = 0;
    for (uint32_t v = next_bit(lo, 0); v <= hi; v = next_bit(v + 1, 0)) ++n;
    return n;
  }

  template <typename F>
  uint32_t spread(uint64_t priority, uint32_t near, F&& move) {
    const auto levels = static_cast<double>(std::bit_width(last_));
    for (uint64_t size = 64;; size *= 2) {
      const auto lo = static_cast<uint32_t>(std::max<uint64_t>(near / size * size, kFirst));
      const auto hi = static_cast<uint32_t>(std::min<uint64_t>(near / size * size + size - 1, last_));
      const uint32_t n = count(lo, hi), span = hi - lo + 1;
      // Of all words more than most() has, of few nearly all.
      const double full = 0.96 - 0.1 * std::bit_width(size) / levels;
      if (n + 1 > full * span) {
        if (size > last_) return 0;
        continue;
      }
      std::vector<std::pair<uint32_t, uint32_t>> moves;  // from, to
      uint32_t word = 0, i = 0;
      auto target = [&] { return static_cast<uint32_t>(lo + (uint64_t{i++} * span + span / 2) / (n + 1)); };
      for (uint32_t v = next_bit(lo, 0); v <= hi; v = next_bit(v + 1, 0)) {
        if (word == 0 && levels_[0][v] > priority) word = target();
        moves.emplace_back(v, target());
      }
      if (word == 0) word = target();
      // Those that go up from the last, those that go down from the first: so each finds its place free.
      for (size_t m = moves.size(); m-- > 0;) {
        if (moves[m].second > moves[m].first) give_way(moves[m].first, moves[m].second, move);
      }
      for (const auto& [from, to] : moves) {
        if (to < from) give_way(from, to, move);
      }
      set(word, priority);
      smooth(lo, hi);
      return word;
    }
  }

  uint32_t last_, size_ = 0;
  // By word: its rule's priority, or that of one before it; then every eighth of these, and so on down to eight.
  std::vector<HugeVector<uint64_t>> levels_;
  std::vector<uint64_t> used_;
};

}  // namespace sluice::acl_patch

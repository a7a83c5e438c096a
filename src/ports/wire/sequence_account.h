// host only
// Which frames of a numbered stream have come: once, again, out of order. RFC 4737 section 3 is what out of order
// means: a packet whose number is below the largest that came before it; a duplicate counts as duplicate alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/assert.h"

namespace sluice {

class SequenceAccount {
 public:
  // A number that lies `window` or more below the largest is too old to tell whether it came before. A power of two
  // from 64; it takes a bit each. The default is 4 s of 33 million packets a second.
  explicit SequenceAccount(uint64_t window = uint64_t{1} << 27) : words_(window / 64) {
    SLUICE_CHECK(window >= 64 && (window & (window - 1)) == 0);
  }

  void add(uint64_t sequence) {
    const uint64_t word = sequence / 64, bit = uint64_t{1} << sequence % 64;
    if (sequence >= next_) {
      // Words that are entered were others' a window ago.
      const uint64_t clear = std::min<uint64_t>(word + 1 - entered_, words_.size());
      for (uint64_t i = 0; i < clear; ++i) words_[(word - i) % words_.size()] = 0;
      entered_ = word + 1;
      words_[word % words_.size()] |= bit;
      next_ = sequence + 1;
      ++unique_;
      return;
    }
    if (word + words_.size() < entered_) {
      ++too_old_;
      return;
    }
    uint64_t& seen = words_[word % words_.size()];
    if ((seen & bit) != 0) {
      ++duplicated_;
      return;
    }
    seen |= bit;
    ++unique_;
    ++reordered_;
  }

  // Each number once.
  uint64_t unique() const { return unique_; }
  uint64_t duplicated() const { return duplicated_; }
  uint64_t reordered() const { return reordered_; }  // of the unique
  uint64_t too_old() const { return too_old_; }      // neither unique nor duplicated

 private:
  std::vector<uint64_t> words_;
  uint64_t next_ = 0;     // RFC 4737's NextExp
  uint64_t entered_ = 0;  // words [entered_ - words_.size(), entered_) are of this window
  uint64_t unique_ = 0, duplicated_ = 0, reordered_ = 0, too_old_ = 0;
};

}  // namespace sluice

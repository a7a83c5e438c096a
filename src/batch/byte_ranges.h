// Ranges of a frame's bytes: what stages read or write of it, and what of it crosses to a device. Host and device.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "base/hd.h"

namespace sluice {

// Bytes [from, to). What they count from is said where they are used.
struct ByteRange {
  int32_t from = 0;
  int32_t to = 0;

  SLUICE_HD constexpr uint32_t size() const { return static_cast<uint32_t>(to - from); }
  friend constexpr bool operator==(const ByteRange&, const ByteRange&) = default;
};

// A few ranges in order. Those that touch or have fewer than kNear bytes between them are one, since 16 bytes are the
// unit of a copy; where there would be more than kMost, the nearest two are.
class ByteRanges {
 public:
  static constexpr int32_t kNear = 16;
  static constexpr uint32_t kMost = 4;

  constexpr ByteRanges() = default;
  constexpr ByteRanges(std::initializer_list<ByteRange> all) {
    for (const ByteRange& r : all) add(r);
  }

  // An empty range adds nothing.
  constexpr void add(ByteRange r) {
    if (r.from >= r.to) return;
    ByteRange all[kMost + 1] = {};
    uint32_t n = 0;
    for (const ByteRange& other : *this) {
      if (other.to + kNear <= r.from || r.to + kNear <= other.from) {
        all[n++] = other;
      } else {
        r = {r.from < other.from ? r.from : other.from, r.to > other.to ? r.to : other.to};
      }
    }
    uint32_t at = n++;
    for (; at > 0 && all[at - 1].from > r.from; --at) all[at] = all[at - 1];
    all[at] = r;
    if (n > kMost) {
      uint32_t nearest = 1;
      for (uint32_t i = 2; i < n; ++i) {
        if (all[i].from - all[i - 1].to < all[nearest].from - all[nearest - 1].to) nearest = i;
      }
      all[nearest - 1].to = all[nearest].to;
      for (uint32_t i = nearest + 1; i < n; ++i) all[i - 1] = all[i];
      n = kMost;
    }
    for (uint32_t i = 0; i < n; ++i) ranges_[i] = all[i];
    count_ = n;
  }

  SLUICE_HD constexpr const ByteRange* begin() const { return ranges_; }
  SLUICE_HD constexpr const ByteRange* end() const { return ranges_ + count_; }
  SLUICE_HD constexpr bool empty() const { return count_ == 0; }
  // Of all ranges, without what lies between them.
  SLUICE_HD constexpr uint32_t bytes() const {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count_; ++i) sum += ranges_[i].size();
    return sum;
  }
  // From the first byte to the last; empty where there is none.
  SLUICE_HD constexpr ByteRange span() const {
    return count_ == 0 ? ByteRange{} : ByteRange{ranges_[0].from, ranges_[count_ - 1].to};
  }
  friend constexpr bool operator==(const ByteRanges&, const ByteRanges&) = default;

 private:
  ByteRange ranges_[kMost] = {};
  uint32_t count_ = 0;
};

}  // namespace sluice

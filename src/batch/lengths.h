// host only
// What elements that take batches in order look at of packets whose columns nobody has filled: when they came, and how
// long they are now.
#pragma once

#include <cstdint>

#include "base/assert.h"
#include "batch/lent_rows.h"

namespace sluice {

// `rows` and `behind` outlive it. Packets are rows.
class Lengths {
 public:
  // `behind`: how far each packet's network header lies behind its first byte, 0: it has none. nullptr: nobody asks.
  Lengths(const LentRows& rows, const uint8_t* behind) : rows_(rows), behind_(behind) {}

  uint64_t timestamp_ns(uint32_t i) const { return rows_.timestamps[i] + rows_.later_ns; }
  // As it was on the wire, from the first byte on that is left of it.
  uint32_t frame(uint32_t i) const {
    const FrameRecord record = rows_.records[i];
    const uint32_t bytes = uint32_t{record.bytes} + record.longer + rows_.tail;
    if (rows_.trims == nullptr) return bytes;
    const FrameTrim trim = rows_.trims[i];
    // What was cut off at the end was all that is known of it.
    return bytes - trim.bytes() - (trim.end() != 0 ? record.longer : 0);
  }
  // The same from its network header on, where it has one.
  uint32_t packet(uint32_t i) const {
    SLUICE_CHECK(behind_ != nullptr);
    const uint32_t bytes = frame(i);
    return bytes > behind_[i] ? bytes - behind_[i] : bytes;
  }

 private:
  const LentRows& rows_;
  const uint8_t* behind_;
};

}  // namespace sluice

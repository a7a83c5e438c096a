// Classifier: the first pattern that the packet's bytes match. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

// One comparison: 4 bytes at `offset` of the data, under a mask. A pattern is a run of comparisons that must all hold (or, with
// `negated`, not hold). Bytes past the packet's end make a comparison false, and its negation too: such a packet cannot be judged.
struct ClassifierTest {
  uint32_t offset;
  uint32_t mask;   // as loaded from memory: byte 0 of the packet in the lowest byte
  uint32_t value;
  uint8_t bytes;   // 1..4 bytes that are compared: what must exist
  uint8_t negated;
  uint8_t last;    // the last test of its pattern
  uint8_t reserved;
};
static_assert(sizeof(ClassifierTest) == 16);

struct ClassifierStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldReason;

  const ClassifierTest* tests = nullptr;  // of all patterns in order; a pattern without tests ("-") is one with mask 0, bytes 0
  uint32_t count = 0;

  SLUICE_HD bool holds(const Packet& p, const ClassifierTest& t) const {
    if (uint64_t{t.offset} + t.bytes > p.length()) return false;
    const uint8_t* at = p.bytes() + t.offset;
    uint32_t word = 0;
    for (uint32_t i = 0; i < t.bytes; ++i) word |= uint32_t{at[i]} << (8 * i);
    return ((word & t.mask) == t.value) != (t.negated != 0);
  }

  SLUICE_HD uint8_t operator()(Packet& p) const {
    uint8_t output = 0;
    bool matches = true;
    for (uint32_t i = 0; i < count; ++i) {
      matches = matches && holds(p, tests[i]);
      if (tests[i].last == 0) continue;
      if (matches) return output;
      matches = true;
      ++output;
    }
    return fail(p, DropReason::kClassifierNoMatch);
  }
};

}  // namespace sluice

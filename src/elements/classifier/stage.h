// Classifier: the first pattern that the packet's bytes match. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

// One comparison: up to 4 bytes at `offset` of the data, under a mask. A clause is a run of comparisons that must all
// hold, or, when negated, not all hold; a pattern is a run of clauses that must all hold. A comparison with bytes past
// the packet's end is false (so a negated clause is true there, as in Click).
struct ClassifierTest {
  uint32_t offset;
  uint32_t mask;  // as loaded from memory: byte 0 of the packet in the lowest byte
  uint32_t value;
  uint8_t bytes;    // 0..4: what must exist
  uint8_t negated;  // the clause that this test ends is negated
  uint8_t ends_clause;
  uint8_t ends_pattern;
};
static_assert(sizeof(ClassifierTest) == 16);

struct ClassifierStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent;
  static constexpr FieldMask kWrites = kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kAnywhere;

  const ClassifierTest* tests = nullptr;  // of all patterns in order; the pattern "-" is one test with mask 0, bytes 0
  uint32_t count = 0;

  // Every pointer that the stage holds: f(pointer) into an image, f(pointer, count) to an array of the element's own.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(tests, count);
  }

  SLUICE_HD bool holds(const Packet& p, const ClassifierTest& t) const {
    if (uint64_t{t.offset} + t.bytes > p.length()) return false;
    const uint8_t* at = p.bytes() + t.offset;
    uint32_t word = 0;
    for (uint32_t i = 0; i < t.bytes; ++i) word |= uint32_t{at[i]} << (8 * i);
    return (word & t.mask) == t.value;
  }

  SLUICE_HD uint8_t operator()(Packet& p) const {
    uint8_t output = 0;
    bool pattern = true;
    bool clause = true;
    for (uint32_t i = 0; i < count; ++i) {
      const ClassifierTest& t = tests[i];
      clause = clause && holds(p, t);
      if (t.ends_clause == 0) continue;
      pattern = pattern && clause != (t.negated != 0);
      clause = true;
      if (t.ends_pattern == 0) continue;
      if (pattern) return output;
      pattern = true;
      ++output;
    }
    return fail(p, DropReason::kClassifierNoMatch);
  }
};

}  // namespace sluice

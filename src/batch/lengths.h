// host only
// What elements that take batches in order look at of packets whose columns nobody has filled: when they came, how
// long they are now, and registers that stages have written.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/assert.h"
#include "batch/lent_rows.h"
#include "batch/packet.h"

namespace sluice {

// Registers of a batch's packets that came back from a device whole, while its columns stay unfilled; by row.
struct BroughtRegisters {
  // kFieldL3, kFieldRule, kFieldMark, kFieldPaint: which there are. Nobody has written the others, or nobody asks.
  FieldMask has = 0;
  std::vector<uint8_t> behind;  // how far the network header lies behind the packet's first byte, 0: it has none
  std::vector<uint32_t> rules, marks;
  std::vector<uint8_t> paints;

  // Gives room for `rows` of one of them.
  template <typename T>
  static T* room(std::vector<T>& registers, size_t rows) {
    if (registers.size() < rows) registers.resize(rows);
    return registers.data();
  }
};

// `rows` and `registers` outlive it. Packets are rows.
class Lengths {
 public:
  // `keeps_paint`: somebody looks later at what is written to paint_at.
  Lengths(const LentRows& rows, uint32_t count, BroughtRegisters& registers, bool keeps_paint)
      : rows_(rows), registers_(registers), keeps_paint_(keeps_paint) {
    if (!keeps_paint || (registers.has & kFieldPaint) != 0) return;
    std::fill_n(BroughtRegisters::room(registers.paints, count), count, uint8_t{0});
    registers.has |= kFieldPaint;
  }

  uint32_t rule(uint32_t i) const { return (registers_.has & kFieldRule) != 0 ? registers_.rules[i] : 0; }
  uint32_t mark(uint32_t i) const { return (registers_.has & kFieldMark) != 0 ? registers_.marks[i] : 0; }
  uint8_t paint(uint32_t i) const { return (registers_.has & kFieldPaint) != 0 ? registers_.paints[i] : uint8_t{0}; }
  bool keeps_paint() const { return keeps_paint_; }
  // Where it keeps them.
  uint8_t& paint_at(uint32_t i) { return registers_.paints[i]; }

  // Of rows w * 64 + b, where b are the bits of `rows`, one behind the other; returns how many these are. `to` has room
  // for 64.
  // When they came.
  uint32_t times(uint32_t w, uint64_t rows, uint64_t* to) const {
    const uint64_t* const from = rows_.timestamps + size_t{w} * 64;
    const uint64_t later = rows_.later_ns;
    return each(rows, [&](uint32_t b, uint32_t n) { to[n] = from[b] + later; });
  }
  // As they were on the wire, from the first byte on that is left of them.
  uint32_t frames(uint32_t w, uint64_t rows, uint32_t* to) const {
    const FrameRecord* const records = rows_.records + size_t{w} * 64;
    const uint32_t tail = rows_.tail;
    const uint32_t count = each(rows, [&](uint32_t b, uint32_t n) {
      uint64_t word;  // as one, which is a vector's lane
      std::memcpy(&word, &records[b], sizeof word);
      to[n] = static_cast<uint32_t>((word >> 32 & 0xffff) + (word >> 48)) + tail;
    });
    if (rows_.trims == nullptr) return count;
    const FrameTrim* const trims = rows_.trims + size_t{w} * 64;
    return each(rows, [&](uint32_t b, uint32_t n) {
      // What was cut off at the end was all that is known of it.
      to[n] -= trims[b].bytes() + (trims[b].end() != 0 ? records[b].longer : 0u);
    });
  }
  // The same from their network headers on, where they have one.
  uint32_t packets(uint32_t w, uint64_t rows, uint32_t* to) const {
    SLUICE_CHECK((registers_.has & kFieldL3) != 0);
    frames(w, rows, to);
    const uint8_t* const behind = registers_.behind.data() + size_t{w} * 64;
    return each(rows, [&](uint32_t b, uint32_t n) { to[n] -= to[n] > behind[b] ? behind[b] : 0u; });
  }

 private:
  static_assert(std::endian::native == std::endian::little && offsetof(FrameRecord, bytes) == 4 &&
                offsetof(FrameRecord, longer) == 6);
  // Loops of as many turns as are known are vector code.
  template <typename Do>
  static uint32_t each(uint64_t rows, Do&& visit) {
    if (rows == ~uint64_t{0}) {
      for (uint32_t n = 0; n < 64; ++n) visit(n, n);
      return 64;
    }
    uint32_t n = 0;
    for (; rows != 0; rows &= rows - 1) visit(static_cast<uint32_t>(std::countr_zero(rows)), n++);
    return n;
  }

  const LentRows& rows_;
  BroughtRegisters& registers_;
  bool keeps_paint_;
};

}  // namespace sluice

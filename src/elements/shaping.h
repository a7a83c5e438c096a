// host only
// What elements that police and shape share.
#pragma once

#include <bit>
#include <cstdint>

#include "batch/batch.h"
#include "batch/lengths.h"
#include "elements/flow_element.h"
#include "graph/element.h"
#include "qos/policer.h"

namespace sluice {

// An element that takes batches in order, and packets one by one where the packet scheduler runs it.
class OrderedElement : public Element, public Flow {
 public:
  ElementKind kind() const override { return ElementKind::kOrdered; }
  Flow* flow() override { return this; }
  bool output_optional(unsigned) const override { return false; }
};

// The time of packets by their own time stamps, which may go back.
class PacketClock {
 public:
  uint64_t at(uint64_t timestamp_ns) {
    if (timestamp_ns > now_ns_) now_ns_ = timestamp_ns;
    return now_ns_;
  }
  // Whether it does not change that.
  bool passes(uint64_t timestamp_ns) const { return timestamp_ns >= now_ns_; }

 private:
  uint64_t now_ns_ = 0;
};

// Time stamps and lengths of those packets of 64 rows that an element takes in order, one behind the other.
struct OrderedWord {
  uint64_t times[64];
  uint32_t bytes[64];
  uint32_t count = 0;

  // Of `rows` of word `w`; `lengths` as in Element::Ordered::process. What counts is the whole frame.
  void read_frames(const Batch& batch, const Lengths* lengths, uint32_t w, uint64_t rows) {
    read(batch, lengths, w, rows, &Lengths::frames, [&](uint32_t i) {
      const Extent& extent = batch.extent(i);
      return extent.wire_end - static_cast<uint32_t>(extent.data);
    });
  }
  // The same where it is what policers count.
  void read_packets(const Batch& batch, const Lengths* lengths, uint32_t w, uint64_t rows) {
    read(batch, lengths, w, rows, &Lengths::packets, [&](uint32_t i) {
      const Extent& extent = batch.extent(i);
      return policed_bytes(batch.key(i).family != 0, extent.data, extent.l3, extent.wire_end);
    });
  }

  bool times_go_back() const {
    // A difference below 0 has its highest bit. (So has one of 292 years.)
    uint64_t differ = 0;
    const auto look = [&](uint32_t i) { differ |= times[i] - times[i - 1]; };
    if (count == 64) {
      for (uint32_t i = 1; i < 64; ++i) look(i);
    } else {
      for (uint32_t i = 1; i < count; ++i) look(i);
    }
    return differ >> 63 != 0;
  }

 private:
  template <typename OfColumns>
  void read(const Batch& batch, const Lengths* lengths, uint32_t w, uint64_t rows,
            uint32_t (Lengths::*of_lengths)(uint32_t, uint64_t, uint32_t*) const, OfColumns&& of_columns) {
    if (lengths != nullptr) {
      lengths->times(w, rows, times);
      count = (lengths->*of_lengths)(w, rows, bytes);
      return;
    }
    for (count = 0; rows != 0; rows &= rows - 1, ++count) {
      const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(rows));
      times[count] = batch.timestamp_ns(i);
      bytes[count] = of_columns(i);
    }
  }
};

inline ArgumentSpec burst_bytes_argument(const char* name, bool mandatory, const char* standard, const char* help) {
  return {.name = name,
          .kind = ArgumentKind::kUint,
          .positional = mandatory,
          .mandatory = mandatory,
          .default_text = standard,
          .unit = "bytes",
          .help = help,
          .max = PolicerConfig::kMaxBurstBytes};
}

}  // namespace sluice

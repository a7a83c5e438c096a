// host only
// What elements that police and shape share.
#pragma once

#include <cstdint>

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
  // The same of packets one behind the other, one or more. True: some time stamps went back.
  bool at(uint64_t* timestamps_ns, uint32_t count) {
    // A difference below 0 has its highest bit. (So has one of 292 years, for which the way below is as good.)
    uint64_t differ = timestamps_ns[0] - now_ns_;
    const auto look = [&](uint32_t i) { differ |= timestamps_ns[i] - timestamps_ns[i - 1]; };
    if (count == 64) {
      for (uint32_t i = 1; i < 64; ++i) look(i);
    } else {
      for (uint32_t i = 1; i < count; ++i) look(i);
    }
    if (differ >> 63 == 0) {
      now_ns_ = timestamps_ns[count - 1];
      return false;
    }
    differ = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t now = at(timestamps_ns[i]);
      differ |= now ^ timestamps_ns[i];
      timestamps_ns[i] = now;
    }
    return differ != 0;
  }

 private:
  uint64_t now_ns_ = 0;
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

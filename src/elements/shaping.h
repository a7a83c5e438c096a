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
  // The same of packets one behind the other. True: some time stamps went back.
  bool at(uint64_t* timestamps_ns, uint32_t count) {
    uint64_t differ = 0;
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

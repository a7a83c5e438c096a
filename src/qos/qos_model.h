// host only
// A whole configuration of classes: what formats/qos_text.h reads and the element QoS runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "qos/class_map.h"
#include "qos/egress_queues.h"
#include "qos/policer.h"
#include "qos/red.h"

namespace sluice {

struct QosClass {
  std::string name;
  bool strict = false;
  uint32_t weight = 1;    // weighted classes share by it
  uint64_t rate_bps = 0;  // 0: unlimited
  uint32_t burst_bytes = 0;
  uint32_t limit_pkts = 1000;
  RedConfig red;
  bool policed = false;
  PolicerConfig police;
  // By color; red packets are dropped unless they have a codepoint here.
  uint8_t remark[kColors] = {RemarkMap::kKeep, RemarkMap::kKeep, RemarkMap::kKeep};

  bool drops_red() const { return remark[static_cast<unsigned>(Color::kRed)] == RemarkMap::kKeep; }
};

// Marks of access lists that make a class, whatever the codepoint says.
struct QosMarks {
  uint32_t low = 0;
  uint32_t high = 0;
  uint8_t qos_class = 0;
};

struct QosModel {
  static constexpr uint32_t kMaxWeight = 1000;
  static constexpr uint32_t kMaxLimitPkts = 1u << 20;
  // A typical packet of RED's idle time.
  static constexpr uint64_t kMeanPacketBytes = 1000;
  // The longest ordinary Ethernet frame: with a quantum of at least that a packet is found in one round.
  static constexpr uint32_t kQuantumBytes = 1514;

  std::vector<QosClass> classes;  // 1 to kMaxQosClasses
  ClassMap map;
  std::vector<QosMarks> marks;  // by `low`; they do not overlap
  uint64_t port_rate_bps = 0;   // 0: unlimited
  uint32_t port_burst_bytes = 0;

  // Three priorities by DSCP; the first has half, the second two thirds of the rest.
  static QosModel three_priorities() {
    QosModel model;
    const char* const names[] = {"high", "assured", "default"};
    for (uint32_t i = 0; i < kDefaultQosClasses; ++i) {
      QosClass c;
      c.name = names[i];
      c.weight = kDefaultQosClasses - i;
      model.classes.push_back(std::move(c));
    }
    model.map = ClassMap::three_priorities();
    return model;
  }

  // By the mark where a class has it (0 is no mark), else by the codepoint.
  unsigned class_of(uint32_t mark, unsigned dscp) const {
    if (mark != 0 && !marks.empty()) {
      auto at = std::upper_bound(marks.begin(), marks.end(), mark,
                                 [](uint32_t value, const QosMarks& range) { return value < range.low; });
      if (at != marks.begin() && mark <= (--at)->high) return at->qos_class;
    }
    return map.class_of(dscp);
  }

  // What a class can send at most: the lower one of its rate and the port's. 0: unlimited.
  uint64_t least_rate_bps(const QosClass& c) const {
    if (c.rate_bps == 0 || port_rate_bps == 0) return c.rate_bps + port_rate_bps;
    return std::min(c.rate_bps, port_rate_bps);
  }
  // Whether nothing is ever done to a packet but to count it: no rates, policers or codepoints of its own. (A queue is
  // then never longer than a packet, so that neither its limit nor RED matters.)
  bool counts_only() const {
    return port_rate_bps == 0 && std::all_of(classes.begin(), classes.end(), [](const QosClass& c) {
             return c.rate_bps == 0 && !c.policed && c.remark[static_cast<unsigned>(Color::kGreen)] == RemarkMap::kKeep;
           });
  }

  // RED's idle time is counted in packets of kMeanPacketBytes at the rate that the class can have.
  std::vector<EgressClass> egress() const {
    std::vector<EgressClass> out;
    for (const QosClass& c : classes) {
      EgressClass e;
      e.strict = c.strict;
      e.quantum_bytes = c.weight * kQuantumBytes;
      e.limit_pkts = c.limit_pkts;
      e.red = c.red;
      if (const uint64_t bps = least_rate_bps(c); bps != 0)
        e.red.idle_packet_ns = (kMeanPacketBytes * 8'000'000'000 + bps - 1) / bps;
      out.push_back(e);
    }
    return out;
  }
  RemarkMap remarks() const {
    RemarkMap out;
    for (size_t c = 0; c < classes.size() && c < kMaxQosClasses; ++c) {
      for (unsigned color = 0; color < kColors; ++color) out.dscp[c][color] = classes[c].remark[color];
    }
    return out;
  }
};

}  // namespace sluice

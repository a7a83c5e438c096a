// host only
// Counters of one worker, and their sums.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/histogram.h"
#include "batch/drop_reason.h"
#include "net/dscp.h"

namespace sluice {

inline constexpr size_t kDropReasons = static_cast<size_t>(DropReason::kCount);

struct ElementCounters {
  uint64_t packets = 0;  // that reached the element
  uint64_t bytes = 0;    // their lengths on arrival
  std::array<uint64_t, kDropReasons> drops{};

  void add(const ElementCounters& other) {
    packets += other.packets;
    bytes += other.bytes;
    for (size_t i = 0; i < kDropReasons; ++i) drops[i] += other.drops[i];
  }
};

struct alignas(16) PortCounters {
  uint64_t packets = 0;
  uint64_t bytes = 0;
  // One packet. Both at once: neighbours often leave by one port, and each then waits for the one before.
  void count(uint64_t length) {
    using Both = uint64_t __attribute__((vector_size(16), may_alias));
    auto& both = *reinterpret_cast<Both*>(this);
    both += Both{1, length};
  }
};

// What became of a packet that came in.
struct PacketFate {
  uint32_t rule = 0;                      // of the last access list that it met, 0: none matched
  uint32_t next_hop = 0;                  // id in the last route table that it met, 0: none
  uint16_t element = 0;                   // that dropped it
  DropReason reason = DropReason::kNone;  // kNone: it left by a sink
  uint16_t list = kNoElement;             // the element of that access list; where RunOptions::ended is told

  static constexpr uint16_t kNoElement = 0xffff;
};

// How packets of offloaded segments went.
struct DeviceCounters {
  uint64_t offloaded = 0;  // answered by the device
  uint64_t on_host = 0;    // that could not go: too long, an unusual header, no generation on the device
  uint64_t redone = 0;     // came back undone
  uint64_t rescued = 0;    // the device failed; the host did it
  void add(const DeviceCounters& o) {
    offloaded += o.offloaded;
    on_host += o.on_host;
    redone += o.redone;
    rescued += o.rescued;
  }
};

// Owned by one worker while it runs; read by others only after it stopped or through a copy at its loop top.
struct WorkerStats {
  // One small step in kTimed is timed; reading the clock costs as much as the step.
  static constexpr uint32_t kTimed = 8;

  std::vector<ElementCounters> elements;  // by element index of the graph
  uint64_t packets_in = 0;
  uint64_t bytes_in = 0;
  uint64_t generated = 0;  // clones and packets of an element's own making
  uint64_t batches = 0;
  uint64_t fast = 0;  // packets that took the fast path to its end, or to their drop
  // Bytes of packets that came in, by DSCP; entry kNoDscp is of those without an IP header. Empty: they are not
  // counted.
  std::vector<uint64_t> dscp;
  Histogram latency;  // batch read to batch done, ns, once for every packet
  Histogram wait;     // batch read to a worker's start with it, ns, once in kTimed batches of a worker
  Histogram egress;   // batch done to its outputs written, in order, ns, once per batch
  Histogram through;  // batch read to its outputs written, ns, once for every packet

  void count_dscp() { dscp.resize(kNoDscp + 1); }
  // What came in or was generated is counted by `other` from here on.
  void hand_over(WorkerStats& other) {
    for (uint64_t WorkerStats::*sum : {&WorkerStats::packets_in, &WorkerStats::bytes_in, &WorkerStats::generated})
      other.*sum += std::exchange(this->*sum, 0);
    for (size_t i = 0; i < dscp.size(); ++i) other.dscp[i] += std::exchange(dscp[i], 0);
  }
  void add(const WorkerStats& other) {
    if (elements.size() < other.elements.size()) elements.resize(other.elements.size());
    for (size_t i = 0; i < other.elements.size(); ++i) elements[i].add(other.elements[i]);
    packets_in += other.packets_in;
    bytes_in += other.bytes_in;
    generated += other.generated;
    batches += other.batches;
    fast += other.fast;
    if (dscp.size() < other.dscp.size()) dscp.resize(other.dscp.size());
    for (size_t i = 0; i < other.dscp.size(); ++i) dscp[i] += other.dscp[i];
    latency.merge(other.latency);
    wait.merge(other.wait);
    egress.merge(other.egress);
    through.merge(other.through);
  }
};

}  // namespace sluice

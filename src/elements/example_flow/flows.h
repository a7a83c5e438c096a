// host only
// ExampleFlow: state per flow, in a table of bounded size.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <list>
#include <unordered_map>

#include "net/flow_key.h"

namespace sluice {

// The fields of a key that the packets of one flow share: fragments go by addresses and protocol, because later ones
// have no ports.
struct ExampleFlowId {
  std::array<uint64_t, 5> words{};

  ExampleFlowId() = default;
  explicit ExampleFlowId(const FlowKey& key) : words{key.src_hi, key.src_lo, key.dst_hi, key.dst_lo} {
    const bool ports = (key.bits & FlowKey::kFragment) == 0;
    words[4] = uint64_t{key.family} << 40 | uint64_t{key.protocol} << 32;
    if (ports) words[4] |= uint64_t{key.src_port} << 16 | key.dst_port;
  }
  friend bool operator==(const ExampleFlowId&, const ExampleFlowId&) = default;
};

struct ExampleFlowHash {
  size_t operator()(const ExampleFlowId& id) const {
    uint64_t h = 0;
    for (const uint64_t word : id.words) h = mix64(h ^ word);
    return static_cast<size_t>(h);
  }
};

// Counts the packets of each flow. One thread at a time; every change is in the order of the packets.
class ExampleFlows {
 public:
  // `limit` packets of a flow pass; a flow ends `timeout_ns` after its last packet; `capacity` flows at most.
  ExampleFlows() = default;
  ExampleFlows(uint64_t limit, uint64_t timeout_ns, uint64_t capacity)
      : limit_(limit), timeout_ns_(timeout_ns), capacity_(capacity) {}

  // Whether the packet passes. A packet that would begin a flow does not where the table is full of others: flows that
  // are there are kept.
  bool passes(const ExampleFlowId& id, uint64_t now_ns) {
    // Before the lookup, so that what passes does not depend on when expired flows are found.
    while (!by_age_.empty() && now_ns - by_age_.front().last_ns >= timeout_ns_) {
      flows_.erase(by_age_.front().id);
      by_age_.pop_front();
    }
    auto at = flows_.find(id);
    if (at == flows_.end()) {
      if (flows_.size() >= capacity_) return false;
      by_age_.push_back({id, now_ns, 0});
      at = flows_.emplace(id, std::prev(by_age_.end())).first;
    } else {
      by_age_.splice(by_age_.end(), by_age_, at->second);
      at->second->last_ns = now_ns;
    }
    if (at->second->packets >= limit_) return false;
    ++at->second->packets;
    return true;
  }
  size_t size() const { return flows_.size(); }

 private:
  struct Entry {
    ExampleFlowId id;
    uint64_t last_ns = 0;
    uint64_t packets = 0;
  };
  std::list<Entry> by_age_;  // the one whose last packet is longest ago first
  std::unordered_map<ExampleFlowId, std::list<Entry>::iterator, ExampleFlowHash> flows_;
  uint64_t limit_ = 0, timeout_ns_ = 0, capacity_ = 0;
};

}  // namespace sluice

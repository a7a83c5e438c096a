// host only
// Packets that wait for their neighbour's link-layer address, and when it is asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exec/engine/ports.h"
#include "tables/adjacency/neighbours.h"

namespace sluice {

// One thread at a time; times are the caller's. A packet that waits is copied.
class NeighbourWait {
 public:
  static constexpr size_t kMostPackets = 3;        // of a neighbour
  static constexpr size_t kMostNeighbours = 1024;  // that packets wait for, or that were asked for just now
  static constexpr uint64_t kWaitNs = 3'000'000'000;
  static constexpr uint64_t kAskNs = 1'000'000'000;  // between two questions for a neighbour

  // A packet comes to an output, for a neighbour that is not known. Where it does not wait it is to be dropped.
  struct Came {
    bool waits = false;
    bool asks = false;  // for the neighbour
  };
  Came come(size_t output, const NeighbourKey& key, const TxRecord& record, uint64_t now_ns) {
    auto at = waiting_.find({output, key});
    if (at == waiting_.end()) {
      if (waiting_.size() >= kMostNeighbours) return {};
      at = waiting_.emplace(std::pair{output, key}, One{}).first;
      at->second.ask_ns = now_ns;
      look_ns_ = std::min(look_ns_, now_ns + kAskNs);
    }
    One& one = at->second;
    Came came;
    came.asks = now_ns >= one.ask_ns;
    if (came.asks) one.ask_ns = now_ns + kAskNs;
    came.waits = one.packets.size() < kMostPackets;
    if (!came.waits) return came;
    Packet packet{record, std::vector<uint8_t>(record.data, record.data + record.captured), now_ns + kWaitNs};
    packet.record.data = packet.bytes.data();
    packet.record.pool = nullptr;
    one.packets.push_back(std::move(packet));
    ++packets_;
    look_ns_ = std::min(look_ns_, one.packets.back().until_ns);
    return came;
  }

  // Whether a packet that comes now would overtake one that waits.
  bool waits(size_t output, const NeighbourKey& key) const {
    const auto at = waiting_.find({output, key});
    return at != waiting_.end() && !at->second.packets.empty();
  }
  // Packets of an output whose neighbour knows(key) are appended to `out`, in their order for each neighbour; what it
  // refers to lasts until `forget`.
  template <typename Knows>
  void release(size_t output, Knows&& knows, std::vector<TxRecord>& out) {
    for (auto& [place, one] : waiting_) {
      if (place.first != output || one.packets.empty() || !knows(place.second)) continue;
      for (Packet& packet : one.packets) {
        given_.push_back(std::move(packet));
        out.push_back(given_.back().record);
      }
      packets_ -= one.packets.size();
      one.packets.clear();
      // It may be forgotten as fast: the next question still waits for its time.
      look_ns_ = std::min(look_ns_, one.ask_ns);
    }
  }
  // All packets of an output go, unsent: calls lost(record) for each. Returns how many.
  template <typename Lost>
  size_t drop(size_t output, Lost&& lost) {
    size_t dropped = 0;
    std::erase_if(waiting_, [&](const auto& entry) {
      if (entry.first.first != output) return false;
      dropped += entry.second.packets.size();
      for (const Packet& packet : entry.second.packets) lost(packet.record);
      return true;
    });
    packets_ -= dropped;
    return dropped;
  }
  // It is `now_ns`: calls dropped(output, record) for each that has waited too long.
  template <typename Dropped>
  void expire(uint64_t now_ns, Dropped&& dropped) {
    if (now_ns < look_ns_) return;
    look_ns_ = ~uint64_t{0};
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      auto& packets = it->second.packets;
      size_t late = 0;
      while (late < packets.size() && packets[late].until_ns <= now_ns) ++late;
      for (size_t i = 0; i < late; ++i) dropped(it->first.first, packets[i].record);
      packets.erase(packets.begin(), packets.begin() + static_cast<ptrdiff_t>(late));
      packets_ -= late;
      // One without packets only says when the next question may be.
      const uint64_t next = packets.empty() ? it->second.ask_ns : packets[0].until_ns;
      if (packets.empty() && next <= now_ns) {
        it = waiting_.erase(it);
        continue;
      }
      look_ns_ = std::min(look_ns_, next);
      ++it;
    }
  }
  // The records that were given out have been written.
  void forget() { given_.clear(); }

  // Nobody waits, and nobody was asked for.
  bool empty() const { return waiting_.empty(); }
  size_t packets() const { return packets_; }

 private:
  struct Packet {
    TxRecord record;
    std::vector<uint8_t> bytes;
    uint64_t until_ns;
  };
  struct One {
    std::vector<Packet> packets;
    uint64_t ask_ns = 0;  // not before
  };
  using Place = std::pair<size_t, NeighbourKey>;  // output and neighbour
  struct Hash {
    size_t operator()(const Place& place) const { return NeighbourKeyHash()(place.second) ^ place.first; }
  };

  std::unordered_map<Place, One, Hash> waiting_;
  std::vector<Packet> given_;
  size_t packets_ = 0;
  uint64_t look_ns_ = ~uint64_t{0};  // nothing is over before
};

}  // namespace sluice

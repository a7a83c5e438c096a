// host only
// Who the next hops of a run with live ports are, and their link-layer addresses, as the kernel knows them.
//
// A next hop is a neighbour where it is an address of a network at an output ("10.2.0.1"), an address with its
// interface ("fe80::1%eth1"), or an interface alone ("eth1", of a route without a next hop): then whoever a packet is
// for is the neighbour. Its adjacency has the MAC where that is known. Where it is not, or each packet has another
// one, it has a mark in place of MACs: a source that no frame has (a group address, IEEE 802.3 clause 3.2.3) and the
// number of the neighbour. So whatever runs the graph, a device too, treats such packets like all others, and who gives
// them to the port finds out by twelve bytes whom they are for.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "net/flow_key.h"
#include "net/types.h"
#include "tables/adjacency/adjacency_model.h"

namespace sluice {

// An address at an interface of the kernel; of family 0: whoever a packet is for.
struct NeighbourKey {
  int ifindex = 0;
  IpAddress address;
  friend bool operator==(const NeighbourKey&, const NeighbourKey&) = default;
};
struct NeighbourKeyHash {
  size_t operator()(const NeighbourKey& key) const {
    return mix64(key.address.lo ^
                 mix64(key.address.hi ^ (static_cast<uint64_t>(key.ifindex) << 8 | key.address.family)));
  }
};

// Packets of an adjacency with this port leave by this interface.
struct NeighbourOutput {
  uint16_t port = 0;
  std::string interface;
  friend bool operator==(const NeighbourOutput&, const NeighbourOutput&) = default;
};

// Thread-safe.
class Neighbours {
 public:
  struct OwnAddress {
    IpAddress address;
    uint8_t length = 0;  // of its network's prefix
    friend bool operator==(const OwnAddress&, const OwnAddress&) = default;
  };
  struct Link {
    std::string name;
    MacAddress mac{};
    uint16_t mtu = AdjacencyModel::kDefaultMtu;
    std::vector<OwnAddress> addresses;
    friend bool operator==(const Link&, const Link&) = default;
  };
  static constexpr size_t kMostNextHops = size_t{1} << 20;

  // What the kernel says
  // ----------------------------------------------------------------------------------------------- An interface is
  // found by each name that it has had. True: something about it is new.
  bool set_link(int ifindex, Link link);
  bool remove_link(int ifindex);
  // True: it is new, and some next hop is this neighbour.
  bool set(const NeighbourKey& key, const MacAddress& mac);
  bool forget(const NeighbourKey& key);
  // Changes whenever one of these has changed anything.
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }

  // Next hops
  // ---------------------------------------------------------------------------------------------------------- How a
  // next hop is reached by one of the outputs; nothing: it is no neighbour there.
  struct Found {
    AdjacencyModel::Neighbour neighbour;
    NeighbourKey key;
    std::string interface;
    bool known = false;  // its MAC; else the adjacency is marked
  };
  std::optional<Found> find(std::string_view next_hop, const std::vector<NeighbourOutput>& outputs);
  // Those that have been found, with an address of their own: calls use(key, whether its MAC is known).
  void each_next_hop(const std::function<void(const NeighbourKey&, bool)>& use) const;

  // Packets
  // ------------------------------------------------------------------------------------------------------------
  // Whether a frame has a mark in place of its MACs.
  static bool marked(const uint8_t* frame, size_t bytes) {
    return bytes >= 14 && std::memcmp(frame + 6, kMark, 6) == 0;
  }
  static bool marked(const AdjacencyModel::Neighbour& neighbour) {
    return std::memcmp(neighbour.source.bytes, kMark, 6) == 0;
  }
  // Whom a marked frame is for; nothing: nobody that could be asked for, such as a network's broadcast address.
  std::optional<NeighbourKey> whom(const uint8_t* frame, size_t bytes) const;
  bool knows(const NeighbourKey& key) const;
  // Writes the MACs of a frame for `key`. False: they are not known.
  bool address(uint8_t* frame, const NeighbourKey& key) const;

  // Questions
  // ---------------------------------------------------------------------------------------------------------- Somebody
  // has packets for a neighbour that is not known. No more than kMostAsked wait to be taken.
  void ask(const NeighbourKey& key);
  std::vector<NeighbourKey> take_asked();
  // Called after the first question since they were taken. Set before anybody asks.
  void on_ask(std::function<void()> told) { told_ = std::move(told); }
  static constexpr size_t kMostAsked = 4096;

 private:
  static constexpr uint8_t kMark[6] = {0x03, 0x53, 0x4c, 0x4e, 0x42, 0x52};

  std::optional<uint32_t> number_of(const NeighbourKey& key);
  const Link* link_of(int ifindex) const;
  void changed() { changes_.fetch_add(1, std::memory_order_release); }

  mutable std::mutex mutex_;
  std::map<int, Link> links_;
  std::map<std::string, int, std::less<>> names_;
  std::unordered_map<NeighbourKey, MacAddress, NeighbourKeyHash> macs_;
  std::vector<NeighbourKey> next_hops_;
  std::unordered_map<NeighbourKey, uint32_t, NeighbourKeyHash> numbers_;  // of next_hops_
  std::atomic<uint64_t> changes_{0};
  std::vector<NeighbourKey> asked_;
  std::function<void()> told_;
};

// Where next hops are neighbours: those of a graph's outputs. Empty: nowhere.
struct NeighbourReach {
  std::shared_ptr<Neighbours> neighbours;
  std::vector<NeighbourOutput> outputs;

  std::optional<Neighbours::Found> find(std::string_view next_hop) const {
    return neighbours == nullptr ? std::nullopt : neighbours->find(next_hop, outputs);
  }
};

}  // namespace sluice

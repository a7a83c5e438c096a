// host only
// NeighbourWatch: the kernel's neighbour table (ARP and ND) as it changes, and requests to it to resolve an address.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "net/flow_key.h"
#include "net/types.h"
#include "ports/netlink/netlink_socket.h"

namespace sluice {

struct Neighbour {
  int ifindex = 0;
  IpAddress address;
  MacAddress mac{};    // where it is known
  uint16_t state = 0;  // NUD_REACHABLE, NUD_FAILED, ... of <linux/neighbour.h>
  // Whether packets can be sent to `mac`; the kernel checks a stale one when they are.
  bool usable() const;
  friend bool operator==(const Neighbour&, const Neighbour&) = default;
};

// The neighbours of the network namespace in which it was made. One thread at a time; it has no thread of its own.
class NeighbourWatch {
 public:
  static constexpr size_t kMost = 1 << 20;

  // `ifindexes`: the interfaces that count; empty: all. Knows their neighbours when it returns. Errors: the system's.
  static Result<std::unique_ptr<NeighbourWatch>> create(std::vector<int> ifindexes = {},
                                                        int receive_bytes = NetlinkSocket::kReceiveBytes);

  // Readable when something has changed.
  int fd() const { return follows_.events.fd(); }
  // `gone`: the kernel has forgotten it; then `neighbour` is as it was.
  using Changed = std::function<void(const Neighbour& neighbour, bool gone)>;
  // Takes up what has changed, at most some hundred messages: fd() stays readable where there is more. Where the kernel
  // had no room for all it said, the whole table is read again. Never waits but for that. Errors: the system's; it goes
  // on with the next call.
  Result<void> read(const Changed& changed = {});
  // Hands over all that are known.
  void for_each(const std::function<void(const Neighbour&)>& use) const;
  // nullptr: the kernel knows nothing of it.
  const Neighbour* find(int ifindex, const IpAddress& address) const;
  size_t size() const { return table_.size(); }

  // Asks the kernel to find the MAC of a neighbour, as a packet to it would: an answer, or that there is none, is a
  // change. Needs CAP_NET_ADMIN. Errors: the interface is gone or down; what is missing.
  Result<void> resolve(int ifindex, const IpAddress& address);

  // How often messages were lost, and all was read again.
  uint64_t losses() const { return follows_.losses; }

 private:
  struct Key {
    int ifindex;
    IpAddress address;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      return mix64(key.address.lo ^ mix64(key.address.hi ^ static_cast<uint64_t>(key.ifindex)));
    }
  };
  using Table = std::unordered_map<Key, Neighbour, Hash>;

  NeighbourWatch(NetlinkWatch follows, std::vector<int> ifindexes)
      : follows_(std::move(follows)), ifindexes_(std::move(ifindexes)) {}
  Result<void> read_all(const Changed& changed);
  // False: of no interface or family that counts.
  bool parse(const nlmsghdr* message, Neighbour& neighbour) const;
  void apply(const nlmsghdr* message, const Changed& changed);

  NetlinkWatch follows_;
  std::vector<int> ifindexes_;
  Table table_;
};

}  // namespace sluice

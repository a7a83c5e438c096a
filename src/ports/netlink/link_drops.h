// host only
// LinkDrops: what the kernel has dropped in front of an interface's queue, for methods without such a counter.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "ports/netlink/netlink_socket.h"

namespace sluice {

// Counts from when it was opened; the last number again where the interface is gone. Thread-safe.
class LinkDrops {
 public:
  static Result<LinkDrops> open(int ifindex);
  // Packets to be sent that the interface did not take.
  uint64_t tx_dropped();

 private:
  struct State {
    std::mutex mutex;
    NetlinkSocket socket;
    int ifindex;
    uint64_t before, last;
  };
  explicit LinkDrops(std::unique_ptr<State> state) : state_(std::move(state)) {}
  static bool read(NetlinkSocket& socket, int ifindex, uint64_t& dropped);
  std::unique_ptr<State> state_;
};

}  // namespace sluice

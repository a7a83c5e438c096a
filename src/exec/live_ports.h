// host only
// Live ports as sources and sinks of a run: each is opened once, whoever receives from it or sends by it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "exec/ports.h"
#include "memory/frame_pool.h"
#include "ports/port.h"

namespace sluice {

struct Plan;

// The state of an interface of the kernel.
enum class LinkState : uint8_t {
  kUp,
  kNoCarrier,  // the other end is not there
  kDown,       // somebody set it down
  kGone,       // it was removed
};
// "up", "no carrier", "down", "gone".
const char* to_string(LinkState state);

// What a port did. Counters by queue.
struct LivePortReport {
  PortFacts facts;
  LinkState link = LinkState::kUp;
  uint64_t link_changes = 0;  // of its state, since the run began
  std::vector<RxCounters> rx;
  std::vector<TxCounters> tx;
};

class LivePorts {
 public:
  // Opens all ports that elements of the router name, with queues for `workers`. nullptr: there are none. Each that
  // cannot be opened is added to `errors`.
  static std::unique_ptr<LivePorts> open(const Router& router, const Plan& plan, unsigned workers, Error& errors);

  // Whether a router has live ports.
  static bool any(const Router& router);
  // Whether all live ports of a router are open.
  bool has_all(const Router& router) const;

  // Queues of the port that has most.
  unsigned most_rx_queues() const;
  // Queues that `spec` receives by.
  unsigned rx_queues(const PortSpec& spec) const;
  Result<std::unique_ptr<BatchSource>> open_source(const PortSpec& spec, unsigned queue);
  // It has a queue for each worker, as far as the port has so many.
  Result<std::unique_ptr<PacketSink>> open_sink(const PortSpec& spec);

  std::shared_ptr<FramePool> shared_pool() const { return pool_; }
  // From any thread.
  std::vector<LivePortReport> report() const;

  // What the kernel says of its interfaces. From one thread at a time.
  // The name of the port on an interface; empty: none is.
  std::string name_of(int ifindex) const;
  void link_changed(int ifindex, LinkState state);
  // Addresses of any interface were added or removed. Errors: the first port's.
  Result<void> addresses_changed();

 private:
  class Source;
  class Sink;
  struct Open {
    PortOptions options;
    std::unique_ptr<Port> port;
    int ifindex = 0;  // 0: no interface of the kernel
    std::atomic<LinkState> link{LinkState::kUp};
    std::atomic<uint64_t> link_changes{0};
    std::vector<std::shared_ptr<RxQueue>> rx;  // kept for their counters
    std::vector<std::shared_ptr<TxQueue>> tx;
  };
  Open& of(const PortSpec& spec) const;
  static unsigned queues_of(const Open& open, unsigned most);

  std::shared_ptr<FramePool> pool_;
  std::vector<std::unique_ptr<Open>> ports_;
};

}  // namespace sluice

// host only
// Live ports as sources and sinks of a run: each is opened once, whoever receives from it or sends by it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/ports.h"
#include "memory/frame_pool.h"
#include "ports/port.h"

namespace sluice {

struct Plan;

// What a port did. Counters by queue.
struct LivePortReport {
  PortFacts facts;
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

 private:
  class Source;
  class Sink;
  struct Open {
    PortOptions options;
    std::unique_ptr<Port> port;
    std::vector<std::shared_ptr<RxQueue>> rx;  // kept for their counters
    std::vector<std::shared_ptr<TxQueue>> tx;
  };
  Open& of(const PortSpec& spec) const;
  static unsigned queues_of(const Open& open, unsigned most);

  std::shared_ptr<FramePool> pool_;
  std::vector<std::unique_ptr<Open>> ports_;
};

}  // namespace sluice

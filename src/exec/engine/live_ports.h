// host only
// Live ports as sources and sinks of a run: each is opened once, whoever receives from it or sends by it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exec/engine/ports.h"
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
  bool closed = false;  // a graph that followed does not name it
  LinkState link = LinkState::kUp;
  uint64_t link_changes = 0;  // of its state, since the run began
  std::vector<RxCounters> rx;
  std::vector<TxCounters> tx;
};

// Sources and sinks live no longer than this. What packets go by is changed only while nobody uses it (Engine::ask).
class LivePorts {
 private:
  struct Open;

 public:
  LivePorts();
  ~LivePorts();
  // Opens all ports that elements of the router name, with queues for `workers`. nullptr: there are none. Each that
  // cannot be opened is added to `errors`.
  static std::unique_ptr<LivePorts> open(const Router& router, const Plan& plan, unsigned workers, Error& errors);
  // The same for the graph that is to follow, beside the one that runs: what is open is not opened again.
  void open_more(const Router& router, const Plan& plan, Error& errors);
  // Ports that a graph does not name; they close with it, once what they were given has left. That takes a while, and
  // nobody else waits for it.
  class Closing {
   public:
    Closing();
    Closing(Closing&&) noexcept;
    Closing& operator=(Closing&&) = delete;
    ~Closing();

   private:
    friend class LivePorts;
    struct One;
    LivePorts* ports_ = nullptr;
    std::vector<std::unique_ptr<Open>> unused_;  // of a graph that did not follow
    std::vector<One> closing_;
  };
  // Takes out ports that the graph does not name, and of those that it only sends by what receives: that is the
  // kernel's again. They have no sources and sinks.
  Closing close_all_but(const Router& router, const Plan& plan);

  // Whether a router has live ports.
  static bool any(const Router& router);

  // Queues of the port that has most.
  unsigned most_rx_queues() const;
  // Queues that `spec` receives by.
  unsigned rx_queues(const PortSpec& spec) const;
  // A queue may have several sources, of graphs that follow each other: one of them is read.
  Result<std::unique_ptr<BatchSource>> open_source(const PortSpec& spec, unsigned queue);
  // All its queues, in turn.
  Result<std::unique_ptr<BatchSource>> open_source(const PortSpec& spec);
  // It has a queue for each worker, as far as the port has so many.
  Result<std::unique_ptr<PacketSink>> open_sink(const PortSpec& spec);

  // Of the ports that the run began with.
  std::shared_ptr<FramePool> shared_pool() const { return pools_[0]; }
  // From any thread.
  std::vector<LivePortReport> report() const;

  // What the kernel says of its interfaces. From one thread at a time.
  // The name of the port on an interface; empty: none is.
  std::string name_of(int ifindex) const;
  void link_changed(int ifindex, LinkState state);
  // Addresses of any interface were added or removed. Errors: the first port's.
  Result<void> addresses_changed();

  // Ports whose interface is gone, opened anew at the one that has its name now.
  class Again {
   public:
    Again();
    ~Again();

   private:
    friend class LivePorts;
    struct One;
    std::vector<One> ports_;
  };
  // nullptr: none of that name is gone. Errors: one cannot be opened.
  Result<std::unique_ptr<Again>> open_again(const std::string& name);
  // Sources and sinks go by those from here on; what was before goes with `again`. False: a graph has taken their place
  // meanwhile, or opened more of their queues; nothing has changed then.
  bool exchange(Again& again);

 private:
  class Source;
  class Sink;
  struct Wanted;
  std::vector<Wanted> wanted(const Router& router, const Plan& plan, Error& errors) const;
  Open* find(const std::string& name, bool receives) const;
  Open& of(const PortSpec& spec, bool receives) const;
  void drop_pools();
  static unsigned queues_of(const Open& open, unsigned most);
  static unsigned rx_queues(const Open& open);
  Result<std::unique_ptr<BatchSource>> open_source(Open& open, std::vector<unsigned> queues);

  unsigned workers_ = 1;
  mutable std::mutex mutex_;  // what is open, for those who look
  std::vector<std::shared_ptr<FramePool>> pools_;
  std::vector<std::unique_ptr<Open>> ports_;
};

}  // namespace sluice

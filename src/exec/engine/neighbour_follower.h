// host only
// NeighbourFollower: follows the kernel's interfaces and neighbours during a run, and has it resolve those that packets
// wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"
#include "ports/netlink/link_watch.h"
#include "ports/netlink/neighbour_watch.h"
#include "tables/adjacency/neighbours.h"

namespace sluice {

class NeighbourFollower {
 public:
  // Of the network namespace that the caller is in; knows all there is when it returns. Errors: the system's.
  static Result<std::unique_ptr<NeighbourFollower>> create();
  ~NeighbourFollower() { stop(); }

  const std::shared_ptr<Neighbours>& neighbours() const { return neighbours_; }

  // Called from the follower's thread.
  struct Hooks {
    // Next hops may be other neighbours, or have other MACs. False: they could not be taken up now, and it is called
    // again soon.
    std::function<bool()> publish;
    // An interface is another; nullptr: there was none, it is gone.
    LinkWatch::Changed link;
  };
  // Starts the thread; once. Errors: none can be started.
  Result<void> start(Hooks hooks);
  // From any thread: calls Hooks::publish.
  void publish();
  // Ends the thread, after the hook that it is in. Nothing happens where it was not started.
  void stop();

 private:
  NeighbourFollower() = default;
  void follow();
  void take_links(const KernelLink* before, const KernelLink* after);
  bool take(const Neighbour& neighbour, bool gone);
  void wake() const;

  static constexpr uint64_t kRefreshNs = 1'000'000'000;  // between two looks for neighbours that have become stale
  static constexpr uint64_t kPublishNs = 10'000'000;     // between two publications
  static constexpr uint64_t kRetryNs = 100'000'000;      // after errors of the kernel

  std::unique_ptr<LinkWatch> links_;
  std::unique_ptr<NeighbourWatch> watch_;
  std::shared_ptr<Neighbours> neighbours_ = std::make_shared<Neighbours>();
  Hooks hooks_;
  int event_ = -1;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> publish_{false};
  std::jthread thread_;
};

}  // namespace sluice

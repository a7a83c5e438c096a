// host only
// Egress: what becomes of a batch once a worker is done with it. The sinks of a run: order, rates of elements, delays,
// classes of service, writing and counting.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/count.h"
#include "exec/engine/batch_sizer.h"
#include "exec/engine/egress_limiter.h"
#include "exec/engine/egress_merge.h"
#include "exec/engine/egress_qos.h"
#include "exec/engine/egress_wheel.h"
#include "exec/engine/generation.h"
#include "exec/engine/job.h"
#include "exec/engine/neighbour_wait.h"
#include "exec/engine/run.h"

namespace sluice {

// One thread at a time commits; which, may change from job to job (`lock`).
class Egress {
 private:
  struct Output {
    unsigned element = kNobody;  // of the graph that runs; kNobody: it went with a graph before
    PortSpec spec;
    std::unique_ptr<PacketSink> port;  // nullptr: it drops
    RunReport::Sink sent;
    EgressQos::Drops drops{};            // of its classes of service
    std::unique_ptr<EgressWheel> wheel;  // none: nothing delays packets
    uint64_t room = 0;                   // of the wheel
  };

 public:
  // Opens the sinks; `links` are those of the plan's sources, `delayed` is OrderedNodes::delayed. The arguments outlive
  // it, a graph until another one follows. Each sink that cannot be opened is added to `errors`.
  Egress(const Router& router, const Plan& plan, const RunOptions& options, LivePorts* live_ports,
         std::span<const LinkType> links, uint64_t delayed, Error& errors);

  // Whoever calls anything of what follows holds it, where the run has several threads.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  std::unique_lock<std::mutex> try_lock() { return std::unique_lock(mutex_, std::try_to_lock); }

  // Another graph in the place of the one that runs. `open` opens those of its sinks that do not go on with an output
  // that is there: that of the same element, or of the same file. It changes nothing, and others may commit meanwhile.
  // Each sink that cannot be opened, or would write an output in another way, is added to `errors`.
  struct Next {
    struct Place {
      size_t goes_on = ~size_t{0};     // an output
      std::unique_ptr<Output> opened;  // else
    };
    const Router* router;
    const Plan* plan;
    uint64_t delayed;
    std::vector<Place> sinks;  // of the plan
  };
  std::unique_ptr<Next> open(const Router& router, const Plan& plan, std::span<const LinkType> links, uint64_t delayed,
                             Error& errors) const;
  // Between two commits: from here on packets come to the sinks of that graph. Outputs that it has not appear at the
  // end with the others; what waits there leaves. Counters and rates follow elements by name and class.
  void follow(std::unique_ptr<Next> next);

  // By the worker that has run the job, before it is committed, and without the lock: counts packets that nobody reads,
  // so that whoever commits need not look at them. `batch` has the packets. True: that was all of them.
  bool count(unsigned worker, Batch& batch, JobShare& share);
  // The jobs of one class come in their order. A job's records are not used any more. After an error everything that
  // should have left is counted as dropped.
  void commit(Job& job, uint32_t qos_class);
  // Whether packets of classes that overtake each other go on from here in the order of the input: rates and classes of
  // service go by their time stamps, as without priorities. Their jobs then say which they are (Job::numbers), and
  // numbers that no job has are told by `skip`, which takes the lock. Live ports stamp packets as they come, and a
  // class that is fast does not wait for others there.
  static bool in_order(const Router& router, const RunOptions& options, const LivePorts* live_ports);
  void skip(const std::vector<uint64_t>& numbers);
  // So many packets wait for others that came before them. From any thread.
  uint64_t waiting_in_order() const { return waiting_in_order_.load(std::memory_order_relaxed); }
  // Packets that the packet scheduler brings to sink `s` of the plan, in their order; what `records` refer to lasts
  // until the return. `records` is used up.
  void take(size_t s, std::vector<TxRecord>& records);
  // Whether nobody reads the packets of a batch one by one: they are only counted.
  bool only_counts(const JobShare& share) const;
  // Whether it reads no packets but those that are followed.
  bool counts_only() const;
  // What came of a batch there; `lender` as of TxRecord::pool. The rows whose frames sinks took, until the next call.
  const Selection& take(Batch& batch, JobShare& share, FramePool* lender);
  // Whether packets end there.
  bool drops(size_t s) const { return outputs_[at_[s]]->port == nullptr; }
  // What HostContext::limiter gives packets of an element; 0: none.
  uint8_t limiter_of(unsigned element) const;
  // Lets readers of outputs have what was written so far: the input makes us wait.
  void flush();
  // Makes live ports send what they were given.
  void kick() {
    for (const auto& output : outputs_) {
      if (output->port != nullptr) output->port->kick();
    }
  }
  // It is `now_ns`, as live ports stamp packets: what waits until then leaves. `next_ns`: nothing leaves before.
  void advance(uint64_t now_ns);
  // What waits for a neighbour leaves if that is known, or is dropped if it has waited too long; in the machine's time.
  void look_at_neighbours();
  uint64_t next_ns() const;
  // The input is at its end, or an output failed: what waits for its time leaves.
  void drain();
  // All outputs are on the disk.
  void settle();
  // Ends the outputs, and gives the files that are to appear; not called: none does.
  void end(Ending ending, std::vector<AtomicFile>& files);
  // Nothing comes any more.
  void close();

  // Some output failed, and what it said.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  const Result<void>& result() const { return result_; }
  // How many packets a batch takes, as to the latency of those that were committed. From any thread.
  struct BatchLimit {
    uint32_t packets, round;
  };
  BatchLimit batch_limit() const {
    const uint64_t word = batch_limit_.load(std::memory_order_relaxed);
    return {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
  }

  // Adds its counters.
  void report(RunReport& report);
  void report_at_end(RunReport& report) const;
  void report_class(PriorityReport& report, uint32_t qos_class) const;
  EgressQos* qos() { return qos_.get(); }

 private:
  struct Limiter : EgressLimiter {
    unsigned element;  // kNobody: it went with a graph before
  };
  struct Class {
    uint64_t committed = 0, stolen = 0, early = 0;
    Histogram latency;
  };

  struct Free {
    void operator()(PortCounters* ports) const { std::free(ports); }
  };
  // By port: zero pages until they are used.
  struct Ports {
    std::unique_ptr<PortCounters[], Free> of;
    size_t end = 0;  // none from here on was used
    Ports();
  };
  // What a worker counted itself.
  struct Counted {
    struct Sent {
      Count packets, bytes;
    };
    Ports ports;
    std::deque<Sent> sent;  // by output
  };

  void put_out(Batch& batch, JobShare& share, unsigned lane, FramePool* lender);
  void print(const JobShare& share);
  void put_in_order(Job& job);
  void leave_in_order(bool all);
  // `o`: of outputs_.
  // `sums`: as JobShare's.
  void count_sent(size_t o, Batch& batch, Selection& rows, std::span<const JobShare::Passed> sums = {});
  void write(size_t o, std::vector<TxRecord>& records);
  void put(size_t o, std::vector<TxRecord>& records);
  bool marked(size_t o, const Batch& batch, const Selection& rows);
  void put_rows(size_t o, Batch& batch, Selection& left, FramePool* lender);
  bool address(size_t o, const TxRecord& record);
  void release_known();
  void drop_late();
  void send(size_t o, std::vector<TxRecord>& records);
  void drain(size_t o);
  void add_output(std::unique_ptr<Output> output, unsigned element, uint64_t delayed);
  bool admit(const TxRecord& record);
  void tell_ended(const Job& job);
  // Packets that are followed: where they came to before they are put out, and those that came nowhere afterwards.
  void begin_followed(Job& job);
  void end_followed(JobShare& share);
  void place_followed(JobShare& share, bool after_rates);
  void ended(uint32_t followed, const std::string& element, uint16_t port, DropReason reason);
  void give_back(Job& job);
  void say_limit() { batch_limit_.store(sizer_.round() << 32 | sizer_.limit(), std::memory_order_relaxed); }
  void fail(Result<void> why);
  uint64_t& drops_of(unsigned element, DropReason reason) {
    return (element == kNobody ? gone_ : stats_.elements[element]).drops[static_cast<size_t>(reason)];
  }

  const Router* router_;
  const Plan* plan_;
  const RunOptions& options_;
  LivePorts* live_ports_;  // nullptr: the run has none
  std::mutex mutex_;
  std::vector<std::unique_ptr<Output>> outputs_;  // of all graphs of the run
  std::vector<size_t> at_;                        // by sink of the plan
  std::vector<std::string> placed_;               // by output: where it is at the end
  std::vector<Limiter> limiters_;
  std::unique_ptr<EgressQos> qos_;        // none: no classes of service
  std::unique_ptr<NeighbourWait> waits_;  // none: no frame is marked
  EgressMerge merge_;                     // of jobs with numbers
  std::atomic<uint64_t> waiting_in_order_{0};
  uint64_t known_ = 0;  // Neighbours::changes() that are taken in
  Ports ports_;
  std::vector<std::unique_ptr<Counted>> counted_;  // by worker, where there are several
  std::vector<Class> classes_;
  WorkerStats stats_;
  ElementCounters gone_;  // of elements that went with graphs before
  BatchSizer sizer_;
  std::atomic<uint64_t> batch_limit_{0};
  uint64_t committed_ = 0;  // packets
  uint64_t generation_ = 0;
  Result<void> result_;
  std::atomic<bool> failed_{false};
  std::unordered_map<uint32_t, std::shared_ptr<FollowedPacket>> followed_;  // that sinks have, by FollowedRow::id
  uint64_t lost_chunks_ = 0;  // of a pool: devices that were given up may still write there
  // Room to work in.
  Selection taken_;                 // rows of the job that sinks took
  std::vector<uint8_t*> returned_;  // frames of the others
  std::vector<TxRecord> merged_;
  std::vector<TxRecord*> limited_;
  std::vector<TxRecord> departing_;             // of leaving_ and of what waited for its rate or turn
  std::vector<TxRecord> addressed_;             // of what waited for a neighbour
  std::vector<TxRecord> leaving_;               // of merged_ and of what waited, those that leave now
  std::vector<std::vector<TxRecord>> ordered_;  // by sink: what leaves merge_
  std::vector<const PrintRecord*> prints_;
};

// Adds what is wrong with the port of element `e`.
void add_port_error(const Router& router, unsigned e, const Error& error, Error& errors);
// Those errors, if there are any.
Result<void> ports_opened(Error errors);

}  // namespace sluice

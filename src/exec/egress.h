// host only
// Egress: what becomes of a batch once a worker is done with it. The sinks of a run: order, rates of elements, delays,
// classes of service, writing and counting.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exec/batch_sizer.h"
#include "exec/egress_limiter.h"
#include "exec/egress_qos.h"
#include "exec/egress_wheel.h"
#include "exec/job.h"
#include "exec/run.h"

namespace sluice {

// One thread at a time commits; which, may change from job to job (`lock`).
class Egress {
 public:
  // Opens the sinks; `links` are those of the plan's sources, `delayed` is OrderedNodes::delayed. The arguments outlive
  // it. Each sink that cannot be opened is added to `errors`.
  Egress(const Router& router, const Plan& plan, const RunOptions& options, std::span<const LinkType> links,
         uint64_t delayed, LivePorts* live_ports, Error& errors);

  // Whoever calls anything of what follows holds it, where the run has several threads.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  std::unique_lock<std::mutex> try_lock() { return std::unique_lock(mutex_, std::try_to_lock); }

  // The jobs of one class come in their order. A job's records are not used any more. After an error everything that
  // should have left is counted as dropped.
  void commit(Job& job, uint32_t qos_class);
  // Lets readers of outputs have what was written so far: the input makes us wait.
  void flush();
  // Makes live ports send what they were given.
  void kick() {
    for (const auto& sink : sinks_) {
      if (sink != nullptr) sink->kick();
    }
  }
  // It is `now_ns`, as live ports stamp packets: what waits until then leaves. `next_ns`: nothing leaves before.
  void advance(uint64_t now_ns);
  uint64_t next_ns() const;
  // The input is at its end, or an output failed: what waits for its time leaves.
  void drain();
  // Ends the outputs, whole or partial; not called: none appears.
  void end(Ending ending);
  // Nothing comes any more.
  void close() { sinks_.clear(); }

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
    unsigned element;
  };
  struct Class {
    uint64_t committed = 0, stolen = 0, early = 0;
    Histogram latency;
  };

  void count_sent(size_t sink, Batch& batch, Selection& rows);
  void write(size_t sink, std::vector<TxRecord>& records);
  void send(size_t sink, std::vector<TxRecord>& records);
  void tell_ended(const Job& job);
  void give_back(Job& job);
  void say_limit() { batch_limit_.store(sizer_.round() << 32 | sizer_.limit(), std::memory_order_relaxed); }
  void fail(Result<void> why);
  uint64_t& drops_of(unsigned element, DropReason reason) {
    return stats_.elements[element].drops[static_cast<size_t>(reason)];
  }

  const Router& router_;
  const Plan& plan_;
  const RunOptions& options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PacketSink>> sinks_;  // nullptr: it drops
  std::vector<RunReport::Sink> counters_;
  std::vector<std::string> placed_;  // by sink: where its output is at the end
  std::vector<Limiter> limiters_;
  std::vector<std::unique_ptr<EgressWheel>> wheels_;  // by sink; none: nothing delays packets
  std::unique_ptr<EgressQos> qos_;                    // none: no classes of service
  std::vector<PortCounters> ports_;
  std::vector<Class> classes_;
  WorkerStats stats_;
  BatchSizer sizer_;
  std::atomic<uint64_t> batch_limit_{0};
  uint64_t committed_ = 0;  // packets
  uint64_t generation_ = 0;
  Result<void> result_;
  std::atomic<bool> failed_{false};
  uint64_t lost_chunks_ = 0;  // of a pool: devices that were given up may still write there
  // Room to work in.
  Selection taken_;                 // rows of the job that sinks took
  std::vector<uint8_t*> returned_;  // frames of the others
  std::vector<TxRecord> merged_;
  std::vector<TxRecord*> limited_;
  std::vector<TxRecord> departing_;  // of leaving_ and of what waited for its rate or turn
  std::vector<TxRecord> leaving_;    // of merged_ and of what waited, those that leave now
  std::vector<const PrintRecord*> prints_;
};

// Adds what is wrong with the port of element `e`.
void add_port_error(const Router& router, unsigned e, const Error& error, Error& errors);

}  // namespace sluice

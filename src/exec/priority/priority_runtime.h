// host only
// PriorityRuntime: packets of different classes on the same workers, each class with its share of them.
//
// One thread reads, finds each packet's class by its codepoint and copies the packet to the class's open chunk, a batch
// of its own. A chunk is ready when it is full or when its time is over. Worker threads, each a group of one
// (qos/priority_buffers.h), take chunks by their homes, run them and commit them in the class's order. So packets of
// one class leave in the order of the input, on any number of workers; classes overtake each other.
//
// A copy costs a load and a store of every cache line of the frame, by the reader. It is what keeps classes apart: a
// chunk of rows in the batch that was read would hold that batch until the slowest class in it is committed, and the
// reader would soon wait for the lowest class to read for the highest.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/histogram.h"
#include "exec/egress_limiter.h"
#include "exec/runtime.h"
#include "qos/class_map.h"
#include "qos/priority_buffers.h"

namespace sluice {

struct PriorityOptions {
  // Of these: workers, batch (packets a read), max_packets, progress (packets that were read, from the reading thread),
  // print, stop, frames, fast_path, count_hits, hold.
  RunOptions run;
  ClassMap classes = ClassMap::three_priorities();
  std::vector<uint32_t> shares;   // of workers, by class; empty: default_shares of the classes that the map names
  uint32_t chunk = 256;           // packets a chunk, 1..8192
  uint64_t timeout_ns = 100'000;  // from a chunk's first packet to when it is handed on all the same
  uint32_t places = 0;            // chunks a class holds, a power of two; 0: four for each worker
  // A packet whose class has no place left is dropped (queue-full); else the reader waits for one.
  bool drop_when_full = false;
  // Not 0: packets arrive at this rate, evenly; latency counts from then. The reader polls.
  uint64_t offered_pps = 0;
};

struct PriorityReport {
  struct Class {
    uint64_t packets = 0;  // that were read
    uint64_t bytes = 0;
    uint64_t refused = 0;  // of these, dropped because no place was left
    uint64_t chunks = 0;   // committed
    uint64_t stolen = 0;   // of these, run by a worker that had its home elsewhere
    uint64_t early = 0;    // of these, handed on before they were full
    uint32_t turns = 0;    // of all workers, at home in this class
    Histogram latency;     // read (or arrival) to commit, ns, once for every packet that was not refused
  };
  RunReport run;
  std::vector<Class> classes;
  uint64_t late_ns = 0;  // with offered_pps: how much later than its arrival a packet was read, at most
};

class PriorityRuntime {
 public:
  // What `create` refuses before it opens anything. Errors: options out of range; what would see packets in another
  // order than that of the input (elements that carry state from batch to batch or keep it by worker); devices.
  static Result<void> check(const Router& router, const Plan& plan, const PriorityOptions& options);
  // `router` and `plan` outlive it. Opens all ports. Errors: as `check`; each port that cannot be opened.
  static Result<std::unique_ptr<PriorityRuntime>> create(const Router& router, const Plan& plan,
                                                         const PriorityOptions& options);
  ~PriorityRuntime();

  // As Runtime's.
  Publisher& publisher() { return publisher_; }
  HitLedger& hits() { return *ledger_; }

  // As Runtime::run. Rates that elements hold their packets to (ICMPError) hold for all classes together: which packets
  // pass then depends on the order in which chunks of different classes are committed.
  Result<void> run(PriorityReport& report);

 private:
  struct Chunk;
  struct Class;
  struct Limited {
    EgressLimiter rate;
    unsigned element;
  };
  PriorityRuntime(const Router& router, const Plan& plan, const PriorityOptions& options, std::vector<uint32_t> shares);

  Result<void> make_chunks();
  Result<bool> read();
  Result<void> take_packets(unsigned source, uint64_t read_ns);
  Result<bool> open_chunk(unsigned qos_class, unsigned source);
  void hand_on(unsigned qos_class);
  void hand_on_due(uint64_t now);
  void work(unsigned id);
  void commit(unsigned qos_class, uint64_t sequence);
  void write(Class& k, size_t sink, const Chunk& chunk);
  void fill(PriorityReport& report);

  const Router& router_;
  const Plan& plan_;
  PriorityOptions options_;
  HomePlan homes_;
  uint32_t places_;
  PriorityBuffers buffers_;
  PriorityView view_;
  OpenChunks open_;
  std::unique_ptr<HitLedger> ledger_;
  Publisher publisher_;
  std::vector<std::unique_ptr<BatchSource>> sources_;
  std::vector<bool> source_done_;
  size_t next_source_ = 0;
  std::vector<std::unique_ptr<PacketSink>> sinks_;
  std::vector<RunReport::Sink> sink_names_;
  std::vector<std::unique_ptr<Class>> classes_;
  std::vector<std::unique_ptr<Worker>> workers_;
  WorkerStats reader_stats_;  // packets that were refused
  Batch read_;
  uint64_t packets_read_ = 0;
  uint64_t late_ns_ = 0;
  uint64_t begin_ns_ = 0;
  int spins_ = 0;
  QsbrReader* reader_ = nullptr;
  alignas(64) std::atomic<uint32_t> ready_{0};  // changes with every chunk that is handed on
  alignas(64) std::atomic<uint32_t> freed_{0};  // changes with every commit
  std::atomic<bool> closed_{false};             // no chunk will come
  std::atomic<bool> failed_{false};
  bool interrupted_ = false, damaged_ = false, output_failed_ = false;
  Ending ending_ = Ending::kDiscard;
  // Sinks that read frames, limits and lines are shared by the classes: one committing thread at a time.
  std::mutex egress_;
  std::vector<Limited> limiters_;
  Result<void> output_;
  std::atomic<uint64_t> last_generation_{0};
  double seconds_ = 0;
};

}  // namespace sluice

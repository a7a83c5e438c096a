// host only
// Runtime: workers, batches and commits over one plan.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "exec/batch_sizer.h"
#include "exec/device/channel.h"
#include "exec/device/master.h"
#include "exec/device/offload.h"
#include "exec/device/resident.h"
#include "exec/egress_qos.h"
#include "exec/egress_wheel.h"
#include "exec/hits.h"
#include "exec/live_gate.h"
#include "exec/ordered.h"
#include "exec/plan.h"
#include "exec/ports.h"
#include "exec/publisher.h"
#include "exec/stats.h"
#include "exec/worker.h"

namespace sluice {

// Who speaks to a device: every worker by channels of its own, or one thread for all workers of the device.
enum class DeviceThreading : uint8_t { kFull, kMaster };
inline const char* to_string(DeviceThreading t) {
  return t == DeviceThreading::kFull ? "full" : "master";
}

// How packets reach devices. The defaults suit a GPU behind PCI Express.
struct DeviceOptions {
  std::vector<std::shared_ptr<Device>> devices;  // empty: the CPU alone. Worker w uses device w modulo their number
  DeviceMode mode = DeviceMode::kLaunch;
  Transport transport = Transport::kStaged;  // of launch mode
  RecordChoice records = RecordChoice::kAuto;
  DeviceThreading threading = DeviceThreading::kFull;
  uint32_t flights = 4;  // batches of one worker at a time
  uint32_t enter_after = 4, leave_after = 16;
  uint64_t watchdog_ns = 2'000'000'000;

  // What crosses: lists of frames are addresses.
  RecordChoice record_choice() const {
    return transport == Transport::kCommList || transport == Transport::kCommPool ? RecordChoice::kAddress : records;
  }
  // How a channel is opened for flights of up to `most` records.
  ChannelOptions channel(uint32_t most) const {
    ChannelOptions o;
    o.mode = mode;
    o.transport = transport;
    o.records = most;
    o.flights = flights;
    o.enter_after = enter_after;
    o.leave_after = leave_after;
    o.watchdog_ns = watchdog_ns;
    return o;
  }
};

// A packet that came in and is through, as whoever follows a run learns of it.
struct PacketEnd {
  uint64_t number = 0;  // from 1, in the order of the input
  PacketFate fate;
  const Snapshot* snapshot = nullptr;  // that it met
  // As it came, where RunOptions::keeps_frames; else empty.
  std::span<const uint8_t> frame;
  uint32_t wire_bytes = 0;
  uint64_t timestamp_ns = 0;
};

struct RunOptions {
  unsigned workers = 1;  // 1..256 threads that run programs; with more than one, a further thread reads and writes
  uint32_t batch = 256;  // packets a batch, 1..8192
  // Not 0: batches are made smaller while they take longer than this from their reading to their end, and larger again
  // up to `batch`. The result does not depend on it; with several sources, which take turns by batches, it has no
  // effect.
  uint64_t latency_target_ns = 0;
  uint32_t least_batch = 0;                          // they are not made smaller than this
  uint64_t max_packets = ~uint64_t{0};               // stop reading after about this many
  std::function<void(uint64_t packets)> progress;    // called now and then from the committing thread
  std::function<void(std::string_view text)> print;  // lines of Print elements, in packet order; none: they are lost
  const std::atomic<bool>* stop = nullptr;           // set from elsewhere (a signal): finish what was read, then stop
  InputSet* inputs = nullptr;                        // where sources find their captures open; else they open them
  bool stop_is_end = false;                          // a run without another end: with `stop` it is whole
  // Whether `stop` was asked for: then what an input says is what the signal did to it.
  bool stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
  std::shared_ptr<FrameCache> frames;  // that memory sources play; none: each runtime loads its own
  // False: every packet takes the ordinary path. For comparison: the result is the same.
  bool fast_path = true;
  // Called for every packet that came in, in order, from the committing thread; then no packet takes the fast path.
  std::function<void(const PacketEnd& packet)> ended;
  bool keeps_frames = false;  // for `ended`
  // Packets are counted by the rules of access lists that decided (Runtime::hits).
  bool count_hits = false;
  bool live = false;  // somebody may call Runtime::look during the run
  // Called once all input is read and all output committed, before devices are stopped: the run lasts until it returns,
  // and generations may still be published.
  std::function<void()> hold;
  // Classes of service at every sink. Without marks, which sinks do not see.
  std::shared_ptr<const QosModel> qos;
  DeviceOptions device;
};

// What one device did.
struct DeviceReport {
  DeviceInfo info;
  ChannelStats channels;
  DevicePower power;
  size_t resident_bytes = 0;         // of the last generation
  size_t uploaded_bytes = 0;         // of all generations
  uint64_t refused_generations = 0;  // that could not be put there: they ran on the host
  uint64_t master_flights = 0;       // with master threading: flights of the master; channels.flights are the workers'
  std::string failure;               // empty: none
  bool still_running = false;        // at the end it was not done with what it had been given: see kept_runs
};

struct RunReport {
  struct Sink {
    std::string element;
    std::string path;  // at the end: where the output is
    uint64_t packets = 0;
    uint64_t bytes = 0;
  };
  uint64_t packets_in = 0;
  uint64_t bytes_in = 0;
  uint64_t generated = 0;  // clones, ICMP errors
  uint64_t packets_out = 0;
  uint64_t bytes_out = 0;
  std::map<uint16_t, PortCounters> ports;  // by the adjacency's output port
  std::vector<Sink> sinks;
  bool has_classes = false;        // with RunOptions::qos
  std::vector<QosPortReport> qos;  // of these: by sink and port, where packets have come
  WorkerStats totals;              // elements and drops summed over workers
  std::array<uint64_t, kDropReasons> drops{};
  uint64_t dropped = 0;
  double seconds = 0;
  uint64_t generation = 0;
  unsigned workers = 1;
  bool interrupted = false;  // RunOptions::stop came before the end of the input
  // Outputs are NAME.partial, because of that or of damaged input; those that are not files hold what there was.
  bool partial = false;
  bool output_failed = false;  // which the error of the run is about: no output has appeared
  struct BatchSize {
    uint64_t target_ns = 0;  // 0: none, or without effect
    uint32_t limit = 0;      // at the end
    uint64_t raised = 0, lowered = 0;
  } batch;
  std::vector<DeviceReport> devices;
  DeviceCounters offload;
  std::vector<DeviceCounters> segments;  // the same by node of the plan; empty without devices
  // Memory with frames that devices were given up with, as they may still write there: not used again.
  size_t set_aside_bytes = 0;

  uint64_t queued = 0;  // still held by queues at the end (packet scheduler)

  // Every packet that came in or was made has left, was dropped with a reason, or is still in a queue.
  bool conserved() const { return packets_in + generated == packets_out + dropped + queued; }
};

// Runs that are over, but not for some device of theirs. It may still read and write what records named, so that is
// kept: frames, tables and channels. This looks again, frees what belongs to runs whose devices have all stopped since,
// and says how many are left. Thread-safe; Runtime::create calls it.
size_t kept_runs();

// Packets of one flow always meet the same worker. Outputs are written in the order of the input, so the result does
// not depend on the number of workers.
class Runtime {
 public:
  // `router` and `plan` outlive the runtime. Opens all ports. Errors: each port that cannot be opened.
  static Result<std::unique_ptr<Runtime>> create(const Router& router, const Plan& plan, const RunOptions& options);
  ~Runtime();

  // Where generations come from. At least one must be published before `run`; others may follow from any other thread.
  Publisher& publisher() { return publisher_; }

  // Reads all sources to their ends and commits the outputs. Errors: damaged input, then the outputs are partial; an
  // output that failed, then none appears. The report is valid in both cases. Call once.
  Result<void> run(RunReport& report);

  // The counters of a run that goes on, each thread's as of one moment, so that what is between two of them is missing
  // from the sums; without devices and ports. From one other thread, between `create` and the end of `run`.
  // Precondition: options.live. Errors: a thread gave none within a second.
  Result<void> look(RunReport& report);

  // Runs `change` between two batches, and once all packets are through. Thread and precondition as of `look`. Errors:
  // those of `change`; options.qos was not given; no answer within a second, then it may still be made.
  Result<void> change_qos(std::function<Result<void>(EgressQos&)> change);

  // What sinks find of a packet besides its frame (Plan::at_sinks).
  FieldMask at_sinks() const { return plan_.at_sinks; }

  // The counters of access lists. Precondition: options.count_hits. Thread-safe, also after the run.
  HitLedger& hits() { return *ledger_; }

 private:
  struct Live;
  struct Job;
  struct Limiter;
  Runtime(const Router& router, const Plan& plan, const RunOptions& options);

  bool ready();
  Result<void> flush_sinks();
  Result<bool> read(Job& job);
  void follow(Job& job);
  void tell_ended(const Job& job);
  void steer(Job& job);
  Result<void> commit(Job& job);
  Result<void> make_jobs(size_t count);
  Result<void> exchange_frames(Job& job);
  void stop_devices();
  void write_out(size_t sink, std::vector<TxRecord>& records, Result<void>& result);
  void send(size_t sink, std::vector<TxRecord>& records, Result<void>& result);
  Result<void> drain_wheels();
  void output_failed(Result<void>& result, Result<void> why);
  void make_egress_qos();
  void count_sent(size_t s, Batch& batch, Selection& rows);
  Result<void> run_inline();
  Result<void> run_threads();
  void fill(RunReport& report);
  void sum_up(RunReport& report, const std::vector<RunReport::Sink>& sinks, uint64_t generation, double seconds);
  void prepare(Snapshot& snapshot);
  Result<void> open_channels();
  void make_resident(Snapshot& snapshot);
  void pin(Batch& batch);
  bool pooled() const;
  Result<void> open_pools(Device& device, const ChannelOptions& options, WorkerDevice& worker);

  // A device and what the runtime keeps for it.
  struct DeviceState {
    std::shared_ptr<Device> device;
    PinnedRanges pinned;
    std::vector<void*> pins;
    std::unique_ptr<MasterThread> master;  // with master threading
    DeviceReport report;
    std::mutex mutex;  // report, from the publishing thread
  };
  struct Kept;
  friend size_t kept_runs();
  static Result<void> stop_device(DeviceState& state, size_t index, const std::vector<const WorkerDevice*>& workers,
                                  uint64_t limit_ns);

  const Router& router_;
  const Plan& plan_;
  RunOptions options_;
  std::vector<Offload> offloads_;
  std::vector<std::unique_ptr<DeviceState>> devices_;
  uint32_t loads_ = 0;  // generations that were made resident
  std::unique_ptr<HitLedger> ledger_;
  std::unique_ptr<Live> live_;
  Publisher publisher_;
  std::vector<std::unique_ptr<BatchSource>> sources_;
  std::vector<bool> source_done_;
  size_t next_source_ = 0;
  uint32_t turn_left_ = 0;  // packets that it may still give before the next one's turn, where there are several
  std::vector<std::unique_ptr<PacketSink>> sinks_;
  std::vector<RunReport::Sink> sink_counters_;
  // Frames outlive the channels, by which devices are waited for.
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<Buffer> set_aside_;  // arenas of jobs, one a job at most
  bool stopped_ = false;           // no device is given anything more
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Limiter> limiters_;
  std::unique_ptr<OrderedNodes> ordered_;             // none: the plan has none
  std::vector<std::unique_ptr<EgressWheel>> wheels_;  // by sink; none: nothing delays packets
  std::unique_ptr<EgressQos> qos_;                    // none: no classes of service
  std::vector<PortCounters> ports_;
  WorkerStats commit_stats_;  // what happens at egress
  std::vector<TxRecord> merged_;
  std::vector<TxRecord*> limited_;
  std::vector<TxRecord> departing_;  // of leaving_ and of what waited for its rate or turn
  std::vector<TxRecord> leaving_;    // of merged_ and of what waited, those that leave now
  std::vector<const PrintRecord*> prints_;
  BatchSizer sizer_{0, 1};
  bool interrupted_ = false, damaged_ = false, output_failed_ = false;
  Ending ending_ = Ending::kDiscard;
  std::vector<std::string> placed_;  // by sink: where its output is at the end
  uint64_t read_ = 0;
  uint64_t batches_ = 0;  // that were read
  uint64_t committed_ = 0;
  uint64_t last_generation_ = 0;
  std::atomic<uint64_t> started_ns_{0}, ended_ns_{0};
  double seconds_ = 0;
};

}  // namespace sluice

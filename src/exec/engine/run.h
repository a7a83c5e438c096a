// host only
// What a run is asked for, and what it says at its end.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "base/run_files.h"
#include "exec/account/counters.h"
#include "exec/account/packet_taps.h"
#include "exec/device/channel.h"
#include "exec/device/offload.h"
#include "exec/engine/egress_qos.h"
#include "exec/engine/live_ports.h"
#include "exec/engine/ports.h"
#include "qos/class_map.h"
#include "tables/adjacency/neighbours.h"

namespace sluice {

struct GraphGeneration;
class RuleLog;

// Who speaks to a device: every worker by channels of its own, or one thread for all workers of the device.
enum class DeviceThreading : uint8_t { kFull, kMaster };
inline const char* to_string(DeviceThreading t) {
  return t == DeviceThreading::kFull ? "full" : "master";
}

// How packets reach devices. The defaults suit a GPU behind PCI Express.
struct DeviceOptions {
  std::vector<std::shared_ptr<Device>> devices;  // empty: the CPU alone. Worker w uses device w modulo their number
  DeviceMode mode = DeviceMode::kLaunch;
  bool any_mode = false;                     // persistent where frames cross and there is room
  Transport transport = Transport::kStaged;  // of launch mode, and of frames
  RecordChoice records = RecordChoice::kAuto;
  // Frames of sources that lend them lie in the devices' memory, where each is copied once, and what becomes of them
  // comes back where somebody reads it.
  bool frames_there = false;
  DeviceThreading threading = DeviceThreading::kFull;
  // kAuto: from so many packets per batch on, frames cross (docs/devices.md).
  uint32_t frame_batch = 1024;
  uint32_t flights = 4;      // batches of one worker at a time
  bool any_flights = false;  // more where frames cross and workers are few
  uint32_t enter_after = 4, leave_after = 16;
  // A device without progress for so long has failed. None: 2 s; 60 s where all are emulated, which wait for processors
  // as other programs' threads do.
  std::optional<uint64_t> watchdog_ns;

  // What crosses with batches of up to `batch` packets.
  RecordChoice record_choice(uint32_t batch) const {
    if (records != RecordChoice::kAuto) return records;
    // Each worker sends its own frames.
    if (threading != DeviceThreading::kFull) return RecordChoice::kKey;
    if (transport == Transport::kCommList || transport == Transport::kCommPool) return RecordChoice::kFrame;
    return batch >= frame_batch ? RecordChoice::kAutoFrames : RecordChoice::kAuto;
  }
  // Frames that are copied to a pool go by launched kernels, and so do those of more workers and segments than a device
  // has room for resident kernels.
  DeviceMode mode_of(std::span<const Offload> offloads, unsigned workers) const {
    constexpr size_t kMostServed = 16;
    size_t served = 0;
    for (const Offload& o : offloads) served += o.crosses_as_frames() ? workers : o.on_device ? 2 * workers : 0;
    const size_t each = devices.empty() ? served : (served + devices.size() - 1) / devices.size();
    const bool fits = any_mode && !pooled() && crosses_as_frames(offloads) && each <= kMostServed;
    return fits ? DeviceMode::kPersistent : mode;
  }
  // Frames are copied to a pool on the device, which launched kernels alone have copies around them for.
  bool pooled() const { return transport == Transport::kCommPool && mode == DeviceMode::kLaunch; }
  // Frames keep the bus busy by 16 batches on their way.
  uint32_t flights_of(std::span<const Offload> offloads, unsigned workers) const {
    return any_flights && crosses_as_frames(offloads) ? std::max(flights, 16 / workers) : flights;
  }
  static bool crosses_as_frames(std::span<const Offload> offloads) {
    return std::any_of(offloads.begin(), offloads.end(), [](const auto& o) { return o.crosses_as_frames(); });
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
    const bool emulated = std::ranges::all_of(devices, [](const auto& device) { return device->info().kind == "emu"; });
    o.watchdog_ns = watchdog_ns.value_or(emulated ? 60'000'000'000 : 2'000'000'000);
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

// Packets of different classes on the same workers, each class with its share of them.
struct PriorityOptions {
  ClassMap classes = ClassMap::three_priorities();
  std::vector<uint32_t> shares;   // of workers, by class; empty: default_shares of the classes that the map names
  uint32_t chunk = 256;           // packets a chunk, 1..8192
  uint64_t timeout_ns = 100'000;  // from a chunk's first packet to when it is handed on all the same
  uint32_t places = 0;            // chunks a class holds, a power of two; 0: four for each worker
  // A packet whose class has no place left is dropped (queue-full); else the input waits for one.
  bool drop_when_full = false;
  // Not 0: packets arrive at this rate, evenly; latency counts from then. Workers poll.
  uint64_t offered_pps = 0;
};

// How workers of live ports wait for packets: never sleeping; polling for some microseconds after the last packets;
// sleeping at once.
enum class PollMode : uint8_t { kSpin, kAdaptive, kInterrupt };

struct RunOptions {
  unsigned workers = 1;  // 1..256 threads: all read, run programs and write
  uint32_t batch = 256;  // packets a batch, 1..8192
  // Not 0: batches are made smaller while they take longer than this from their reading to their end, and larger again
  // up to `batch`. The result does not depend on it; with several sources, which take turns by batches, it has no
  // effect.
  uint64_t latency_target_ns = 0;
  uint32_t least_batch = 0;             // they are not made smaller than this
  uint64_t max_packets = ~uint64_t{0};  // stop reading after about this many
  // These and `ended` are called from any of the run's threads, one at a time.
  std::function<void(uint64_t packets)> progress;    // that were committed; now and then
  std::function<void(std::string_view text)> print;  // lines of Print elements, in packet order; none: they are lost
  const std::atomic<bool>* stop = nullptr;           // set from elsewhere (a signal): finish what was read, then stop
  InputSet* inputs = nullptr;                        // where sources find their captures open; else they open them
  bool stop_is_end = false;                          // a run without another end: with `stop` it is whole
  // Whether `stop` was asked for: then what an input says is what the signal did to it.
  bool stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
  // Whoever gives and takes packets in the place of the ports that elements name, which are not opened then; nullptr:
  // the port. Not in graphs of the packet scheduler.
  std::function<Result<std::unique_ptr<BatchSource>>(const Element& source)> source;
  std::function<Result<std::unique_ptr<PacketSink>>(const Element& sink)> sink;
  std::shared_ptr<FrameCache> frames;  // that memory sources play; none: each engine loads its own
  // False: every packet takes the ordinary path. For comparison: the result is the same.
  bool fast_path = true;
  // Called for every packet that came in, in order; then no packet takes the fast path.
  std::function<void(const PacketEnd& packet)> ended;
  bool keeps_frames = false;  // for `ended`
  // Packets are counted by the rules of access lists that decided (Engine::hits).
  bool count_hits = false;
  // Bytes of packets that came in are counted by DSCP (WorkerStats::dscp).
  bool count_dscp = false;
  // Where packets that rules with `log` decided are recorded; nullptr: nowhere. Of one run.
  std::shared_ptr<RuleLog> rule_log;
  // Results of devices bring the rule that decided back.
  bool needs_rules() const { return count_hits || rule_log != nullptr; }
  bool live = false;  // somebody may call Engine::look during the run
  // Where packets are followed; nullptr: nowhere. With `live`; not in graphs of the packet scheduler.
  std::shared_ptr<PacketTaps> taps;
  // Called once all input is read and all output committed, before devices are stopped: the run lasts until it returns,
  // and generations may still be published. A graph of the packet scheduler goes on until `stop` instead, although
  // nothing can happen any more, and may be replaced.
  std::function<void()> hold;
  // Packets are sorted by class where they come in: those of one class leave in the order of the input, on any number
  // of workers; classes overtake each other. `batch` is what is read at a time; `latency_target_ns` has no effect.
  std::optional<PriorityOptions> priorities;
  // Classes of service at every sink. Without marks, which sinks do not see.
  std::shared_ptr<const QosModel> qos;
  DeviceOptions device;
  // Of live ports.
  PollMode poll = PollMode::kAdaptive;
  std::vector<unsigned> cores;             // worker w runs on core cores[w % size]; empty: wherever the kernel puts it
  std::shared_ptr<Neighbours> neighbours;  // whom marked frames are for; nullptr: there are none
  std::function<void()> ready;             // called once, when all ports are open and the first worker is about to read
  // What the run reads and writes besides what graphs do.
  RunFiles files;

  // Graphs of the packet scheduler ----------------------------------------------------------------------------------
  // The clock stands still while a task can run and jumps to the next timer. Else it is the machine's.
  bool simulated = false;
  // Else this one, where it is given: tests have their own.
  std::function<uint64_t()> clock_ns;
  // What scripts print. None: lost.
  std::function<void(std::string_view text)> print_out, print_error;
  // The signals that came since the last call, lowest first; 0: none is left. None: no signals.
  std::function<int()> next_signal;
  // Reads the graph that is written to the handler `hotconfig`. None: there is no such handler.
  std::function<Result<std::unique_ptr<GraphGeneration>>(std::string_view text)> load;
  // Packets go through stages and into sinks one by one, each in its turn: what tests compare with.
  bool one_by_one = false;
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

// What one class did, with RunOptions::priorities.
struct PriorityReport {
  uint64_t packets = 0;  // that were read
  uint64_t bytes = 0;
  uint64_t refused = 0;  // of these, dropped because no place was left
  uint64_t chunks = 0;   // committed
  uint64_t stolen = 0;   // of these, run by a worker that had its home elsewhere
  uint64_t early = 0;    // of these, handed on before they were full
  uint32_t turns = 0;    // of all workers, at home in this class
  Histogram latency;     // read (or arrival) to commit, ns, once for every packet that was not refused
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
  std::vector<PriorityReport> priorities;  // by class; empty without RunOptions::priorities
  uint64_t late_ns = 0;            // with offered_pps: how much later than its arrival a packet was read, at most
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
  std::vector<LivePortReport> live_ports;
  std::vector<DeviceReport> devices;
  DeviceCounters offload;
  std::vector<DeviceCounters> segments;  // the same by node of the plan; empty without devices
  // Memory with frames that devices were given up with, as they may still write there: not used again.
  size_t set_aside_bytes = 0;

  uint64_t queued = 0;   // still held by queues at the end (packet scheduler)
  ElementCounters gone;  // of elements that went with graphs before: their drops are in the sums

  // Every packet that came in or was made has left, was dropped with a reason, or is still in a queue.
  bool conserved() const { return packets_in + generated == packets_out + dropped + queued; }
};

// Runs that are over, but not for some device of theirs. It may still read and write what records named, so that is
// kept: frames, tables and channels. This looks again, frees what belongs to runs whose devices have all stopped since,
// and says how many are left. Thread-safe; Engine::create calls it.
size_t kept_runs();

}  // namespace sluice

// host only
// Worker: takes its share of batches through the plan. On the CPU run to completion; with a device, several batches are
// in flight at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/prefetch.h"
#include "batch/batch.h"
#include "batch/lengths.h"
#include "exec/account/account.h"
#include "exec/account/packet_taps.h"
#include "exec/cpu/fast.h"
#include "exec/cpu/tile.h"
#include "exec/descent.h"
#include "exec/device/channel.h"
#include "exec/device/offload.h"
#include "exec/ordered.h"
#include "exec/plan.h"
#include "exec/ports.h"

namespace sluice {

struct PrintRecord {
  uint32_t order;
  uint32_t sequence;  // as of TxRecord
  uint32_t arrival;   // of the lines of one packet
  std::string text;
  bool operator<(const PrintRecord& other) const {
    if (order != other.order) return order < other.order;
    return sequence != other.sequence ? sequence < other.sequence : arrival < other.arrival;
  }
};

// What one worker made of its share of one batch. It lives in the job, because frames and records must last until the
// commit.
struct JobShare {
  // What came to a sink.
  struct Sent {
    Selection rows;              // of the batch that came in
    std::vector<TxRecord> made;  // packets of batches that elements made
  };
  Selection packets;
  Selection annotated;            // of these, those whose annotations were written
  std::vector<Sent> sent;         // by sink
  std::vector<Selection> passed;  // by queue of Plan::passed
  std::vector<PrintRecord> prints;
  size_t print_count = 0;                        // records in use; their strings keep their memory
  std::vector<std::unique_ptr<Batch>> children;  // batches that elements made
  size_t child_count = 0;
  PacketFate* fates = nullptr;        // by row of the batch, for those that are dropped; nullptr: not recorded
  std::vector<FollowedRow> followed;  // rows of the batch, ascending
  OrderedPass* ordered = nullptr;     // of the batch, where the plan has nodes that take batches in order
  BroughtRegisters brought;           // of the batch, where a device says them
  // Where the frames of the batch lie, if not in its own memory: packed lines, which nobody writes to. The batch's
  // arena takes what becomes of them.
  std::span<const std::byte> lent;
  bool given_up = false;           // with records of this share: the device may still read and write the batch's frames
  std::vector<Buffer> own_frames;  // where the frames of these records were copied to

  void clear() {
    fates = nullptr;
    given_up = false;
    brought.has = 0;
    annotated.clear();
    own_frames.clear();
    for (Sent& s : sent) {
      s.rows.clear();
      s.made.clear();
    }
    for (Selection& rows : passed) rows.clear();
    print_count = child_count = 0;
  }
};

// Host memory that kernels may read and write, and where they see it. Filled before the run, read by all workers.
class PinnedRanges {
 public:
  void add(std::byte* host, size_t bytes, std::byte* device) { ranges_.push_back({host, bytes, device}); }
  // The device's address of `at`, or nullptr when [at, at + bytes) is not pinned.
  uint8_t* device_address(const uint8_t* at, size_t bytes) const {
    for (const Range& r : ranges_) {
      const auto* p = reinterpret_cast<const std::byte*>(at);
      if (p >= r.host && bytes <= r.bytes && p <= r.host + (r.bytes - bytes)) {
        return reinterpret_cast<uint8_t*>(r.device + (p - r.host));
      }
    }
    return nullptr;
  }
  struct Range {
    std::byte* host;
    size_t bytes;
    std::byte* device;
  };
  // The range that `at` lies in, or nullptr.
  const Range* range_of(const uint8_t* at) const {
    for (const Range& r : ranges_) {
      const auto* p = reinterpret_cast<const std::byte*>(at);
      if (p >= r.host && p < r.host + r.bytes) return &r;
    }
    return nullptr;
  }
  bool empty() const { return ranges_.empty(); }

 private:
  std::vector<Range> ranges_;
};

// Frames of one flight (a batch in flight to the device): gathered by the host, copied to the device and back in one
// piece each way.
struct FlightFrames {
  std::shared_ptr<DeviceBlob> host, device;
  std::shared_ptr<DeviceBlob>
      stays;  // where what becomes of frames stays, in the device's memory; nullptr: it comes back
  uint32_t used = 0;
  bool given_up = false;  // with frames in it: the device may still read and write there
};

// One worker's share of one device.
struct WorkerDevice {
  unsigned index = 0;                              // of Snapshot::residents
  const std::vector<Offload>* offloads = nullptr;  // by node
  const PinnedRanges* pinned = nullptr;
  Device* device = nullptr;
  bool frames_there = false;  // what `pinned` has of sources lies in the device's memory
  bool copies_runs = false;  // it gets all batches of a source, so that frames of several may cross at a time (LentRun)
  // Outlive the channels, by which the device is waited for.
  std::vector<std::shared_ptr<const Resident>> given_up;  // generations of flights that were given up
  std::vector<FlightFrames> pools;                        // one per flight; none: frames are accessed in place
  bool lists = false;  // frames that do not lie packed are read where they lie, and not gathered
  std::vector<std::unique_ptr<RecordChannel>> ipv4;    // by node: keys of IPv4 packets, or all records of another kind
  std::vector<std::unique_ptr<RecordChannel>> others;  // by node: keys of all other packets
  uint32_t flights = 1;                                // batches at a time
};

class Worker {
 public:
  // `plan` and `router` outlive the worker.
  Worker(const Plan& plan, const Router& router, unsigned id, bool fast_path = true);
  ~Worker();

  // Memory the source reads next; prefetched while this batch runs.
  void expect(std::span<const std::byte> next) { next_ = next; }

  // The number that packets of an element are held to a rate by (HostContext::limiter), in place of its place in the
  // graph.
  void set_limiter(unsigned element, uint8_t limiter) { limiter_[element] = limiter; }
  // Before the first batch. At most one.
  void use_device(WorkerDevice device);
  // Batches that can be in flight at a time: 1 on the CPU.
  uint32_t depth() const { return static_cast<uint32_t>(walks_.size()); }

  // Runs share.packets of `batch`, which entered at `source` (an index into plan.sources), on one generation. The
  // share's records are filled; share.clear() was called before. No allocation once the largest batch has been seen.
  void run(const Snapshot& snapshot, Batch& batch, JobShare& share, unsigned source);

  // The same in steps, for depth() batches at a time. `start` precondition: fewer than depth() are in flight.
  // `finish` continues the oldest one: true when it is done and released. Neither waits.
  void start(const Snapshot& snapshot, Batch& batch, JobShare& share, unsigned source);
  bool finish();

  WorkerStats& stats() { return account_.stats; }
  // By node; empty without a device.
  const std::vector<DeviceCounters>& device_counters() const { return device_counters_; }
  const WorkerDevice& device() const { return device_; }
  // The worker's device objects, for a caller that keeps them longer. The worker takes no batch any more.
  WorkerDevice release_device() { return std::move(device_); }

 private:
  class Context;
  struct Child {
    Batch* batch;
    PlanTarget target;
    unsigned generation;
  };
  // Records of one channel in flight, and where they belong.
  struct InFlight {
    RecordChannel* channel = nullptr;
    Flight flight;
    uint32_t applied = 0;        // records whose results were taken
    std::vector<uint16_t> rows;  // record -> row of the batch
    std::vector<uint8_t> paths;  // record -> path at which it left
    // The packets of the first `fast` records left as columns and have no registers. Of these, by record, what
    // `restore` gives back; the columns have FastBurst::kLanes places more than records.
    uint32_t fast = 0;
    std::vector<uint32_t> lengths, ip_bytes, hops;
    FastKept fast_from(uint32_t i) { return {&rows[i], &lengths[i], &ip_bytes[i], &hops[i]}; }
    // Address records of frames that are edited where they lie: by record, bytes [first, end) of the frame as they
    // were, at kept_bytes[at].
    struct Kept {
      uint32_t at;
      int32_t first;
      uint32_t end;
    };
    std::vector<Kept> kept;
    std::vector<uint8_t> kept_bytes;  // grows; kept_used are in use
    uint32_t kept_used = 0;
    uint8_t* own = nullptr;  // after it was given up: where the next frame is copied to; nullptr: there is no room
    FlightFrames* pool =
        nullptr;  // what frames, and those that address records name, are gathered in; nullptr: none are
    // Of address records: whether they are, and copied. Where another segment's frames alone are gathered they are not.
    bool pooled_frames() const { return pool != nullptr && pool->device != nullptr; }
    // By record: where in the pool the frame's byte 0 is or would be, and which bytes of the frame went.
    struct Pooled {
      int32_t at, first, end;
    };
    std::vector<Pooled> pooled;
    // Frame records: whether the frames lie in their source's memory, and how they lie in the flight's.
    bool lent = false;
    bool listed = false;  // they lie where the batch has them, and heads come back (put_listed)
    bool dense = false;   // record i is row i
    bool sparse = false;  // frames of a class, each where its source lent it, in the device's memory
    bool stays = false;   // what became of the frames is in the device's memory, `back_bytes`
    size_t back_bytes = 0;
    const FrameRecord* records = nullptr;  // of the flight, or the source's own
    uint32_t first = 0;                    // FrameRecord::at counts from here
    FrameSlots slots;
    uint8_t* to = nullptr;           // where frames come back to, as SlabDriver::Range has it
    const uint8_t* heads = nullptr;  // the same
    uint32_t row_of(uint32_t i) const { return dense ? i : rows[i]; }
    Selection all_rows() const {
      Selection all;
      for (uint32_t i = 0; i < flight.count; ++i) all.add(row_of(i));
      return all;
    }
  };
  // One batch in progress through the plan.
  struct Walk {
    const Snapshot* snapshot = nullptr;
    Batch* root = nullptr;
    Batch* batch = nullptr;  // root, or one of its children
    uint16_t source = 0;     // of the plan
    JobShare* share = nullptr;
    unsigned generation = 0;
    std::vector<Selection> pending;  // of all node inputs
    std::vector<uint8_t> dirty;      // node -> something is pending
    std::vector<Child> children;
    size_t next_child = 0;
    std::vector<Batch*> open;  // by node input: what packets of the next generation for it are put into, or nullptr
    uint64_t visits = 0;       // of host elements
    Descent descent;           // of the packets that elements made
    size_t node = 0;
    unsigned round = 0;
    bool again = false;
    bool waiting = false;  // for the records of node `node`
    bool arrived = false;  // at the ordered node `node`
    InFlight in_flight[2];
  };

  bool advance(Walk& walk);
  void start_child(Walk& walk, const Child& child);
  void number_made(Walk& walk);
  bool run_nodes(Walk& walk);
  bool reads_columns(size_t node) const;
  void deliver(const PlanTarget& target, const Selection& packets);
  void run_segment(const PlanNode& node, Selection* inputs);
  template <typename Full>
  void gather(const PlanNode& node, const BatchView& view, const Selection& packets, uint8_t entry, Full&& full);
  static void start_tile(Tile& tile);
  void run_stages(const Program& program, const PlanNode& node, Tile& tile, uint32_t begin, uint32_t end,
                  bool prefetched);
  void finish_tile(const PlanNode& node, const BatchView& view, Tile& tile);
  void run_host(const PlanNode& node, Selection* inputs);
  void run_sink(const PlanNode& node, Selection* inputs);
  void run_passed(const PlanNode& node, Selection* inputs);
  bool run_ordered(const PlanNode& node, Selection* inputs);
  void leave(const PlanNode& node, size_t exit, const Selection& packets);
  void store(const BatchView& view, uint32_t row, FieldMask live, const Packet& packet) {
    view.store(row, live, packet);
    if (walk_->batch == walk_->root) walk_->share->annotated.add(row);
  }
  // Packets are those of the walk's batch from here on. What elements generate has no fates.
  void account_to(const Walk& walk) {
    account_.to(walk.snapshot->rules, walk.batch == walk.root ? walk.share->fates : nullptr);
  }
  // What is recorded of a packet that a rule with `log` decided.
  void fill_logged(LoggedPacket& packet, uint32_t row, const FlowKey& key, uint32_t bytes, uint32_t ip_bytes) const;
  // Packets with registers, and one whose result says which stages it met (lanes of Account).
  struct TileLanes;
  struct BurstLanes;
  struct MetPacket;
  struct MetFrame;
  void drop(const StageSlot& slot, uint32_t row, const Packet& p, DropReason reason) {
    account_.drop(slot.element, reason_to_leave(reason), row, p.rule, p.next_hop);
  }
  // A device said what becomes of it.
  void note_device(uint32_t row) {
    if (walk_->share->followed.empty() || walk_->batch != walk_->root) return;
    auto& followed = walk_->share->followed;
    const auto at = std::lower_bound(followed.begin(), followed.end(), row,
                                     [](const FollowedRow& f, uint32_t r) { return f.row < r; });
    if (at != followed.end() && at->row == row) at->packet->on_device = true;
  }
  // The fast path keeps no fates.
  bool takes_fast_path() const { return fast_path_ && walk_->share->fates == nullptr; }
  // A packet whose registers are in the batch.
  void drop_row(unsigned element, const Batch& batch, uint32_t row, DropReason reason) {
    if (&batch != walk_->batch) return account_.drop(element, reason);
    account_.drop(element, reason, row, batch.annotation(row).rule, batch.annotation(row).next_hop);
  }

  std::span<Selection> take_inputs(const PlanNode& node, Selection* inputs);

  // worker_fast.cpp
  template <typename Full>
  Selection gather_bursts(const BatchView& view, const Selection& packets, const StageSlot* parser, Full&& full);
  Selection run_segment_fast(const PlanNode& node, const Program& program, const BatchView& view,
                             const Selection& packets);
  Selection launch_fast(size_t node, const Offload& offload, const BatchView& view, const Selection& packets);
  uint32_t apply_fast(const PlanNode& node, const Offload& offload, const Program& program, const BatchView& view,
                      InFlight& in_flight, uint32_t n);
  void finish_fast(const PlanNode& node, const Program& program, const BatchView& view, FastBurst& burst,
                   uint32_t alive, uint32_t begin, uint32_t marked = 0);

  // worker_device.cpp
  bool can_offload(size_t node) const;
  DeviceCounters& counters_of(const PlanNode& node) {
    return device_counters_[static_cast<size_t>(&node - plan_.nodes.data())];
  }
  bool launch(size_t node, Selection* inputs);
  bool collect(size_t node);
  void give_up(const Offload& offload, InFlight& in_flight);
  static void keep(const Offload& offload, const Packet& p, InFlight& in_flight, uint32_t i);
  static bool move_frame(const Offload& offload, InFlight& in_flight, uint32_t i, Packet& p);
  bool send(size_t node, const Offload& offload, const BatchView& view, Tile& tile, uint32_t lane);
  void apply(const PlanNode& node, const Offload& offload, const Program& program, InFlight& in_flight, uint32_t ready);
  template <typename Met>
  void count_visits(const Program& program, uint32_t begin, uint32_t visited, const uint32_t* lengths, Met met);
  static uint32_t mark_by_rule(const Offload& offload, const Program& program, uint32_t visited, uint32_t rule);
  Steps take_key(const Offload& offload, uint64_t word, uint32_t row, Packet& p, const Program& program);
  Steps take_registers(const Offload& offload, const InFlight& in_flight, uint32_t i, uint32_t row, Packet& p,
                       const Program& program);
  static bool put_in_pool(const Offload& offload, const Packet& p, FlightFrames& pool, InFlight::Pooled& place);
  InFlight* in_flight_for(size_t node, const Offload& offload, bool ipv4);

  // worker_frames.cpp
  bool crosses_as_frames(size_t node) const { return (*device_.offloads)[node].crosses_as_frames(); }
  bool lies_in_source(const uint8_t* frame) const;
  void own_frames(const PlanNode& node, Selection& packets, bool all = false);
  bool only_sent(const PlanNode& node, uint8_t path) const;
  static bool only_ordered(const Offload& offload, uint8_t path);
  void run_on_host(const PlanNode& node, Selection* inputs, Selection packets, bool given_up);
  void cross_lent(const uint8_t* from, uint64_t bytes, uint32_t head, uint32_t heads, uint32_t longest,
                  SlabDriver::Range& range) const;
  size_t lent_room() const;
  bool put_unfilled(InFlight& in_flight, const RecordShape& shape, SlabDriver::Range& range) const;
  bool put_sparse(InFlight& in_flight, SlabDriver::Range& range) const;
  Selection put_lent(InFlight& in_flight, const RecordShape& shape, const BatchView& view, const Selection& packets,
                     SlabDriver::Range& range);
  static Selection put_gathered(InFlight& in_flight, const BatchView& view, const Selection& packets,
                                SlabDriver::Range& range);
  static void comes_back(const FlightFrames& pool, size_t at, uint32_t heads, SlabDriver::Range& range);
  Selection put_listed(InFlight& in_flight, const BatchView& view, const Selection& packets,
                       SlabDriver::Range& range) const;
  bool launch_frames(size_t node, Selection* inputs);

  // worker_results.cpp
  bool collect_frames(size_t node);
  bool gives_record(const Program& program, uint32_t visited, uint32_t rule) const;
  Selection& at_exit(const PlanNode& node, uint8_t path);
  void count_alike(const Program& program, uint64_t visited, uint64_t packets, uint64_t came, uint64_t cut);
  bool takes_unfilled(const Program& program, const FrameResults& results, uint32_t count, bool detail,
                      uint32_t stages) const;
  bool take_unfilled(size_t node, InFlight& in_flight);
  void bring_registers(const RecordShape& shape, const FrameResults& results, uint32_t count, FieldMask live);
  bool brings_back(const InFlight& a) const;
  Selection take_frames(size_t node, InFlight& in_flight);

  const Plan& plan_;
  const Router& router_;
  Account account_;
  std::vector<uint32_t> first_input_;         // node -> index into Walk::pending
  std::vector<uint32_t> sink_index_;          // element -> index into JobShare::sent
  std::vector<bool> drops_all_;               // element -> it is a sink that sends nothing
  std::vector<uint8_t> limiter_;              // element -> 1-based limiter, 0 none
  std::vector<std::unique_ptr<Walk>> walks_;  // a ring: oldest_ and the on_way_ after it are in use
  size_t oldest_ = 0;
  size_t on_way_ = 0;
  Walk* walk_ = nullptr;  // the one that is being advanced
  std::unique_ptr<Tile> tiles_[2];
  std::unique_ptr<Selection[]> taken_ = std::make_unique<Selection[]>(kMaxStages);  // by input of a segment
  std::unique_ptr<FastBurst> bursts_[3];  // one of either family that fills, one that waits for its lookups
  bool fast_path_;
  // Of the packets that came last; what they say decides which way is tried first, and never a result.
  std::optional<FastForm> expects_ = FastForm::kIpv4;  // what most had; none: they differed
  bool expects_others_ = false;                        // some had another
  std::span<const std::byte> next_;
  const FastCode code_ = fast_code();
  WorkerDevice device_;
  std::vector<DeviceCounters> device_counters_;
};

struct Worker::TileLanes {
  const Worker& worker;
  const Tile& tile;
  static constexpr bool kRecords = true;
  uint32_t rule(uint32_t i) const { return tile.packet[i].rule; }
  uint32_t length(uint32_t i) const { return tile.packet[i].length(); }
  static uint32_t near(LoggedRules::Range) { return ~uint32_t{0}; }
  void log(uint32_t i, LoggedPacket& packet) const {
    const Packet& p = tile.packet[i];
    worker.fill_logged(packet, tile.index[i], p.key, p.length(), p.end - std::min<uint32_t>(p.end, p.l3));
  }
  DropReason reason(uint32_t i) const { return tile.packet[i].reason; }
  uint32_t row(uint32_t i) const { return tile.index[i]; }
  uint32_t next_hop(uint32_t i) const { return tile.packet[i].next_hop; }
};

// Takes packets that enter at `entry` into tiles. Tile& full(Tile&): runs one that is full or the last, and says which
// is filled next.
template <typename Full>
void Worker::gather(const PlanNode& node, const BatchView& view, const Selection& packets, uint8_t entry, Full&& full) {
  const uint32_t words = (view.count + 63) / 64;
  Tile* tile = tiles_[0].get();
  tile->count = 0;
  auto run = [&] {
    start_tile(*tile);
    tile = &full(*tile);
    tile->count = 0;
  };
  for (uint32_t w = 0; w < words; ++w) {
    for (uint64_t bits = packets.word(w); bits != 0; bits &= bits - 1) {
      const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      const uint32_t lane = tile->count++;
      tile->index[lane] = i;
      tile->path[lane] = entry;
      view.load(i, node.live_in, tile->packet[lane]);
      prefetch_read(tile->packet[lane].bytes());
      if (tile->count == Tile::kLanes) run();
    }
  }
  if (tile->count != 0) run();
}

// Counts a packet at the stages that it met, as run_stages does. `met` has its length on arrival at the first; behind
// each that moves the extent, `lengths` has the next.
template <typename Met>
void Worker::count_visits(const Program& program, uint32_t begin, uint32_t visited, const uint32_t* lengths, Met met) {
  for (uint32_t bits = visited; bits != 0; bits &= bits - 1) {
    const StageSlot& slot = program.stages[begin + static_cast<uint32_t>(std::countr_zero(bits))];
    account_.stage(slot.element, 1, met.bytes, 0, met);
    if (slot.moves_extent != 0) met.bytes = *lengths++;
  }
}

// Generations of packets that are made by made ones, one behind the other; more are not made.
inline constexpr unsigned kMaxGenerations = 8;

// Fills the head room of `packets`, whose memory other packets have used, with zeros.
void clear_headroom(Batch& batch, const Selection& packets);

// The elements that limit a rate at egress, in graph order: limiter n is the n-1st of them.
std::vector<unsigned> limited_elements(const Router& router);

}  // namespace sluice

// host only
// Where batches come from and where packets go: ports as the executor sees them.
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/result.h"
#include "batch/batch.h"
#include "graph/element.h"
#include "graph/router.h"
#include "memory/frame_pool.h"
#include "ports/pcap/link_type.h"

namespace sluice {

// One packet on its way out; `data` stays valid until the batch that it came with is committed.
struct TxRecord {
  const uint8_t* data;
  uint64_t timestamp_ns;
  uint32_t captured;
  uint32_t wire;
  uint32_t order;     // index of the packet that came in, from which this one descends
  uint32_t sequence;  // among those of one order (exec/walk/descent.h): 0 is the packet that came in itself
  uint16_t port;      // output port of the adjacency
  uint8_t limiter;
  uint32_t mark = 0;  // of an access list, where the plan keeps marks for sinks (Plan::at_sinks)
  // Whose chunk `data` lies in, while the packet is that which came in; nullptr: it is copied to be sent.
  FramePool* pool = nullptr;
  uint32_t followed = 0;  // FollowedRow::id; 0: nobody follows it
};

inline TxRecord tx_record(const Batch& batch, uint32_t row, uint32_t sequence) {
  const Extent& extent = batch.extent(row);
  return {batch.frame(row) + extent.data,
          batch.timestamp_ns(row),
          batch.data_length(row),
          extent.wire_end - static_cast<uint32_t>(extent.data),
          batch.order(row),
          sequence,
          batch.port(row),
          batch.annotation(row).limiter,
          batch.annotation(row).mark};
}

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Clears the batch and appends packets, at most its capacity, with order 0, 1, 2, ... Leaves it empty at the end of
  // the input. Errors: damaged input; what came before it has been delivered.
  virtual Result<void> read(Batch& batch) = 0;
  // The same for whoever copies the packets: they may lie in the source's own memory, then they are not written to and
  // last until the next call. Their columns may be unfilled (Batch::lend).
  virtual Result<void> lend(Batch& batch) { return read(batch); }
  // The same in two steps, for packets that lie in memory where nobody changes them: `take` says which packets a
  // batch gets, and how many it has thereby (none: the input is at its end), and `copy` gives them to it, on any
  // thread, also beside further reads. False: `read` is to be called.
  struct Taken {
    uint64_t next = 0, offset = 0, later_ns = 0;
    uint32_t packets = 0;
  };
  virtual bool take(Batch& batch, Taken& taken) {
    (void)batch;
    (void)taken;
    return false;
  }
  virtual void copy(Batch& batch, const Taken& taken) const {
    (void)batch;
    (void)taken;
  }
  // Where the packets of `lend` and their records (LentRows) lie, if each begins a cache line and they follow one
  // another; else empty. Such a lend ends where the memory does, and never comes back to its beginning; as far apart,
  // its packets fit the batch's arena.
  virtual LentMemory lent() const { return {}; }
  // Whether a read returns without waiting for whoever writes the input. A read does not wait for more than its first
  // packet.
  virtual bool ready() { return true; }
  // Waits until that may have changed, `limit_ns` at most; a signal may end it.
  virtual void wait(uint64_t limit_ns) { (void)limit_ns; }
  // Whether the packets of a read may lie as close as kCloseHeadroom to one another: nobody writes more in front of a
  // frame, or behind it. Before the first read, and between reads.
  virtual void lie_close(bool may) { (void)may; }
  // What the packets had before they came as Ethernet frames (ports/pcap/link_type.h).
  virtual LinkType link() const { return LinkType::kEthernet; }
  // Memory that a read of as many packets as the last would read, as far as it is known: for a prefetch.
  virtual std::span<const std::byte> next() const { return {}; }

  // A live port has no end: a read that leaves the batch empty found nothing, and never waits.
  virtual bool live() const { return false; }
  // Whose the frames of a read are: they go back there, unless a sink took them (PacketSink::takes). nullptr: they lie
  // in the batch's own memory.
  virtual FramePool* lends() { return nullptr; }
  // Of a live port, before a sleep: adds the descriptors that become readable when packets come. False: some of them
  // come without a sign.
  virtual bool wait_on(std::vector<pollfd>& fds) {
    (void)fds;
    return false;
  }
  // As that of RxQueue.
  virtual bool arm() { return true; }
};

// Packets that a source gives at a time where there are several, which take turns: however many a batch has.
inline uint32_t source_turn(const PortSpec& spec) {
  return spec.burst != 0 ? spec.burst : 256;
}

class PacketSink {
 public:
  virtual ~PacketSink() = default;
  // False: packets only have to be counted. Those that need no order and no limit may then be kept from `write`.
  virtual bool reads_frames() const { return true; }
  // Takes the records in order. On an error `written` says how many were taken before it; without one, those behind are
  // dropped as `refusal` says.
  virtual Result<void> write(std::span<const TxRecord> records, size_t& written) = 0;
  // Takes packets of a batch as they lie there, from the first row on, without a record of each. Those behind what it
  // took or refused come by `write`, which is asked for whatever is not as simple, and for every error. `lender`: as
  // TxRecord::pool.
  struct Rows {
    uint32_t taken = 0;
    uint32_t refused = 0;  // the next ones: dropped as `refusal` says
  };
  virtual Rows write_rows(const Batch& batch, const Selection& rows, FramePool* lender) {
    (void)batch;
    (void)rows;
    (void)lender;
    return {};
  }
  virtual DropReason refusal() const { return DropReason::kOutputFailed; }
  // The longest packet that it takes, in bytes of the frame.
  virtual uint32_t most_bytes() const { return ~uint32_t{0}; }
  // Whose frames it sends where they lie: those of records that were written are its own, and it gives them back.
  virtual const FramePool* takes() const { return nullptr; }
  // A live port: by which of its queues the next records leave; and that it is to send what it was given.
  virtual void use_queue(unsigned queue) { (void)queue; }
  virtual void kick() {}
  // Lets a reader of the output have what was written so far, where it is read while it is written.
  virtual Result<void> flush() { return {}; }
  // What was written is on the disk, or has left.
  virtual Result<void> settle() { return {}; }
  // The file that is to appear at the end of the run; nullptr: none. Without AtomicFile::commit nothing is left behind.
  virtual AtomicFile* file() { return nullptr; }
  // Where an ending leaves the output; empty where there is none.
  virtual std::string path_of(Ending ending) const = 0;
};

// `path`, or where the output of that path is after such an ending. nullptr: there is none.
std::string place_of(const PacketSink* sink, const std::string& path, Ending ending);

class InputSet;
struct PackedFrames;

// The captures that memory sources play. Runtimes that share one play one copy of each capture, as it was when the
// first of them opened it. Any thread.
class FrameCache {
 public:
  // Errors: the capture cannot be read, or does not fit memory.
  Result<std::shared_ptr<const PackedFrames>> get(const PortSpec& spec, InputSet* inputs = nullptr);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, bool>, std::shared_ptr<const PackedFrames>> frames_;
};

// What `inputs` holds of its path is taken from there.
Result<std::unique_ptr<BatchSource>> open_source(const PortSpec& spec, FrameCache& cache, InputSet* inputs = nullptr);
// nullptr for kNull: such a sink drops.
// `link`: of what a capture is to hold; frames come as Ethernet.
Result<std::unique_ptr<PacketSink>> open_sink(const PortSpec& spec, LinkType link = LinkType::kEthernet);
// The link type that a sink's packets leave with: that of the sources, where all have the same and no element on the
// way to the sink writes link-layer headers; else Ethernet. `links`: of the router's sources.
LinkType sink_link(const Router& router, unsigned sink, std::span<const LinkType> links);

}  // namespace sluice

// host only
// Job: a batch of packets of one stream on its way from an input to the commit; and the rings in which jobs go round.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "exec/engine/ports.h"
#include "exec/engine/snapshot.h"
#include "exec/walk/ordered.h"
#include "exec/walk/worker.h"
#include "memory/buffer.h"
#include "qos/priority_buffers.h"

namespace sluice {

// Belongs to one thread after the other: who reads it, the worker that claimed it, who commits it (ChunkRing).
struct Job {
  // Packets that were read, or arrived, at one time.
  struct Read {
    uint64_t at_ns;
    uint32_t packets;
  };
  // A packet as it came, for RunOptions::keeps_frames: bytes of `frames`.
  struct Came {
    size_t at;
    uint32_t bytes, wire_bytes;
  };

  Batch batch;
  JobShare share;
  unsigned source = 0;
  unsigned lane = 0;                    // of the engine
  const BatchSource* copies = nullptr;  // whose packets are still to be copied to the batch; nullptr: they are there
  BatchSource::Taken taken;             // which
  Batch* ran_in = nullptr;              // its worker's own batch, which has the packets; nullptr: `batch` has them
  FramePool* lender = nullptr;          // whose the frames are; nullptr: they lie in the batch's own memory
  // Of packets of one class that stay in their source's memory: what LentRows has of others in the source's.
  std::vector<FrameRecord> records;
  std::vector<uint64_t> timestamps, bytes_before;
  bool lends_rows = false;
  std::vector<Read> reads;  // adds up to the batch
  // Which packet of the input each of a class is; empty: nobody asks (Egress::in_order).
  std::vector<uint64_t> numbers;
  const Snapshot* snapshot = nullptr;
  uint64_t generation = 0;  // of the snapshot
  uint64_t done_ns = 0;
  uint64_t round = 0;  // of the sizer, when it was read
  bool stolen = false, full = false;
  std::unique_ptr<OrderedPass> ordered;
  // For RunOptions::ended, by row; frames are as they came, one behind the other.
  std::vector<PacketFate> fates;
  std::vector<Came> came;
  std::vector<uint8_t> frames;

  void copy() {
    if (copies != nullptr) copies->copy(batch, taken);
    copies = nullptr;
  }
  // The first `total` of its own records, of frames that stay where `in` has them.
  void lend(const LentRows& in, uint32_t total) {
    LentRows own = in;
    own.records = records.data();
    own.bytes_before = bytes_before.data();
    own.timestamps = timestamps.data();
    own.later_ns = own.source = own.turn = own.row = 0;
    own.total = total;
    batch.lend(own, total);
  }
};

// All jobs of a run: a ring for each class, one where there are no classes, and a job for each of its places.
struct JobRings {
  JobRings(uint32_t classes, uint32_t places) : buffers(classes, places), view(buffers.view()), jobs(classes) {}

  Job& at(uint32_t qos_class, uint64_t sequence) { return *jobs[qos_class][view.rings[qos_class].place(sequence)]; }
  // Whether a worker could claim something, or go on committing.
  bool any_ready() const {
    for (uint32_t c = 0; c < view.classes; ++c) {
      const ChunkRing& ring = view.rings[c];
      if (HostAtomics::load(ring.claimed) < HostAtomics::load(ring.filled) || HostAtomics::load(ring.left) != 0)
        return true;
    }
    return false;
  }

  // Whether nothing is on its way.
  bool all_committed() const {
    for (uint32_t c = 0; c < view.classes; ++c) {
      if (HostAtomics::load(view.rings[c].committed) != HostAtomics::load(view.rings[c].filled)) return false;
    }
    return true;
  }

  PriorityBuffers buffers;
  PriorityView view;
  std::vector<std::vector<std::unique_ptr<Job>>> jobs;  // by class and place
};

}  // namespace sluice

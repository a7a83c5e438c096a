// host only
// JobShare: what becomes of the packets of one batch on its way through the plan.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "batch/batch.h"
#include "batch/lengths.h"
#include "exec/account/counters.h"
#include "exec/account/packet_taps.h"
#include "exec/engine/ports.h"
#include "exec/walk/ordered.h"
#include "memory/buffer.h"

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
  // Of 64 rows of a batch that comes back from a device: those that it passed on, and their bytes together.
  struct Passed {
    uint64_t rows, bytes;
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
  std::vector<Passed> sums;           // of a batch whose columns are unfilled; empty: not known
  // Where the frames of the batch lie, if not in its own memory: packed lines, which nobody writes to. The batch's
  // arena takes what becomes of them.
  std::span<const std::byte> lent;
  bool given_up = false;           // with records of this share: the device may still read and write the batch's frames
  std::vector<Buffer> own_frames;  // where the frames of these records were copied to

  void clear() {
    fates = nullptr;
    given_up = false;
    brought.has = 0;
    sums.clear();
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

}  // namespace sluice

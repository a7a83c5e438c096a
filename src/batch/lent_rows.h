// Frames that lie where their source keeps them, as it knows them: what a device reads of them, and what the columns of
// a batch are filled from when somebody needs these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace sluice {

// A frame in memory: where it begins, and its lengths as it came.
struct FrameRecord {
  uint32_t at;      // a multiple of 16
  uint16_t bytes;   // captured
  uint16_t longer;  // on the wire than that
};
static_assert(sizeof(FrameRecord) == 8);

// Consecutive frames of a source, which outlives the batch's use of them. Row i is records[i], and so on.
struct LentRows {
  const FrameRecord* records = nullptr;    // places count from `memory`
  const uint64_t* bytes_before = nullptr;  // of the frames before row i, from some frame on; one more than rows
  const uint64_t* timestamps = nullptr;
  uint64_t later_ns = 0;      // than these
  uint8_t* memory = nullptr;  // nobody writes there, unless it was moved to the batch's own
  uint32_t longest = 0;       // bytes of a frame at most
  // Of frames that are longer than `whole`, bytes from `head` on lie here and not there.
  const uint8_t* rest = nullptr;
  uint32_t whole = ~uint32_t{0}, head = 0;
};

// All that a source lends of, for whoever lets a device reach it.
struct LentMemory {
  std::span<const std::byte> frames;
  std::span<const FrameRecord> records;
  uint32_t longest = 0;               // bytes of a frame at most
  std::shared_ptr<const void> owner;  // they are there as long as this is
};

}  // namespace sluice

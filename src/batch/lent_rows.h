// Frames that lie where their source keeps them, as it knows them: what a device reads of them, and what the columns of
// a batch are filled from when somebody needs these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace sluice {

// Frames that are lent begin multiples of so many bytes, and what is behind one up to the next is read and written with
// it: what vectors and a device's loads ask for, and little more memory than the frames.
inline constexpr uint32_t kLentUnit = 16;
// So many bytes from a frame's beginning may be read, however short it is and wherever it lies.
inline constexpr uint32_t kLentAhead = 64;
constexpr uint64_t lent_bytes(uint64_t bytes) {
  return (bytes + kLentUnit - 1) / kLentUnit * kLentUnit;
}

// What may be appended to a frame whose columns nobody has filled, and how much farther its successor lies for it.
inline constexpr uint32_t kLentTail = 4, kLentTailRoom = 16;

// A frame in memory: where it begins, and its lengths as it came.
struct FrameRecord {
  uint32_t at;      // a multiple of kLentUnit
  uint16_t bytes;   // captured
  uint16_t longer;  // on the wire than that
};
static_assert(sizeof(FrameRecord) == 8);

// What a frame lost where it was edited: bytes in front, such as a tag, and at its end, such as padding.
struct FrameTrim {
  static constexpr uint32_t kMostFront = 31, kMostEnd = 2047;

  uint16_t word = 0;

  uint32_t front() const { return word & kMostFront; }
  uint32_t end() const { return word >> 5; }
  uint32_t bytes() const { return front() + end(); }
};

// Consecutive frames of a source, which outlives the batch's use of them. Row i is records[i], and so on.
struct LentRows {
  const FrameRecord* records = nullptr;    // places count from `memory`
  const uint64_t* bytes_before = nullptr;  // of the frames before row i, from some frame on; one more than rows
  const uint64_t* timestamps = nullptr;
  uint64_t later_ns = 0;        // than these
  uint8_t* memory = nullptr;    // nobody writes there, unless it is the batch's own
  uint32_t longest = 0;         // bytes of a frame at most
  uint32_t deepest = 0;         // in front of a network header at most
  uint64_t source = 0;          // a number that no other source has, from 1
  uint64_t turn = 0;            // how many times it has lent all its rows before
  uint64_t row = 0, total = 0;  // which of them row 0 is, and how many there are
  // Where heads of `head` bytes each lie, row by row, and where the rest of the frames does, with places as in
  // `memory`: they are put together there when the columns are filled. nullptr: they are there.
  const uint8_t *heads = nullptr, *rest = nullptr;
  uint32_t head = 0;
  // Row by row, and the sums of all bytes that 64 rows each lost; nullptr: no frame lost any.
  const FrameTrim* trims = nullptr;
  const uint32_t* trimmed = nullptr;
  // Bytes behind each frame's end that come with it, kLentTail or 0, and what they are, row by row; frames that are put
  // together then lie so much farther apart than in `rest`. nullptr: nobody asks for them.
  uint32_t tail = 0;
  const uint8_t* tails = nullptr;
  bool elsewhere = false;  // the frames were edited in memory that the host does not reach: nobody may fill the columns

  uint32_t length(uint32_t i) const { return records[i].bytes + tail - (trims != nullptr ? trims[i].bytes() : 0); }
};

// Puts a frame of `bytes` bytes together: the first `head` of them as they were edited, the rest as it was.
void join_head(uint8_t* frame, const uint8_t* edited, uint32_t head, const uint8_t* as_it_was, uint32_t bytes);

// All that a source lends of, for whoever lets a device reach it.
struct LentMemory {
  std::span<const std::byte> frames;
  std::span<const FrameRecord> records;
  uint32_t longest = 0;               // bytes of a frame at most
  std::shared_ptr<const void> owner;  // they are there as long as this is
};

}  // namespace sluice

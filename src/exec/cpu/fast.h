// host only
// Bursts: packets as columns, without the packet registers. Which programs take them, and the kernels of their stages.
#pragma once

#include <cstdint>

#include "batch/batch.h"
#include "batch/fast_burst.h"
#include "exec/walk/program.h"
#include "graph/stage_slot.h"
#include "net/fast_parse.h"
#include "tables/acl/isa.h"

namespace sluice {

// The lanes of `mask` that leave the stage by output 0; the others' output and reason are set.
using FastKernel = uint32_t (*)(const StageSlot&, FastBurst&, uint32_t mask);
using FastPrefetch = void (*)(const StageSlot&, FastBurst&);

// The kernel of a stage kind, or nullptr: the stage takes packets with registers only.
FastKernel cpu_fast_kernel(uint16_t kind);
// Asks for what the kernel reads first, going by keys alone, and may take notes in the burst (`place`); or nullptr.
FastPrefetch cpu_fast_prefetch(uint16_t kind);

// How many stages of a bound program, from its first, take bursts: 0 where the first does not parse frames. Each one
// but the last leads to the next by output 0.
uint32_t fast_stages(const Program& program);
// The end of the stages from `from` on that packets pass in a burst, each leading to the next by output 0.
uint32_t burst_end(const Program& program, uint32_t from);

// What stands before the network header of frames that are alike.
enum class FastForm : uint8_t { kIpv4, kIpv4OneTag, kIpv4TwoTags, kIpv6 };
inline constexpr uint32_t kFastForms = 4;
constexpr uint32_t family_of(FastForm form) {
  return form == FastForm::kIpv6 ? 6 : 4;
}
constexpr uint32_t l3_of(FastForm form) {
  return kFastL3 + (form == FastForm::kIpv6 ? 0 : static_cast<uint32_t>(form) * kVlanTagBytes);
}

// Appends the packets of `rows` (n of them) that are common packets of this form to the burst, of its family; the
// others' rows go to `rest`. Returns how many those are. Reads the frames; columns of the batch are left alone.
// Cheapest for rows that follow one another. `n` may be gather_most(burst) at most: lanes past kLanes are another
// burst's (take_extra).
uint32_t gather_alike(FastForm form, const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst,
                      uint32_t* rest);

// How many packets are looked at in one go: whole steps of vectors, as long as the burst has lanes left before each.
inline uint32_t gather_most(const FastBurst& burst) {
  const uint32_t step = burst.family == 6 ? 8 : 16;
  static_assert(FastBurst::kRoom >= FastBurst::kLanes + 16);
  return (FastBurst::kLanes - burst.count + step - 1) / step * step;
}

// Up to kMost rows of one family, all of whose frames are there from their first byte on, and what lies before their
// network headers: l3 | TCI << 16.
struct LinkedRows {
  static constexpr uint32_t kMost = 128;
  uint32_t count = 0;
  uint32_t untagged = 0;  // of them
  uint32_t row[kMost + 16];
  uint32_t link[kMost + 16];
  uint32_t bytes[kMost + 16];  // of the frame
  uint8_t* frame[kMost + 16];
};
// Puts those of `rows` (n, at most LinkedRows::kMost) whose frames are unicast, with two tags at most, begin at their
// first byte and were not cut, into the rows of their family; the others go to `rest`. Returns how many those are.
uint32_t sort_rows(const BatchView& view, const uint32_t* rows, uint32_t n, LinkedRows& four, LinkedRows& six,
                   uint32_t* rest);
// As gather_alike for n of `from`, from its `first` on, to a burst of their family. Takes fragments and packets with
// options, too (net/fast_parse.h, kAny).
uint32_t gather_linked(const BatchView& view, const LinkedRows& from, uint32_t first, uint32_t n, FastBurst& burst,
                       uint32_t* rest);
// The same three without vector instructions, which is what the others are held to.
uint32_t sort_rows_scalar(const BatchView& view, const uint32_t* rows, uint32_t n, LinkedRows& four, LinkedRows& six,
                          uint32_t* rest);
uint32_t gather_alike_scalar(FastForm form, const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst,
                             uint32_t* rest);
uint32_t gather_linked_scalar(const BatchView& view, const LinkedRows& from, uint32_t first, uint32_t n,
                              FastBurst& burst, uint32_t* rest);
// Appends a packet of any other form, whose headers IPInput has passed, to a burst of its family that has room.
// Precondition: its key is not rare (net/key4.h), as columns do not hold that.
void append_parsed(const Packet& packet, uint32_t row, uint32_t length, FastBurst& burst);

// Of packets on their way to a device, what comes back with their results: columns of 32 places.
struct FastKept {
  uint16_t* row;
  uint32_t* length;
  uint32_t* ip_bytes;
  uint32_t* hop;
};

// Loops over whole columns, in the widest vectors that this processor has.
struct FastCode {
  // A burst takes no more packets. `trim`: what lies behind the network packet is cut off.
  void (*close)(FastBurst& burst, bool trim);
  // Makes the edits that stages noted for the lanes of `mask`, in the frames and in the batch's columns. `headers`:
  // somebody reads where the packets' headers lie.
  void (*commit)(const BatchView& view, const FastBurst& burst, uint32_t mask, bool headers);
  // Writes the egress notes of the lanes of `mask`, which have been committed, for a batch that has the column.
  void (*note_egress)(const BatchView& view, const FastBurst& burst, uint32_t mask);
  // Notes what `restore` gives back.
  void (*keep)(const FastBurst& burst, const FastKept& to);
  // n packets as gather_alike left those of kIpv4, but for their keys.
  void (*restore)(const FastKept& from, uint32_t n, const BatchView& view, FastBurst& burst);
  // Puts 32 key results into the burst; the lanes that passed all stages of `usual` by their first output.
  uint32_t (*take)(const uint64_t* words, uint32_t usual, FastBurst& burst);
};
const FastCode& fast_code();
// The same without wide vectors, which is what the other is held to.
const FastCode& plain_fast_code();

// Leaves the lanes of `lanes` alone, one behind the other in their order; what the others hold is lost, but for lanes
// past kLanes. Fills the keys. The same with each instruction set. Precondition: acl_isa_available(isa).
void compress_on(AclIsa isa, FastBurst& burst, uint32_t lanes);

// Adds the rows of the lanes of `mask`.
void add_rows(const FastBurst& burst, uint32_t mask, Selection& to);

// The registers of a lane as the stages' scalar forms would have left them, after a commit of the lane with `headers`.
// The burst's keys are filled.
void registers_of(const BatchView& view, const FastBurst& burst, uint32_t lane, Packet& packet);
// The same of the lanes of `mask` to the batch, which has everything else: annotations, and keys where they are `live`.
void store_registers(const BatchView& view, const FastBurst& burst, uint32_t mask, FieldMask live);

}  // namespace sluice

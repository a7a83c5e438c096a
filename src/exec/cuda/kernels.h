// The device kernels as the host sees them: addresses, arguments and shared memory. No CUDA types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hd.h"
#include "exec/device/body.h"
#include "exec/device/device.h"
#include "exec/device/work_queue.h"

namespace sluice {

// -- launch mode ------------------------------------------------------------------------------------------------------

// Shared memory of a block of kFrame records. What goes back of a frame whose beginning moved is read by whole words,
// past the end of its copy.
inline constexpr uint32_t frame_shared_bytes(const FrameSlots& slots, uint32_t threads) {
  return threads * slots.stride + 16;
}

// The same of tables behind it, where they lie in shared memory.
SLUICE_HD constexpr uint32_t frame_tables_at(const FrameSlots& slots, uint32_t threads) {
  return (threads * slots.stride + 16 + static_cast<uint32_t>(kTableAlign) - 1) / kTableAlign * kTableAlign;
}

// How many of its `count` kFrame records a lane takes, one after the other, where `kernels` such kernels run. The bus
// moves most with some 8,192 frames on their way, and a fifth less with eight times as many; a lookup in an access list
// takes longer than the bus, so that three times as many lanes are needed for it.
inline constexpr uint32_t frame_turns(uint32_t count, uint32_t kernels, bool finds_rules) {
  const uint64_t turns = uint64_t{count} * kernels / (finds_rules ? 24576 : 8192);
  return turns < 1 ? 1 : turns > 4 ? 4 : static_cast<uint32_t>(turns);
}

// What follows the program in a launch kernel's arguments.
struct LaunchArguments {
  const Word* in;
  Word* out;
  const uint32_t* count_at;  // where the count lies on the device; nullptr: it is `count`
  uint32_t count;
  uint8_t* frames;       // of kFrame records
  FrameSlots slots;      // the same
  FrameBlock* blocks;    // behind the words
  FrameDetail* details;  // behind the blocks; nullptr: nobody asks for them
  uint32_t* tails;       // behind these; nullptr: nothing is appended
  uint32_t* marks;       // behind these; as all that follow, nullptr where nobody asks for them
  uint8_t* nets;
  uint8_t* paints;  // the last
  uint8_t* to;      // where they go back, in the same places, in host memory
  uint8_t* heads;   // where heads go (FrameSlots::head); the same
  uint32_t* ended;  // kFrame: how many blocks have ended, 0 before and after the kernel; nullptr: nobody counts them
  uint32_t* said;   // where the last block stores `serial`, in host memory
  uint32_t serial;
  // Of served frames, where it is measured: where the last block stores how long they took, in host memory, and when
  // they came; nullptr: it is not.
  uint64_t* took;
  const uint64_t* came;
};

// Kernel(const DeviceProgram, const LaunchArguments), blocks of launch_threads(kind), a lane a record. nullptr: there
// is none, as check_program says (exec/device/kernels_there.h). Chains have none for tables in other than global
// memory.
const void* launch_kernel(RecordKind kind, uint8_t chain, TableMemory memory);
SLUICE_HD constexpr uint32_t launch_threads(RecordKind kind) {
  return is_key(kind) ? 128 : 64;
}
static_assert(launch_threads(RecordKind::kFrame) == kFrameBlockThreads);

// The symbols of the constant memory that each module's kernels read: tables are copied into all of them, to the same
// place.
std::vector<const void*> constant_banks();

// A program slot, in device memory and in the shared memory of those who stay.
inline constexpr uint32_t kProgramSlotBytes = (sizeof(DeviceProgram) + 15) / 16 * 16;

// -- servers of frames ------------------------------------------------------------------------------------------------

// Work of one flight, which blocks take in units: that of block u of `units` launched ones.
struct alignas(16) FrameWork {
  LaunchArguments a;
  const DeviceProgram* program;  // device memory
  // Its frames are there when *copied is `copied_serial`, in the device's memory; nullptr: they are.
  const uint32_t* copied;
  uint32_t copied_serial;
  uint32_t program_number;  // 0: none
  uint32_t units;
};
// In device memory, zeros before the first servers start.
struct FrameWorkPlaces {
  uint64_t claims[kWorkPlaces];
  uint64_t came[kWorkPlaces];  // when
  FrameWork entries[kWorkPlaces];
  uint32_t stop;  // servers of this number leave
};
struct ServeArguments {
  const WorkBoard<FrameWork>* board;  // host memory
  FrameWorkPlaces* places;
  uint32_t next;    // the first entry
  uint32_t number;  // of these servers
};
// Kernel(const ServeArguments), blocks of launch_threads(kFrame); the first block forwards.
const void* serve_frames_kernel(uint8_t chain);
// Shared memory of a block: copies of the longest frames, a program, and work.
inline constexpr uint32_t serve_work_at() {
  return (kFrameBlockThreads * frame_stride(kFrameMostRoom) + 16 + 15) / 16 * 16;
}
inline constexpr uint32_t serve_program_at() {
  return serve_work_at() + (static_cast<uint32_t>(sizeof(FrameWork)) + 15) / 16 * 16;
}
inline constexpr uint32_t serve_shared_bytes() {
  return serve_program_at() + kProgramSlotBytes;
}

// -- rings ------------------------------------------------------------------------------------------------------------

// How long a server took from finding a record to having stored its result, in bins of kRingBinNs; the last bin has all
// that took longer.
inline constexpr uint32_t kRingBins = 256;
inline constexpr uint32_t kRingBinNs = 64;

struct RingArguments {
  const Word* in;
  Word* out;
  RingControl* control;
  const RingControl::Order* orders;  // a server each: the control's, or their copy in device memory
  const DeviceProgram* programs;     // two slots, device memory
  uint32_t* histogram;               // kRingBins counts; nullptr: no stamps are taken
  uint64_t next;                     // the first record's serial
  uint64_t lap0;                     // the lap of serial 0
  uint32_t capacity;
  uint32_t servers;
};

// Kernel(const RingArguments), a warp a server.
const void* ring_kernel(RecordKind kind);
// The same for key records of IPv4, kRingTeam lanes a record: for rings whose round trip counts. A server takes
// 32 / kRingTeam records at a time.
const void* ring_team_kernel();
inline constexpr uint32_t kRingTeam = 8;
// The most servers in a block, and a block's shared memory.
inline constexpr uint32_t kRingBlockWarps = 8;
inline constexpr uint32_t ring_shared_bytes(uint32_t warps) {
  return warps * 2 * kProgramSlotBytes;
}

// Every kernel in the program, so that all are loaded before the first resident one starts.
std::vector<const void*> all_kernels();

// One file each; launch_kernel and ring_kernel choose.
namespace kernels_detail {
const void* launch_key4(uint8_t chain);
const void* launch_key6(uint8_t chain);
const void* launch_route4(uint8_t chain);
const void* launch_frame(uint8_t chain);
const void* launch_key4_in(TableMemory memory);
const void* launch_key6_in(TableMemory memory);
const void* launch_route4_in(TableMemory memory);
const void* launch_frame_in(TableMemory memory);
const void* serve_frames(uint8_t chain);
const void* constant_bank_key4();
const void* constant_bank_key6();
const void* constant_bank_route4();
const void* constant_bank_frame();
const void* ring_key4();
const void* ring_team4();
const void* ring_key6();
const void* ring_route4();
}  // namespace kernels_detail

}  // namespace sluice

// Frames that cross whole: a lane a frame, which it parses, looks up and edits in a copy in shared memory. Device only.
#pragma once

#include "exec/cuda/crc32_warp.cuh"
#include "exec/cuda/frame_chains.h"
#include "exec/cuda/host_memory.cuh"
#include "exec/cuda/walk.cuh"

namespace sluice::cuda_walk {

// Where the frames of a warp are: of each lane's the first `have` bytes, a multiple of 16, as they are now, in its
// copy, and all of it as it came, `at` bytes behind `frames`.
struct WarpFrames {
  const uint8_t* copies;
  uint32_t stride;
  const uint8_t* frames;
  uint32_t at, have;

  __device__ __forceinline__ const uint8_t* copy(uint32_t lane) const { return copies + lane * stride; }
};

// The 16 bytes of a frame from its byte `at` on, a multiple of 16.
__device__ __forceinline__ uint4 frame_piece(const uint8_t* copy, uint32_t have, const uint8_t* memory, uint32_t at) {
  if (at >= have) return *reinterpret_cast<const uint4*>(memory + at);
  const auto* words = reinterpret_cast<const uint32_t*>(copy + at);
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// A stage that sums whole frames, eight at a time. Called by all lanes; `mine`: this one has a packet there. One whose
// beginning has moved is done again by the host (frame_result).
template <typename Stage>
__device__ __forceinline__ uint8_t sum_frames(const Stage& stage, Walker& w, bool mine, const WarpFrames& f) {
  const uint32_t lane = threadIdx.x & 31;
  Packet& p = w.packet;
  const bool sums = mine && p.data == 0 && stage.wrong(p) == DropReason::kNone;
  const uint32_t covers = sums ? stage.covers(p) : 0;
  uint32_t crc = kCrc32Start;
#pragma unroll 1
  for (uint32_t turn = 0; turn < 4; ++turn) {
    const auto frame = static_cast<int>(turn * 8 + lane / 4);
    const uint32_t bytes = __shfl_sync(kAll, covers, frame), at = __shfl_sync(kAll, f.at, frame);
    const uint32_t have = __shfl_sync(kAll, f.have, frame);
    if (!__any_sync(kAll, bytes >= cuda_crc::kLeastBytes)) continue;
    const uint8_t* const copy = f.copy(static_cast<uint32_t>(frame));
    const uint8_t* const memory = f.frames + at;
    const uint32_t one = cuda_crc::eight_frames(stage.mode, 0, bytes, kCrc32Start,
                                                [=](uint32_t from) { return frame_piece(copy, have, memory, from); });
    const uint32_t its = __shfl_sync(kAll, one, static_cast<int>(lane % 8 * 4));
    if (lane / 8 == turn) crc = its;
  }
  if (!mine) return 0;
  if (sums && covers < cuda_crc::kLeastBytes) crc = crc32_bitwise(stage.mode, kCrc32Start, f.copy(lane), covers);
  if constexpr (Stage::kAppends) {
    return stage.finish(p, crc, w.tail);
  } else {
    uint32_t last = 0;
    for (uint32_t i = 0; sums && i < 4; ++i) {
      const uint32_t at = covers + i;
      last |= uint32_t{at < f.have ? f.copy(lane)[at] : f.frames[size_t{f.at} + at]} << (8 * i);
    }
    return stage.finish(p, crc, last);
  }
}

template <typename Chain, typename Tables>
__device__ __forceinline__ void walk_frame(const DeviceProgram& program, Walker& w, const Tables& tables,
                                           const WarpFrames& frames) {
  if constexpr (std::is_same_v<Chain, NoChain> || std::is_same_v<Chain, SummingChain>) {
#pragma unroll 1
    for (uint32_t s = program.begin; s < program.end; ++s) {
      const bool mine = w.path == s;
      if (!__any_sync(kAll, mine)) continue;
      const StageSlot& slot = program.program.stages[s];
      uint8_t output = 0;
      auto run = [&](const auto& stage) {
        // Programs that read whole frames have a kernel of their own (chain_of).
        using Stage = std::decay_t<decltype(stage)>;
        if constexpr (!device_detail::kCooperative<Stage>) {
          if (mine) output = stage(w.packet);
        } else if constexpr (std::is_same_v<Chain, SummingChain>) {
          output = sum_frames(stage, w, mine, frames);
        }
      };
      visit<RecordKind::kFrame, 0, AllStages::kSize>(slot, tables, run);
      // Lengths are found by the host, from what was cut.
      if (mine) take_output(program, slot, s, output, w);
      __syncwarp();
    }
  } else {
    static_assert(std::is_same_v<Tables, GlobalTables>);
    walk_chain<1>(Chain{}, program, w);
  }
}

// Copies in shared memory begin at words.
__device__ __forceinline__ void put_words(uint8_t* at, const uint4& v) {
  auto* to = reinterpret_cast<uint32_t*>(at);
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
}

// The bus is a long way: what a warp needs of its frames is asked for at once, as far as registers go.
inline constexpr uint32_t kLine = 64;
inline constexpr uint32_t kPiecesAhead = 6;

// Copies a warp's frames that lie one behind the other without gaps, whole lines at a time whatever their lengths are.
// Called by all lanes, each with its own frame, of which `room` bytes cross. False: they lie otherwise, or only the
// first lines of some of them are needed.
__device__ __forceinline__ bool copy_packed(const LaunchArguments& a, bool here, uint32_t at, uint32_t room,
                                            bool splits, uint32_t lane, uint8_t* copies) {
  // In pieces of 16 bytes: where each frame begins. Lanes without one are the last.
  const uint32_t first = __shfl_sync(kAll, at, 0);
  const uint32_t before = here ? (at - first) / 16 : ~0u;
  const uint32_t next = __shfl_down_sync(kAll, before, 1);
  const bool follows = lane == 31 || next == ~0u || next == before + room / 16;
  if (!__all_sync(kAll, !here || (follows && !splits))) return false;
  const uint32_t lanes = __popc(__ballot_sync(kAll, here));
  const uint32_t pieces = __shfl_sync(kAll, before + room / 16, static_cast<int>(lanes - 1));
  const uint8_t* const from = a.frames + first;
#pragma unroll 1
  for (uint32_t begin = 0; begin < pieces; begin += 32 * kPiecesAhead) {
    uint4 piece[kPiecesAhead];
#pragma unroll
    for (uint32_t k = 0; k < kPiecesAhead; ++k) {
      const uint32_t p = begin + k * 32 + lane;
      if (p < pieces) piece[k] = *reinterpret_cast<const uint4*>(from + size_t{p} * 16);
    }
#pragma unroll
    for (uint32_t k = 0; k < kPiecesAhead; ++k) {
      const uint32_t p = begin + k * 32 + lane;
      if (begin + k * 32 >= pieces) break;
      // Of the last frame that begins there or before.
      uint32_t frame = 0;
#pragma unroll
      for (uint32_t step = 16; step != 0; step /= 2) {
        if (__shfl_sync(kAll, before, static_cast<int>(frame + step)) <= p) frame += step;
      }
      const uint32_t its = __shfl_sync(kAll, before, static_cast<int>(frame));
      if (p < pieces) put_words(copies + frame * a.slots.stride + (p - its) * 16, piece[k]);
    }
  }
  __syncwarp();
  return true;
}

// Copies the line from byte `from` on of each of a warp's frames, as far as `wanted` bytes of it go.
__device__ __forceinline__ void copy_lines(const LaunchArguments& a, uint32_t at, uint32_t wanted, uint32_t from,
                                           uint32_t lane, uint8_t* copies) {
  const uint32_t part = from + lane % 4 * 16;
  uint4 lines[4];
  bool some[4];
#pragma unroll
  for (uint32_t turn = 0; turn < 4; ++turn) {
    const auto frame = static_cast<int>(turn * 8 + lane / 4);
    const uint8_t* const line = a.frames + __shfl_sync(kAll, at, frame) + part;
    some[turn] = part < __shfl_sync(kAll, wanted, frame);
    if (some[turn]) lines[turn] = *reinterpret_cast<const uint4*>(line);
  }
#pragma unroll
  for (uint32_t turn = 0; turn < 4; ++turn) {
    if (some[turn]) put_words(copies + (turn * 8 + lane / 4) * a.slots.stride + part, lines[turn]);
  }
  __syncwarp();
}

// Called by all threads of one of `blocks` blocks once they have stored what the host reads. The barrier and the fence
// make the block's stores visible to the host before it counts as ended, and the second fence all blocks' before
// `serial`.
__device__ __forceinline__ void say_ended(const LaunchArguments& a, uint32_t blocks) {
  if (a.ended == nullptr) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  fence_sys();
  if (atomicAdd(a.ended, 1) + 1 != blocks) return;
  fence_sys();
  *a.ended = 0;
  if (a.took != nullptr) DeviceWords::store64(a.took, global_ns() - *a.came);
  store_release_sys(a.said, a.serial);
}

// Sums the dropped packets of a warp by kind, and gives those that are summed. Called by all lanes; `mine`: this one
// has one, with this word.
__device__ __forceinline__ uint32_t sum_drops(FrameBlock& block, uint32_t half, bool mine, uint64_t word,
                                              uint32_t bytes, uint32_t lane) {
  const uint32_t all = __ballot_sync(kAll, mine);
  uint32_t left = all;
  const uint64_t meant = word & FrameDrops::kMeant;
#pragma unroll 1
  for (uint32_t k = 0; left != 0 && k < FrameBlock::kDropKinds; ++k) {
    const uint64_t its = __shfl_sync(kAll, meant, __ffs(static_cast<int>(left)) - 1);
    const bool same = (left >> lane & 1) != 0 && meant == its;
    const uint32_t packets = __ballot_sync(kAll, same);
    const uint32_t came = __reduce_add_sync(kAll, same ? bytes : 0u);
    if (lane == 0) block.drops[half][k] = {its, packets, came};
    left &= ~packets;
  }
  if (lane == 0) block.dropped[half] = all & ~left;
  return all & ~left;
}

// A warp's frames, of which this lane has number i, in `copies`.
template <typename Chain, typename Tables>
__device__ __forceinline__ void take_frames(const DeviceProgram& program, const LaunchArguments& a, uint32_t i,
                                            uint32_t lane, uint8_t* copies, const Tables& tables) {
  const bool here = i < a.count;
  FrameRecord record{};
  if (here) {
    const uint2 v = reinterpret_cast<const uint2*>(a.in)[i];
    record.at = v.x;
    record.bytes = static_cast<uint16_t>(v.y);
    record.longer = static_cast<uint16_t>(v.y >> 16);
  }
  const uint32_t room = here ? a.slots.room(record.bytes) : 0;
  uint8_t* const mine = copies + lane * a.slots.stride;
  const bool splits = a.slots.splits(record.bytes);
  uint32_t have = room;
  if (!copy_packed(a, here, record.at, room, splits, lane, copies)) {
    copy_lines(a, record.at, room, 0, lane, copies);
    if (splits && headers_fit_line(mine, kLine)) have = kLine;
    for (uint32_t at = kLine; __any_sync(kAll, have > at); at += kLine)
      copy_lines(a, record.at, have, at, lane, copies);
  }
  Walker w;
  read_frame(program, record, a.slots, mine, w);
  if (!here) w.path = kPathDropped;
  walk_frame<Chain>(program, w, tables, WarpFrames{copies, a.slots.stride, a.frames, record.at, have});
  const uint64_t result = frame_result(record, a.slots, w);
  const bool usual = here && is_usual_frame(result, usual_stages(program.end));
  const uint32_t all = __ballot_sync(kAll, usual);
  const FrameTrim trim = trim_of(result);
  const uint32_t first_trim = __shfl_sync(kAll, uint32_t{trim.word}, all != 0 ? __ffs(static_cast<int>(all)) - 1 : 0);
  const bool trimmed = __any_sync(kAll, usual && trim.word != first_trim);
  const uint32_t bytes = __reduce_add_sync(kAll, here ? uint32_t{record.bytes} : 0u);
  FrameBlock& block = a.blocks[i / FrameBlock::kRecords];
  if (lane == 0) {
    block.usual[i / 32 % 2] = all;
    block.bytes[i / 32 % 2] = bytes | (trimmed ? FrameBlock::kTrimmed : 0u);
    block.trim[i / 32 % 2].word = static_cast<uint16_t>(first_trim);
  }
  const uint32_t summed = sum_drops(block, i / 32 % 2, here && is_summed_drop(result, w), result, record.bytes, lane);
  if (here) {
    block.ports[i % FrameBlock::kRecords] = static_cast<uint16_t>(w.packet.port);
    if (usual ? trimmed : (summed >> lane & 1) == 0) reinterpret_cast<uint64_t*>(a.out)[i] = result;
    if (a.details != nullptr) a.details[i] = frame_detail(w);
    if (a.marks != nullptr) a.marks[i] = w.packet.mark;
    if (a.nets != nullptr) a.nets[i] = frame_net(w);
    if (a.paints != nullptr) a.paints[i] = w.packet.paint;
    if constexpr (std::is_same_v<Chain, SummingChain>) {
      if (a.tails != nullptr) a.tails[i] = w.tail;
    }
  }
  __syncwarp();
  // A packet that is redone or dropped leaves nothing that anybody reads.
  const bool leaves = here && (result & kFrameRedo) == 0 && w.path != kPathDropped;
  const bool head = is_frame_head(a.slots, w.packet);
  if (a.slots.head != 0) {
    // Frames that do not leave have heads that nobody reads. They are stored beside those of others: a line of the
    // host's memory of which only a part is stored has to be read first.
    const uint32_t each = a.slots.head / 16;
    uint8_t* const heads = a.heads + size_t{i - lane} * a.slots.head;
    const bool some = __any_sync(kAll, leaves && head);
    const uint32_t chunks = some ? __popc(__ballot_sync(kAll, here)) * each : 0;
    for (uint32_t chunk = lane; chunk < chunks; chunk += 32) {
      const uint32_t frame = chunk / each, part = chunk % each;
      const auto* words = reinterpret_cast<const uint32_t*>(copies + frame * a.slots.stride + part * 16);
      *reinterpret_cast<uint4*>(heads + chunk * 16) = make_uint4(words[0], words[1], words[2], words[3]);
    }
    if (!__any_sync(kAll, leaves && !head)) {
      __syncwarp();
      return;
    }
  }
  const uint32_t back = leaves && !head ? frame_bytes_back(record, a.slots, w.packet) : 0;
  const int32_t data = w.packet.data;
#pragma unroll
  for (uint32_t turn = 0; turn < 4; ++turn) {
    const uint32_t frame = turn * 8 + lane / 4;
    const uint32_t its = __shfl_sync(kAll, back, static_cast<int>(frame));
    const int32_t moved = __shfl_sync(kAll, data, static_cast<int>(frame));
    uint8_t* to = a.to + a.slots.back_at(i - lane + frame, __shfl_sync(kAll, record.at, static_cast<int>(frame)));
    const uint8_t* from = copies + frame * a.slots.stride + moved;
    for (uint32_t chunk = lane % 4; chunk * 16 < its; chunk += 4) {
      uint32_t v[4];
      if ((moved & 3) == 0) {
        const auto* words = reinterpret_cast<const uint32_t*>(from + chunk * 16);
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) v[k] = words[k];
      } else {
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) {
          const uint8_t* b = from + chunk * 16 + k * 4;
          v[k] = b[0] | uint32_t{b[1]} << 8 | uint32_t{b[2]} << 16 | uint32_t{b[3]} << 24;
        }
      }
      *reinterpret_cast<uint4*>(to + chunk * 16) = make_uint4(v[0], v[1], v[2], v[3]);
    }
  }
  __syncwarp();
}

// All frames of block `block` of `blocks`, by the copies at the beginning of its shared memory.
template <typename Chain, typename Tables>
__device__ __forceinline__ void take_all_frames(const DeviceProgram& program, const LaunchArguments& a, uint32_t block,
                                                uint32_t blocks, uint4* shared, const Tables& tables) {
  const uint32_t lane = threadIdx.x & 31;
  auto* const copies = reinterpret_cast<uint8_t*>(shared) + size_t{threadIdx.x - lane} * a.slots.stride + kFrameFront;
#pragma unroll 1
  for (uint32_t i = block * blockDim.x + threadIdx.x; i - lane < a.count; i += blocks * blockDim.x)
    take_frames<Chain>(program, a, i, lane, copies, tables);
  say_ended(a, blocks);
}

}  // namespace sluice::cuda_walk

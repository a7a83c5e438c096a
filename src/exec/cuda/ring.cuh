// The ring kernel of persistent mode: a warp is a server that polls its groups of records, runs them and stores
// their results, until the host says stop. docs/design/ring.md has the protocol and the memory-ordering argument.
#pragma once

#include "exec/cuda/host_memory.cuh"
#include "exec/cuda/ring_program.cuh"
#include "exec/cuda/walk.cuh"

namespace sluice::cuda_walk {

// After so many empty polls in a row a server begins to sleep between them; a poll itself takes about a microsecond.
inline constexpr uint32_t kIdleBeforeSleep = 4096;
inline constexpr uint32_t kLongestSleepNs = 1000;
// Every so many polls a server looks at `stop` and `epoch`; the loads travel beside the poll's own. A group of frames
// can take so long that a server looks after each.
template <RecordKind K>
inline constexpr uint32_t kPollsPerLook = kIsKey<K> ? 32 : 1;
// A beat at least every so many cycles: 0.15 ms at the highest clock, 0.9 ms at the lowest.
inline constexpr uint32_t kCyclesPerBeat = 300'000;

// kTeam: so many neighbours hold one record, which only key records can; a group is 32 / kTeam records. Two blocks have
// to fit a multiprocessor: rings count on it (ring.cpp).
template <RecordKind K, uint32_t kTeam>
__global__ void __launch_bounds__(ring_block_warps(K) * 32, 2) ring(const __grid_constant__ RingArguments a) {
  extern __shared__ uint4 shared[];
  const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const uint32_t server = blockIdx.x * warps + warp;
  if (server >= a.servers) return;

  auto* bytes = reinterpret_cast<uint8_t*>(shared);
  // Slot p at programs + p * kProgramSlotBytes.
  uint8_t* programs = bytes + size_t{warp} * 2 * kProgramSlotBytes;
  auto program_of = [programs](uint32_t parity) -> DeviceProgram* {
    return reinterpret_cast<DeviceProgram*>(programs + parity * kProgramSlotBytes);
  };
  auto slot_of = [&a](uint32_t parity) {
    return reinterpret_cast<const DeviceProgram*>(reinterpret_cast<const uint8_t*>(a.programs) +
                                                  parity * kProgramSlotBytes);
  };
  const Scratch scratch = scratch_of<K>(bytes + size_t{warps} * 2 * kProgramSlotBytes, warp, a.words_in, a.words_out);
  RingControl::Server& me = a.control->servers[server];
  const RingControl::Order& order = a.orders[server];

  // Every lane acquires for itself; the warp goes by what lane 0 saw.
  uint32_t epoch = __shfl_sync(kAll, load_acquire_sys(&order.epoch), 0);
  take_program(slot_of(0), program_of(0), lane);
  take_program(slot_of(1), program_of(1), lane);
  if (lane == 0) store_release_sys(&me.ack, epoch);

  static_assert(kTeam == 1 || kIsKey<K>);
  constexpr uint32_t kSize = 32 / kTeam;  // records of a group
  const uint32_t place = lane / kTeam;
  uint64_t group = a.next / kSize;
  uint32_t done = 0;
  {
    const auto turn = static_cast<uint32_t>(group % a.servers);
    const uint32_t ahead = server >= turn ? server - turn : server + a.servers - turn;
    if (ahead == 0) done = (1u << (a.next & (kSize - 1)) * kTeam) - 1;
    group += ahead;
  }
  const uint32_t lap_shift = 31 - __clz(static_cast<int>(a.capacity));
  uint32_t seen = 0;  // what the poll before this one found of an unfinished group
  uint32_t polls = 0, idle = 0, beat = 0, beaten = static_cast<uint32_t>(clock64());

  for (;;) {
    const uint64_t serial = group * kSize + place;
    const auto first = static_cast<uint32_t>(group * kSize) & (a.capacity - 1);  // slot of lane 0
    const uint32_t slot = first + place;
    const uint32_t lap = static_cast<uint32_t>(a.lap0 + (serial >> lap_shift)) & 63u;

    // The poll. A lane whose record is done reads it again: the warp's load stays one piece.
    constexpr uint32_t kWords = K == RecordKind::kKey6 ? kKey6Words : 1;
    Word words[kWords];
    if constexpr (kIsKey<K>) {
#pragma unroll
      for (uint32_t i = 0; i < kWords; ++i) words[i] = DeviceWords::load(a.in + size_t{slot} * kWords + i);
    } else {
      words[0] = DeviceWords::load(a.in + size_t{slot} * a.words_in + (a.words_in - 1));
    }
    if (++polls % kPollsPerLook<K> == 0) {
      const uint32_t stop = __shfl_sync(kAll, load_relaxed_sys(&order.stop), 0);
      const uint32_t now = __shfl_sync(kAll, load_relaxed_sys(&order.epoch), 0);
      if (stop != 0) break;
      if (now != epoch) {
        epoch = __shfl_sync(kAll, load_acquire_sys(&order.epoch), 0);
        // More than one change may have come: each slot is current after this.
        take_program(slot_of(epoch & 1), program_of(epoch & 1), lane);
        take_program(slot_of(~epoch & 1), program_of(~epoch & 1), lane);
        if (lane == 0) store_release_sys(&me.ack, epoch);
      }
      const auto cycles = static_cast<uint32_t>(clock64());
      if (__shfl_sync(kAll, cycles - beaten, 0) > kCyclesPerBeat) {
        beaten = __shfl_sync(kAll, cycles, 0);
        if (lane == 0) store_relaxed_sys(&me.beat, ++beat);
      }
    }
    bool ready = (done >> lane & 1) == 0;
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) ready = ready && tag_lap(word_tag(words[i])) == lap;
    uint32_t mask = __ballot_sync(kAll, ready);
    if constexpr (kTeam > 1) {
      // A record has come when all of its team have seen it: what they see of one lap is the same.
      constexpr uint32_t kMates = kAll >> (32 - kTeam);
      ready = (mask >> (lane & ~(kTeam - 1)) & kMates) == kMates;
      mask = __ballot_sync(kAll, ready);
    }
    if (mask != 0 && (mask | done) != kAll && mask != seen) {
      // The host is writing this very group. Another poll costs less than another walk for the rest of it.
      seen = mask;
      continue;
    }
    seen = 0;
    if (mask == 0) {
      if (++idle > kIdleBeforeSleep) {
        const uint32_t ns = (idle - kIdleBeforeSleep) / 16;
        __nanosleep(ns < kLongestSleepNs ? ns : kLongestSleepNs);
        if (ns >= kLongestSleepNs) idle = kIdleBeforeSleep + 16 * kLongestSleepNs;
      }
      continue;
    }
    idle = 0;
    uint64_t found = 0;
    if (a.histogram != nullptr) found = global_ns();

    Walker w;
    w.path = kPathDropped;
    uint32_t tag = word_tag(words[0]);
    if constexpr (K == RecordKind::kRoute4) {
      // Its walkers follow one another, below.
    } else if constexpr (kIsKey<K>) {
      if (ready) read_key<K>(*program_of(tag_parity(tag)), words, w);
    } else {
      // The words of the whole group, a line at a time; a record counts when each of its words has come.
      const Word* in = a.in + size_t{first} * a.words_in;
      const uint32_t count = kSize * a.words_in;
      for (uint32_t i = lane; i < count; i += 128) {
        Word some[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) some[k] = i + 32 * k < count ? DeviceWords::load(in + i + 32 * k) : Word{};
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) {
          if (i + 32 * k < count) store_plain(scratch.words + i + 32 * k, some[k]);
        }
      }
      __syncwarp();
      const Word* mine = scratch.words + place * a.words_in;
      for (uint32_t i = 0; ready && i < a.words_in; ++i) ready = tag_lap(word_tag(mine[i])) == lap;
      mask = __ballot_sync(kAll, ready);
      if (mask == 0) continue;
      tag = word_tag(mine[0]);
      // Frames were written before their record: what follows may not be older (and not out of this processor's cache).
      if constexpr (K == RecordKind::kAddress) fence_sys();
      if (ready) {
        read_record(K, *program_of(tag_parity(tag)), mine, scratch.frames + lane * kFrameStride, w);
      }
      __syncwarp();
    }

    // Records of two generations may stand in one group.
    const uint32_t odd = __ballot_sync(kAll, ready && tag_parity(tag) == 1);
    auto walk_both = [&](Walker& walker) {
#pragma unroll 1
      for (uint32_t parity = 0; parity < 2; ++parity) {
        const uint32_t these = parity == 0 ? mask & ~odd : mask & odd;
        if (these == 0) continue;
        // The others stand aside: no stage has their path.
        const bool now = (these >> lane & 1) != 0;
        const uint8_t path = walker.path;
        if (!now) walker.path = kPathDropped;
        walk_program<K, kTeam>(*program_of(parity), walker, scratch);
        if (!now) walker.path = path;
      }
    };
    uint64_t routes = uint64_t{tag} << 57;
    if constexpr (K == RecordKind::kRoute4) {
#pragma unroll 1
      for (uint32_t i = 0; i < kRoutesPerRecord; ++i) {
        Walker one;
        one.path = kPathDropped;
        if (ready) read_route(*program_of(tag_parity(tag)), words[0], i, one);
        walk_both(one);
        routes |= route_part(one.packet.next_hop, i);
      }
    } else {
      walk_both(w);
    }

    if constexpr (K == RecordKind::kRoute4) {
      if (ready) DeviceWords::store64(reinterpret_cast<uint64_t*>(a.out) + slot, routes);
    } else if constexpr (kIsKey<K>) {
      if (ready && lane % kTeam == 0) {
        DeviceWords::store64(reinterpret_cast<uint64_t*>(a.out) + slot, key_result(w, tag));
      }
    } else {
      // What was edited in place is seen before the result is.
      if constexpr (K == RecordKind::kAddress) fence_sys();
      Word* mine = scratch.words + lane * a.words_out;
      if (ready) {
        write_result(K, *program_of(tag_parity(tag)), w, tag, [mine](uint32_t i, const Word& word) { mine[i] = word; });
      }
      __syncwarp();
      Word* out = a.out + size_t{first} * a.words_out;
      for (uint32_t i = lane; i < kSize * a.words_out; i += 32) {
        if ((mask >> (i / a.words_out) & 1) != 0) DeviceWords::store(out + i, load_plain(scratch.words + i));
      }
      __syncwarp();
    }
    if (a.histogram != nullptr && lane == 0) {
      const uint64_t bin = (global_ns() - found) / kRingBinNs;
      atomicAdd(a.histogram + (bin < kRingBins ? bin : kRingBins - 1), 1u);
    }
    done |= mask;
    if (done == kAll) {
      done = 0;
      group += a.servers;
    }
  }
  __syncwarp();
  if (lane == 0) store_release_sys(&me.left, 1u);
}

}  // namespace sluice::cuda_walk

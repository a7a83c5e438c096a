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
// Every so many polls a server looks at `stop` and `epoch`; the loads travel beside the poll's own.
inline constexpr uint32_t kPollsPerLook = 32;
// A beat at least every so many cycles: 0.15 ms at the highest clock, 0.9 ms at the lowest.
inline constexpr uint32_t kCyclesPerBeat = 300'000;

// kTeam: so many neighbours hold one record; a group is 32 / kTeam records. Two blocks have
// to fit a multiprocessor: rings count on it (ring.cpp).
template <RecordKind K, uint32_t kTeam>
__global__ void __launch_bounds__(kRingBlockWarps * 32, 2) ring(const __grid_constant__ RingArguments a) {
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
  RingControl::Server& me = a.control->servers[server];
  const RingControl::Order& order = a.orders[server];

  // Every lane acquires for itself; the warp goes by what lane 0 saw.
  uint32_t epoch = __shfl_sync(kAll, load_acquire_sys(&order.epoch), 0);
  take_program(slot_of(0), program_of(0), lane);
  take_program(slot_of(1), program_of(1), lane);
  if (lane == 0) store_release_sys(&me.ack, epoch);

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
    constexpr uint32_t kWords = words_in(K);
    Word words[kWords];
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) words[i] = DeviceWords::load(a.in + size_t{slot} * kWords + i);
    if (++polls % kPollsPerLook == 0) {
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

    const uint32_t tag = word_tag(words[0]);

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
        walk_program<K, kTeam>(*program_of(parity), walker);
        if (!now) walker.path = path;
      }
    };
    if constexpr (K == RecordKind::kRoute4) {
      uint64_t routes = uint64_t{tag} << 57;
#pragma unroll 1
      for (uint32_t i = 0; i < kRoutesPerRecord; ++i) {
        Walker one;
        one.path = kPathDropped;
        if (ready) read_route(*program_of(tag_parity(tag)), words[0], i, one);
        walk_both(one);
        routes |= route_part(one.packet.next_hop, i);
      }
      if (ready) DeviceWords::store64(reinterpret_cast<uint64_t*>(a.out) + slot, routes);
    } else {
      Walker w;
      w.path = kPathDropped;
      if (ready) read_key<K>(*program_of(tag_parity(tag)), words, w);
      walk_both(w);
      if (ready && lane % kTeam == 0) {
        DeviceWords::store64(reinterpret_cast<uint64_t*>(a.out) + slot, key_result(w, tag));
      }
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

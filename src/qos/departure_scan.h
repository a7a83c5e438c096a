// Departure times of many packets at once, on any number of multiprocessors, as one owner would have given them in the
// order of the packets. Host and device.
//
// A packet of b units that comes when the rate had sent n takes a schedule's word w to max(w, n) + b (qos/departure.h).
// Such functions, w -> max(w + add, floor), are closed under composition, and composition associates: so the word in
// front of every packet is a prefix scan, and nothing depends on who computes which part of it, or when. (Refusal is no
// such function: a schedule with a horizon is walked in order.)
//
// Packets lie in chunks. All of a chunk come at one time, so that within it a scan of bytes does. Between chunks the
// scan is by decoupled look-back (Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back",
// NVIDIA 2016): a chunk publishes what it does to each word, looks back over chunks that have published no more than
// that, to one that has published its words, and then publishes its own. Chunks are numbered by a ticket in the order
// in which their owners begin, so that the chunks that anybody waits for have been begun, and nobody waits for ever.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/hd.h"
#include "qos/class_map.h"
#include "qos/departure.h"

namespace sluice {

// w -> max(w + add, floor).
struct WordMap {
  uint64_t add = 0;
  uint64_t floor = 0;

  SLUICE_HD uint64_t operator()(uint64_t word) const {
    const uint64_t moved = word + add;
    return moved < floor ? floor : moved;
  }
  // What packets of `bytes` together do that come at one time; of no bytes: nothing.
  SLUICE_HD static WordMap of(const DepartureRate& rate, uint64_t now_ns, uint64_t bytes) {
    if (rate.unlimited() || bytes == 0) return {};
    const uint64_t units = bytes << rate.unit_bits;
    return {units, rate.units_at(now_ns) + units};
  }
  // The word itself, whatever was there before.
  SLUICE_HD static WordMap constant(uint64_t word) { return {0, word}; }
};
// First `first`, then `second`. Floors count for no less than what they were after `second`; a constant stays one where
// it is applied to 0, as `look_back` does.
SLUICE_HD WordMap then(const WordMap& first, const WordMap& second) {
  const uint64_t floor = first.floor + second.add;
  return {first.add + second.add, floor < second.floor ? second.floor : floor};
}

// The departure of a packet of a chunk, where `word` is the schedule's in front of the chunk, and packets of
// `bytes_before` (of one byte each at least) come in front of it in the chunk. The schedule has no horizon.
SLUICE_HD uint64_t departure_in_chunk(const DepartureRate& rate, uint64_t word, uint64_t now_ns, uint64_t now_units,
                                      uint64_t bytes_before) {
  if (rate.unlimited()) return now_ns;
  if (bytes_before != 0) word = (word < now_units ? now_units : word) + (bytes_before << rate.unit_bits);
  return rate.departure(word, now_ns);
}

// The schedules of a port: one a class, and the port's own, which all packets are charged to.
struct PortSchedules {
  static constexpr unsigned kMost = kMaxQosClasses + 1;

  DepartureRate rates[kMost];  // classes first, then the port
  uint32_t classes = kDefaultQosClasses;

  SLUICE_HD unsigned schedules() const { return classes + 1; }
  SLUICE_HD unsigned port() const { return classes; }
  // Nobody waits for anything.
  SLUICE_HD bool unlimited() const {
    for (unsigned s = 0; s < schedules(); ++s) {
      if (!rates[s].unlimited()) return false;
    }
    return true;
  }
};
static_assert(std::is_trivially_copyable_v<PortSchedules>);

// What a chunk has published. A cache line or two of its own.
struct alignas(128) ChunkLink {
  static constexpr uint32_t kNothing = 0, kMaps = 1, kWords = 2;  // of one lap; the lap is above

  WordMap maps[PortSchedules::kMost];
  uint64_t words[PortSchedules::kMost] = {};
  uint32_t state = kNothing;
};

// The links of chunks 0, 1, 2, ..., all clear at first. Where they are reused (a ring of a power of two), no chunk is
// begun before the one that is half a ring older has been done with, and groups have at most half a ring of lanes.
struct ChunkLinks {
  ChunkLink* links = nullptr;
  uint32_t places = 0;  // 0: as many as there are chunks

  SLUICE_HD ChunkLink& of(uint64_t chunk) const { return links[places == 0 ? chunk : chunk & (places - 1)]; }
  // What a state is raised by: never 0, and not what the place had the laps before.
  SLUICE_HD uint32_t lap(uint64_t chunk) const {
    return (places == 0 ? 1u : static_cast<uint32_t>(chunk / places % 0x0fffffffu) + 1) << 2;
  }
};
static_assert(std::is_trivially_copyable_v<ChunkLinks>);

// The words in front of chunk `chunk`, all lanes of `group` together: `words` of the first chunk are `initial`. A
// lane's memory is its own; what it reads of others was published by Atomics::release. Atomics::acquire(const
// uint32_t*), release(uint32_t*, uint32_t), pause() while there is nothing yet. Precondition: the owners of all chunks
// before go on whatever this one does.
template <typename Atomics, typename Group>
SLUICE_HD void look_back(const Group& group, const ChunkLinks& links, uint64_t chunk, unsigned schedules,
                         const uint64_t* initial, uint64_t* words) {
  WordMap behind[PortSchedules::kMost];  // what the chunks between the window and this one do
  for (uint64_t end = chunk;;) {
    // Lane i looks at the i-th chunk in front of `end`; in front of the first one lie the initial words.
    const bool first = end < uint64_t{group.lane()} + 1;
    uint32_t state = ChunkLink::kWords;
    const ChunkLink* link = links.links;
    if (!first) {
      const uint64_t at = end - 1 - group.lane();
      const uint32_t lap = links.lap(at);
      link = &links.of(at);
      // What an earlier lap left is nothing.
      while ((state = Atomics::acquire(&link->state) ^ lap) > ChunkLink::kWords || state == ChunkLink::kNothing)
        Atomics::pause();
    }
    const uint32_t known = group.ballot(state == ChunkLink::kWords);
    uint32_t nearest = 0;
    while (nearest < group.size() && (known >> nearest & 1) == 0) ++nearest;
    for (unsigned s = 0; s < schedules; ++s) {
      WordMap map;
      if (group.lane() < nearest) {
        map = link->maps[s];
      } else if (group.lane() == nearest) {
        map = WordMap::constant(first ? initial[s] : link->words[s]);
      }
      // Lanes go back in time.
      map = group.reduce(map, [](const WordMap& later, const WordMap& earlier) { return then(earlier, later); });
      behind[s] = then(map, behind[s]);
    }
    if (nearest < group.size()) break;
    end -= group.size();
  }
  for (unsigned s = 0; s < schedules; ++s) words[s] = behind[s](0);
}

// A chunk's whole way: publishes what its packets do to each schedule, `maps`, finds the words in front of it,
// publishes those behind. `words` receives, in every lane, the words in front of the chunk. `next` (not null for the
// last chunk alone; not `initial`, which others may still read) gets those behind it.
template <typename Atomics, typename Group>
SLUICE_HD void pass_chunk(const Group& group, const ChunkLinks& links, uint64_t chunk, unsigned schedules,
                          const WordMap* maps, const uint64_t* initial, uint64_t* next, uint64_t* words) {
  ChunkLink& link = links.of(chunk);
  const uint32_t lap = links.lap(chunk);
  if (group.lane() == 0) {
    for (unsigned s = 0; s < schedules; ++s) link.maps[s] = maps[s];
    Atomics::release(&link.state, lap | ChunkLink::kMaps);
  }
  look_back<Atomics>(group, links, chunk, schedules, initial, words);
  if (group.lane() != 0) return;
  for (unsigned s = 0; s < schedules; ++s) link.words[s] = maps[s](words[s]);
  Atomics::release(&link.state, lap | ChunkLink::kWords);
  if (next != nullptr) {
    for (unsigned s = 0; s < schedules; ++s) next[s] = link.words[s];
  }
}

// The same for packets of all classes at once that come at `now_ns`: `bytes` by class.
template <typename Atomics, typename Group>
SLUICE_HD void pass_chunk(const Group& group, const PortSchedules& port, const ChunkLinks& links, uint64_t chunk,
                          uint64_t now_ns, const uint64_t* bytes, const uint64_t* initial, uint64_t* next,
                          uint64_t* words) {
  WordMap maps[PortSchedules::kMost];
  uint64_t all = 0;
  for (unsigned s = 0; s < port.classes; ++s) {
    maps[s] = WordMap::of(port.rates[s], now_ns, bytes[s]);
    all += bytes[s];
  }
  maps[port.port()] = WordMap::of(port.rates[port.port()], now_ns, all);
  pass_chunk<Atomics>(group, links, chunk, port.schedules(), maps, initial, next, words);
}

// Charges `bytes` of packets that come at `now_ns` to a schedule that many share, at once, and returns its word before.
// In the order in which owners come here; the departures of the packets follow by departure_in_chunk. Atomics64::
// load(const uint64_t*), compare_exchange(uint64_t*, uint64_t& expected, uint64_t).
template <typename Atomics64>
SLUICE_HD uint64_t charge_shared(const DepartureRate& rate, uint64_t* word, uint64_t now_ns, uint64_t bytes) {
  if (rate.unlimited() || bytes == 0) return 0;
  const WordMap map = WordMap::of(rate, now_ns, bytes);
  uint64_t seen = Atomics64::load(word);
  while (!Atomics64::compare_exchange(word, seen, map(seen))) {
  }
  return seen;
}

}  // namespace sluice

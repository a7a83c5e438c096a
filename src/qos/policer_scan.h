// Colors of many packets at once, as one owner who polices packet after packet would have given them. Host and device.
//
// Packets lie in chunks, and all of a chunk come at one time: no token comes between two packets of a chunk. A bucket
// then only empties, and which packets it pays for is found many at a time: of those that are small enough for what is
// left, the ones in front whose sum it can pay for; then again behind the first that it could not pay. Each turn pays
// for one packet at least, and behind the first turn less is left than the largest packet costs: a chunk of frames of
// 64 to 1,514 bytes takes two turns most often and 25 at most, whatever their order.
//
// Both RFCs' markers are two such buckets, one behind the other: of RFC 2697 the excess bucket sees what the committed
// one did not pay for, of RFC 2698 the committed bucket sees what the peak one paid for.
//
// Between chunks the state of a policer goes from owner to owner by a turn word, in the order of the chunks. What a
// chunk does to two buckets is no short function of them, unless all of it can be paid for: that is what an owner finds
// out before its turn comes, so that the turn of such a chunk is one comparison.
#pragma once

#include <cstdint>

#include "base/bits.h"
#include "base/hd.h"
#include "qos/policer.h"

namespace sluice {

// A policer that goes from the owner of one chunk to the owner of the next. A line of its own.
struct alignas(64) PolicerTurn {
  PolicerState state;
  uint32_t chunk = 0;  // whose turn it is, modulo 2^32
};

// Which lanes' packets a bucket pays for, lanes being packets in their order, all lanes of `group` together: true where
// the lane `wants` to be paid for and is. `left`, the same in all lanes: whole bytes in the bucket, before and after.
template <typename Group>
SLUICE_HD bool take_in_order(const Group& group, uint64_t& left, uint32_t bytes, bool wants) {
  bool paid = false;
  for (;;) {
    const bool fits = wants && !paid && bytes <= left;
    if (group.ballot(fits) == 0) return paid;
    const uint64_t before = group.sum_before(fits ? uint64_t{bytes} : 0);
    const bool takes = fits && before + bytes <= left;
    // Sums grow: behind the first that is not paid for nobody is.
    const uint32_t failed = group.ballot(fits && !takes);
    paid = paid || takes;
    const uint64_t sum = failed == 0 ? before + (fits ? bytes : 0) : before;
    left -= group.broadcast(sum, failed == 0 ? group.size() - 1 : trailing_zeros32(failed));
    if (failed == 0) return paid;
  }
}

// The color of each lane's packet, where `here`; the buckets hold whole bytes, and no time passes.
template <typename Group>
SLUICE_HD Color police_row(const Group& group, const PolicerConfig& config, uint64_t& committed, uint64_t& excess,
                           uint32_t bytes, Color before, bool here) {
  if (config.two_rates != 0) {
    const bool peak = take_in_order(group, excess, bytes, here && before != Color::kRed);
    const bool green = take_in_order(group, committed, bytes, peak && before != Color::kYellow);
    return green ? Color::kGreen : peak ? Color::kYellow : Color::kRed;
  }
  const bool green = take_in_order(group, committed, bytes, here && before == Color::kGreen);
  const bool yellow = take_in_order(group, excess, bytes, here && !green && before != Color::kRed);
  return green ? Color::kGreen : yellow ? Color::kYellow : Color::kRed;
}

// A chunk's whole way, all lanes of `group` together: waits for its turn, gives each of `count` packets its color, and
// hands the policer on. `packets.here(i)`: packet i is of this policer; `bytes(i)`, of the IP packet; `before(i)`, the
// color that it came with; `color(i, Color)` is called once for each that is here, by one of the lanes. `Atomics` as in
// departure_scan.h. Precondition: the owners of all chunks before go on whatever this one does.
template <typename Atomics, typename Group, typename Packets>
SLUICE_HD void police_chunk(const Group& group, const PolicerConfig& config, PolicerTurn& turn, uint64_t chunk,
                            uint64_t now_ns, uint32_t count, Packets&& packets) {
  constexpr uint64_t kUnits = PolicerConfig::kUnitsPerByte;
  const auto before_of = [&](uint32_t i) { return config.color_aware != 0 ? packets.before(i) : Color::kGreen; };
  uint64_t mine = 0;
  bool some = false, colored = false;
  for (uint32_t i = group.lane(); i < count; i += group.size()) {
    if (!packets.here(i)) continue;
    some = true;
    mine += packets.bytes(i);
    colored = colored || before_of(i) != Color::kGreen;
  }
  const uint64_t all = group.reduce(mine, [](uint64_t a, uint64_t b) { return a + b; });
  const bool plain = group.ballot(colored) == 0;
  const bool any = group.ballot(some) != 0;

  PolicerState state;
  if (group.lane() == 0) {
    while (Atomics::acquire(&turn.chunk) != static_cast<uint32_t>(chunk)) Atomics::pause();
    state = turn.state;
  }
  state = group.broadcast(state);
  // Time passes by packets alone.
  if (any) refill(config, state, now_ns);
  uint64_t committed = state.committed / kUnits, excess = state.excess / kUnits;
  const uint64_t had_committed = committed, had_excess = excess;
  const bool green = plain && all <= committed && (config.two_rates == 0 || all <= excess);
  if (green) {
    committed -= all;
    if (config.two_rates != 0) excess -= all;
  } else {
    for (uint32_t row = 0; row < count; row += group.size()) {
      const uint32_t i = row + group.lane();
      const bool here = i < count && packets.here(i);
      const Color color = police_row(group, config, committed, excess, here ? packets.bytes(i) : 0,
                                     here ? before_of(i) : Color::kRed, here);
      if (here) packets.color(i, color);
    }
  }
  if (group.lane() == 0) {
    state.committed -= (had_committed - committed) * kUnits;
    state.excess -= (had_excess - excess) * kUnits;
    turn.state = state;
    Atomics::release(&turn.chunk, static_cast<uint32_t>(chunk) + 1);
  }
  if (!green) return;
  for (uint32_t i = group.lane(); i < count; i += group.size()) {
    if (packets.here(i)) packets.color(i, Color::kGreen);
  }
}

}  // namespace sluice

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
// Most chunks need not be gone through: where all that a bucket does not pay for lies behind what it pays for, it cuts
// the chunk in two, and where it does so follows from sums that do not depend on it.
//
// Between chunks the state of a policer goes from owner to owner, in the order of the chunks, as words that say
// themselves whose turn it is. What a chunk does to two buckets is no short function of them, so that this is a chain:
// whatever can be found out before the turn comes is, and colors are given after it has been passed on.
#pragma once

#include <cstdint>

#include "base/bits.h"
#include "base/hd.h"
#include "qos/policer.h"

// Rows are registers on a device.
#if defined(__CUDA_ARCH__)
#define SLUICE_UNROLL _Pragma("unroll")
#else
#define SLUICE_UNROLL
#endif

namespace sluice {

// A policer that goes from the owner of one chunk to the owner of the next: the two buckets and the time, and behind
// each whose turn it is, modulo 2^32. A line of its own.
struct alignas(64) PolicerTurn {
  // Read and written in one piece, or the chunk written last and read first.
  struct alignas(16) Word {
    uint64_t value;
    uint32_t chunk;
    uint32_t unused;
  };
  Word words[3];

  SLUICE_HD static PolicerTurn of(const PolicerState& state, uint64_t chunk) {
    const auto number = static_cast<uint32_t>(chunk);
    return {{{state.committed, number, 0}, {state.excess, number, 0}, {state.last_ns, number, 0}}};
  }
  // Of a turn that nobody changes.
  SLUICE_HD PolicerState state() const { return {words[0].value, words[1].value, words[2].value}; }
  SLUICE_HD uint32_t chunk() const { return words[0].chunk; }
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

// A chunk's packets of one policer and their sums, a lane holding one packet of each of kRows rows.
template <uint32_t kRows>
class PoliceRows {
 public:
  // Where a bucket cuts the packets [from, to): those that are here and in front of `at` are paid for. `clean`: none
  // behind it is, either.
  struct Cut {
    uint32_t at;
    uint64_t paid;
    bool clean;
  };

  template <typename Group, typename Packets>
  SLUICE_HD PoliceRows(const Group& group, const Packets& packets, uint32_t count) {
    uint64_t before = 0;
    SLUICE_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t i = r * group.size() + group.lane();
      const bool here = i < count && packets.here(i);
      bytes_[r] = here ? packets.bytes(i) : 0;
      here_ |= uint32_t{here} << r;
      through_[r] = before;
      if (r * group.size() >= count) continue;
      through_[r] += group.sum_before(bytes_[r]) + bytes_[r];
      before = group.broadcast(through_[r], group.size() - 1);
    }
  }

  template <typename Group>
  SLUICE_HD Cut cut(const Group& group, uint32_t from, uint32_t to, uint64_t left) const {
    const uint64_t base = from == 0 ? 0 : through(group, from - 1);
    uint32_t first = to;
    SLUICE_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t i = r * group.size() + group.lane();
      if (among(r, i, from, first) && through_[r] - base > left) first = i;
    }
    Cut cut{};
    cut.at = group.least(first);
    cut.paid = cut.at == from ? 0 : through(group, cut.at - 1) - base;
    bool small = false;
    SLUICE_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t i = r * group.size() + group.lane();
      small = small || (among(r, i, cut.at, to) && bytes_[r] <= left - cut.paid);
    }
    cut.clean = group.ballot(small) == 0;
    return cut;
  }

 private:
  static_assert(kRows <= 32);
  SLUICE_HD bool among(uint32_t r, uint32_t i, uint32_t from, uint32_t to) const {
    return (here_ >> r & 1) != 0 && i >= from && i < to;
  }
  // The sum up to and with packet i.
  template <typename Group>
  SLUICE_HD uint64_t through(const Group& group, uint32_t i) const {
    uint64_t sum = 0;
    SLUICE_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) sum = r == i / group.size() ? through_[r] : sum;
    return group.broadcast(sum, i % group.size());
  }

  uint32_t bytes_[kRows];
  uint64_t through_[kRows];
  uint32_t here_ = 0;
};

// A chunk's whole way, all lanes of `group` together: waits for its turn, gives each of `count` packets its color, and
// hands the policer on. `packets.here(i)`: packet i is of this policer; `bytes(i)`, of the IP packet; `before(i)`, the
// color that it came with; `color(i, Color)` is called once for each that is here, by one of the lanes. `Words`: load
// and store of PolicerTurn::Word, and pause(n): the turn is n chunks away. Chunks of more than kRows packets a lane
// have no short way. Precondition: the owners of all chunks before go on whatever this one does.
template <typename Words, uint32_t kRows = 8, typename Group, typename Packets>
SLUICE_HD void police_chunk(const Group& group, const PolicerConfig& config, PolicerTurn& turn, uint64_t chunk,
                            uint64_t now_ns, uint32_t count, Packets&& packets) {
  constexpr uint64_t kUnits = PolicerConfig::kUnitsPerByte;
  const auto before_of = [&](uint32_t i) { return config.color_aware != 0 ? packets.before(i) : Color::kGreen; };
  const PoliceRows<kRows> rows(group, packets, count);
  bool some = false, colored = false;
  for (uint32_t i = group.lane(); i < count; i += group.size()) {
    if (!packets.here(i)) continue;
    some = true;
    colored = colored || before_of(i) != Color::kGreen;
  }
  const bool plain = group.ballot(colored) == 0 && count <= kRows * group.size();
  const bool any = group.ballot(some) != 0;

  PolicerTurn found{};
  if (group.lane() == 0) {
    const auto mine = static_cast<uint32_t>(chunk);
    for (;;) {
      uint32_t away = 0;
      SLUICE_UNROLL
      for (uint32_t w = 0; w < 3; ++w) {
        found.words[w] = Words::load(turn.words + w);
        const uint32_t behind = mine - found.words[w].chunk;
        away = behind > away ? behind : away;
      }
      if (away == 0) break;
      Words::pause(away);
    }
  }
  PolicerState state = group.broadcast(found.state());
  // Time passes by packets alone.
  if (any) refill(config, state, now_ns);
  const uint64_t had_committed = state.committed / kUnits, had_excess = state.excess / kUnits;
  uint64_t committed = had_committed, excess = had_excess;
  const auto pass_on = [&] {
    if (group.lane() != 0) return;
    state.committed -= (had_committed - committed) * kUnits;
    state.excess -= (had_excess - excess) * kUnits;
    const PolicerTurn next = PolicerTurn::of(state, chunk + 1);
    SLUICE_UNROLL
    for (uint32_t w = 0; w < 3; ++w) Words::store(turn.words + w, next.words[w]);
  };
  if (plain) {
    const bool two = config.two_rates != 0;
    const auto first = rows.cut(group, 0, count, two ? excess : committed);
    // One rate: the excess bucket sees what the committed one did not pay for; two: the committed one what the peak one
    // did.
    if (first.clean) {
      const auto second = rows.cut(group, two ? 0 : first.at, two ? first.at : count, two ? committed : excess);
      if (second.clean) {
        committed -= two ? second.paid : first.paid;
        excess -= two ? first.paid : second.paid;
        pass_on();
        const uint32_t green = two ? second.at : first.at, yellow = two ? first.at : second.at;
        for (uint32_t i = group.lane(); i < count; i += group.size()) {
          if (packets.here(i)) packets.color(i, i < green ? Color::kGreen : i < yellow ? Color::kYellow : Color::kRed);
        }
        return;
      }
    }
  }
  for (uint32_t row = 0; row < count; row += group.size()) {
    const uint32_t i = row + group.lane();
    const bool here = i < count && packets.here(i);
    const Color color = police_row(group, config, committed, excess, here ? packets.bytes(i) : 0,
                                   here ? before_of(i) : Color::kRed, here);
    if (here) packets.color(i, color);
  }
  pass_on();
}

}  // namespace sluice

#undef SLUICE_UNROLL

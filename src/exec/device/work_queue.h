// WorkQueue: work that a host gives to servers which stay on a device, and the units in which they take it. Host and
// device.
//
// The host writes an entry as tagged words (word.h) to a place in memory of its own. One server forwards: it polls the
// next place, copies what came into the device's memory, and publishes it there by the place's claim word. A server
// that looks for work adds one to the claim word of the entry that is its next, and what that gives back names the unit
// it has. It claims first and reads then: an entry of which a unit was claimed has not ended, so nothing is written to
// its place meanwhile. A server that comes late to a place may find a later entry there, and takes a unit of that one.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "exec/device/record.h"
#include "exec/device/word.h"

namespace sluice {

// Entries that have not ended; as many as flights at a time.
inline constexpr uint32_t kWorkPlaces = 16;
// Entries count from here, so that memory of zeros holds none.
inline constexpr uint32_t kFirstWork = kWorkPlaces;

//   bits 0..19   units claimed, and servers that found none left     20..39   units     40..63   number of the entry
// A server adds only where it has seen a unit left, so that it finds none once per entry at most.
inline constexpr uint32_t kMostWorkUnits = (1u << 20) - 1;
SLUICE_HD constexpr uint64_t make_claim(uint32_t number, uint32_t units) {
  return uint64_t{number & 0xffffffu} << 40 | uint64_t{units & kMostWorkUnits} << 20;
}
SLUICE_HD constexpr uint32_t claimed_unit(uint64_t claim) {
  return static_cast<uint32_t>(claim) & kMostWorkUnits;
}
SLUICE_HD constexpr uint32_t claim_units(uint64_t claim) {
  return static_cast<uint32_t>(claim >> 20) & kMostWorkUnits;
}
SLUICE_HD constexpr bool has_units(uint64_t claim) {
  return claimed_unit(claim) < claim_units(claim);
}
// Whether entry `number` has been published at its place: it, or one that came after it.
SLUICE_HD constexpr bool has_come(uint64_t claim, uint32_t number) {
  return ((static_cast<uint32_t>(claim >> 40) - number) & 0xffffffu) < 1u << 23;
}

SLUICE_HD constexpr uint32_t work_place(uint32_t number) {
  return number % kWorkPlaces;
}
// Of all words of entry `number`.
SLUICE_HD constexpr uint32_t work_tag(uint32_t number) {
  return make_tag(number / kWorkPlaces, 0);
}

// The host's side, in memory that the device reads.
template <typename Entry>
struct WorkBoard {
  static constexpr uint32_t kWords = words_for(sizeof(Entry));
  alignas(64) Word words[kWorkPlaces][kWords];
  // Servers that were started with this number leave.
  alignas(64) uint32_t stop;

  // The entry before last at its place has ended.
  void post(uint32_t number, const Entry& entry) {
    uint8_t payload[payload_room(sizeof(Entry))] = {};
    memcpy(payload, &entry, sizeof entry);
    store_payload(words[work_place(number)], payload, sizeof entry, work_tag(number));
  }
};

#if !defined(__CUDACC__)
// What servers share where threads stand in for a device; kernels do the same in its memory (cuda/serve_frame.cu).
template <typename Entry>
class WorkPlaces {
 public:
  // By the one that forwards: publishes entry `number` if it has come. `units`: of an entry; called before.
  template <typename Units>
  bool forward(const WorkBoard<Entry>& board, uint32_t number, Units units) {
    const uint32_t place = work_place(number);
    Word words[WorkBoard<Entry>::kWords];
    for (uint32_t w = 0; w < WorkBoard<Entry>::kWords; ++w) {
      words[w] = HostWords::load(&board.words[place][w]);
      if (word_tag(words[w]) != work_tag(number)) return false;
    }
    PayloadReader(words).get(&entries_[place], sizeof(Entry));
    claims_[place].store(make_claim(number, units(entries_[place])), std::memory_order_release);
    return true;
  }
  // A unit of entry `next`, or of a later one at its place. Counts `next` on past entries of which none is left.
  struct Unit {
    const Entry* entry = nullptr;  // nullptr: `next` has not come
    uint32_t number = 0;
  };
  Unit take(uint32_t& next) {
    for (;; ++next) {
      const uint32_t place = work_place(next);
      uint64_t claim = claims_[place].load(std::memory_order_acquire);
      if (!has_come(claim, next)) return {};
      if (has_units(claim)) claim = claims_[place].fetch_add(1, std::memory_order_acq_rel);
      if (has_units(claim)) return {&entries_[place], claimed_unit(claim)};
    }
  }

 private:
  Entry entries_[kWorkPlaces] = {};
  std::atomic<uint64_t> claims_[kWorkPlaces] = {};
};
#endif

}  // namespace sluice

// host only
// Runs of frames that a source lends, in a device's memory: what several batches need of them crosses in one copy. A
// copy engine moves pieces of 2 MiB at twice the rate of pieces of 256 KiB (docs/notebook/device.md).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/result.h"
#include "batch/batch.h"
#include "batch/lent_rows.h"
#include "exec/device/record.h"

namespace sluice {

// Consecutive frames of a source, in one of the source's turns. No bytes: none.
struct LentRun {
  uint64_t source = 0, turn = 0, row = 0;
  const std::byte* host = nullptr;
  size_t bytes = 0;
};
inline constexpr size_t kRunBytes = size_t{2} << 20;
inline constexpr size_t kPlaceBytes = size_t{8} << 20;  // that a run may have

// How many frames of at most `longest` bytes make a run: kRunBytes of them, or a batch where that is more and has a
// place. 0: none.
inline uint64_t rows_of_run(uint32_t longest) {
  // Long ones begin lines (PackedFrames).
  const uint64_t bytes =
      longest <= kFrameRegion ? lent_bytes(std::max(longest, 1u)) : (uint64_t{longest} + 63) / 64 * 64;
  return std::max(kRunBytes / bytes, std::min(uint64_t{Batch::kMaxPackets}, std::bit_floor(kPlaceBytes / bytes)));
}

// The run of which `count` rows are a part; none where they belong to two.
inline LentRun run_of(const LentRows& rows, uint32_t count) {
  const uint64_t each = rows_of_run(rows.longest);
  if (each == 0 || rows.row / each != (rows.row + count - 1) / each) return {};
  const uint64_t begin = rows.row / each * each, rest = rows.total - begin;
  const FrameRecord* const first = rows.records - (rows.row - begin);
  const FrameRecord& last = first[(rest < each ? rest : each) - 1];
  return {rows.source, rows.turn, begin, reinterpret_cast<const std::byte*>(rows.memory) + first->at,
          size_t{last.at} - first->at + lent_bytes(last.bytes)};
}

// The places of runs on one device, each of kPlaceBytes. Thread-safe.
class CopiedRuns {
 public:
  static constexpr uint32_t kPlaces = 32;
  static constexpr uint32_t kNone = kPlaces;

  // The place of a run, which it keeps until as many have left as have taken it. `copy(place)` begins to bring it there
  // if it is not, and nobody else gets the place before it returns. kNone: all places are taken. Errors: those of
  // `copy`.
  template <typename Copy>
  Result<uint32_t> take(const LentRun& run, Copy&& copy) {
    const std::lock_guard lock(mutex_);
    uint32_t free = kNone;
    for (uint32_t p = 0; p < kPlaces; ++p) {
      Place& place = places_[p];
      if (place.source == run.source && place.turn == run.turn && place.row == run.row) {
        ++place.users;
        place.used = ++uses_;
        return p;
      }
      if (place.users == 0 && (free == kNone || place.used < places_[free].used)) free = p;
    }
    if (free == kNone) return kNone;
    places_[free] = {};
    if (Result<void> ok = copy(free); !ok.ok()) return std::move(ok).error();
    places_[free] = {run.source, run.turn, run.row, ++uses_, 1};
    return free;
  }
  // Nobody who took it reads it any more.
  void leave(uint32_t place) {
    const std::lock_guard lock(mutex_);
    --places_[place].users;
  }

 private:
  struct Place {
    uint64_t source = 0, turn = 0, row = 0;  // of the run; no source: none
    uint64_t used = 0;                       // when it was taken last
    uint32_t users = 0;
  };

  std::mutex mutex_;
  std::array<Place, kPlaces> places_;
  uint64_t uses_ = 0;
};

}  // namespace sluice

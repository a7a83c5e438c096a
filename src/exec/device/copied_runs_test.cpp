#include "exec/device/copied_runs.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <vector>

namespace sluice {
namespace {

// A run holds whole rows of its batch and as many others as fit its place, batches of the same rows have one run, and a
// batch whose rows belong to two has none.
TEST(CopiedRuns, ARunHoldsTheRowsOfItsBatches) {
  EXPECT_TRUE(rc::check([] {
    const auto longest = *rc::gen::oneOf(rc::gen::inRange<uint32_t>(1, 193), rc::gen::inRange<uint32_t>(193, 9217));
    const auto total = *rc::gen::inRange<uint64_t>(1, 70'000);
    // As frames lie in a source's memory.
    const uint32_t unit = longest <= 192 ? kLentUnit : 64;
    const auto packed = [unit](uint32_t bytes) { return (bytes + unit - 1) / unit * unit; };
    const uint64_t each = rows_of_run(longest);
    RC_ASSERT(each * packed(longest) <= kPlaceBytes);
    RC_ASSERT(each * packed(longest) > kRunBytes / 2);
    std::vector<FrameRecord> records(total);
    uint32_t at = 0;
    for (uint64_t i = 0; i < total; ++i) {
      records[i] = {at, static_cast<uint16_t>(i % 3 == 0 ? longest : i * 7 % longest + 1), 0};
      at += packed(records[i].bytes);
    }
    std::vector<uint8_t> memory(1);  // places in it alone are looked at
    for (int k = 0; k < 20; ++k) {
      const auto row = *rc::gen::inRange<uint64_t>(0, total);
      const auto count =
          *rc::gen::inRange<uint32_t>(1, static_cast<uint32_t>(std::min<uint64_t>(total - row, 8192) + 1));
      LentRows rows;
      rows.records = records.data() + row;
      rows.memory = memory.data();
      rows.longest = longest;
      rows.source = 3;
      rows.turn = 4;
      rows.row = row;
      rows.total = total;
      const LentRun run = run_of(rows, count);
      if (row / each != (row + count - 1) / each) {
        RC_ASSERT(run.bytes == 0u);
        continue;
      }
      RC_ASSERT(run.source == 3u && run.turn == 4u && run.row == row / each * each);
      RC_ASSERT(run.bytes <= kPlaceBytes);
      const auto begin = static_cast<uint64_t>(run.host - reinterpret_cast<const std::byte*>(memory.data()));
      const FrameRecord& last = records[row + count - 1];
      RC_ASSERT(begin == records[run.row].at);
      RC_ASSERT(begin <= records[row].at && last.at + last.bytes <= begin + run.bytes);
      const uint64_t behind = std::min(run.row + each, total);
      const uint64_t end = behind == total ? at : records[behind].at;
      RC_ASSERT(begin + run.bytes <= end && begin + run.bytes + unit > end);
    }
  }));
}

// Held to a model: a place that somebody has is nobody else's, a run is brought once while its place lasts, and where
// it cannot be brought nobody finds it.
TEST(CopiedRuns, PlacesAreTheirRunsUntilAllHaveLeft) {
  EXPECT_TRUE(rc::check([] {
    CopiedRuns runs;
    struct Taken {
      uint32_t place;
      uint64_t row;
    };
    std::vector<Taken> taken;
    std::map<uint32_t, uint64_t> holds;  // place -> row
    for (int k = 0; k < 300; ++k) {
      if (!taken.empty() && *rc::gen::inRange(0, 3) == 0) {
        const auto which = *rc::gen::inRange<size_t>(0, taken.size());
        runs.leave(taken[which].place);
        taken.erase(taken.begin() + static_cast<ptrdiff_t>(which));
        continue;
      }
      const auto row = *rc::gen::inRange<uint64_t>(0, 60);
      const bool fails = *rc::gen::inRange(0, 8) == 0;
      bool copied = false;
      const auto place = runs.take({7, 1, row, nullptr, 1}, [&](uint32_t free) -> Result<void> {
        copied = true;
        for (const Taken& t : taken) RC_ASSERT(t.place != free);
        for (const auto& [held, its] : holds) RC_ASSERT(its != row || held == free);
        holds.erase(free);
        if (fails) return Error("no copy");
        holds[free] = row;
        return {};
      });
      if (copied && fails) {
        RC_ASSERT(!place.ok());
        continue;
      }
      RC_ASSERT(place.ok());
      if (*place == CopiedRuns::kNone) {
        std::map<uint32_t, int> used;
        for (const Taken& t : taken) ++used[t.place];
        RC_ASSERT(used.size() == CopiedRuns::kPlaces && !copied);
        continue;
      }
      RC_ASSERT(holds.at(*place) == row);
      taken.push_back({*place, row});
    }
  }));
}

// The same rows of another turn, or of another source, are other frames.
TEST(CopiedRuns, TurnsAndSourcesAreToldApart) {
  CopiedRuns runs;
  int copies = 0;
  const auto take = [&](uint64_t source, uint64_t turn) {
    const auto place = runs.take({source, turn, 0, nullptr, 1}, [&](uint32_t) -> Result<void> {
      ++copies;
      return {};
    });
    ASSERT_TRUE(place.ok());
    runs.leave(*place);
  };
  take(1, 0);
  take(1, 0);
  EXPECT_EQ(copies, 1);
  take(1, 1);
  take(2, 1);
  EXPECT_EQ(copies, 3);
}

}  // namespace
}  // namespace sluice

// Work that a host posts, and servers that take it in units.
#include "exec/device/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/thread.h"

namespace sluice {
namespace {

struct Work {
  uint64_t serial;
  std::atomic<uint32_t>* left;  // units that have not ended
  uint32_t units;
  uint8_t odd[7];  // no multiple of a word's payload
};

TEST(WorkQueue, ClaimsSayNumberUnitsAndWhatIsLeft) {
  for (const uint32_t number : {0u, kFirstWork, 0xffffffu, 0x1000000u, 0xffffffffu}) {
    const uint64_t claim = make_claim(number, 3);
    EXPECT_TRUE(has_come(claim, number));
    EXPECT_TRUE(has_come(claim, number - kWorkPlaces)) << "one that came later is at its place";
    EXPECT_FALSE(has_come(claim, number + kWorkPlaces));
    EXPECT_TRUE(has_units(claim + 2));
    EXPECT_FALSE(has_units(claim + 3));
    EXPECT_EQ(claimed_unit(claim + 2), 2u);
    EXPECT_EQ(claim_units(claim + 1000), 3u);
  }
  for (uint32_t place = 0; place < kWorkPlaces; ++place) {
    EXPECT_FALSE(has_come(0, kFirstWork + place)) << "memory of zeros holds no entry";
    EXPECT_NE(work_tag(kFirstWork + place), 0u);
  }
}

TEST(WorkQueue, AnEntryComesWholeOrNotAtAll) {
  const auto board = std::make_unique<WorkBoard<Work>>();
  WorkPlaces<Work> places;
  const auto units = [](const Work& work) { return work.units; };
  EXPECT_FALSE(places.forward(*board, kFirstWork, units));
  board->post(kFirstWork, {7, nullptr, 2, {1, 2, 3, 4, 5, 6, 7}});
  const Word last = board->words[0][WorkBoard<Work>::kWords - 1];
  board->words[0][WorkBoard<Work>::kWords - 1] = Word{};
  EXPECT_FALSE(places.forward(*board, kFirstWork, units));
  uint32_t next = kFirstWork;
  EXPECT_EQ(places.take(next).entry, nullptr);
  board->words[0][WorkBoard<Work>::kWords - 1] = last;
  EXPECT_TRUE(places.forward(*board, kFirstWork, units));
  EXPECT_FALSE(places.forward(*board, kFirstWork + 1, units));
  for (uint32_t unit = 0; unit < 2; ++unit) {
    const auto got = places.take(next);
    ASSERT_NE(got.entry, nullptr);
    EXPECT_EQ(got.number, unit);
    EXPECT_EQ(got.entry->serial, 7u);
    EXPECT_EQ(got.entry->odd[6], 7);
  }
  EXPECT_EQ(places.take(next).entry, nullptr);
  EXPECT_EQ(next, kFirstWork + 1);
}

// Every unit of every entry is taken once, by whatever server, also by those that are many entries behind, and past the
// wrap of the numbers in claim words.
TEST(WorkQueue, ServersTakeEveryUnitOnce) {
  constexpr uint32_t kEntries = 3000, kServers = 4, kMostUnits = 5;
  // The first numbers are those of memory of zeros; others begin where a board of before has ended.
  for (const uint32_t first : {kFirstWork, 0xffffffu - 1000}) {
    const auto board = std::make_unique<WorkBoard<Work>>();
    WorkPlaces<Work> places;
    const auto units = [](const Work& work) { return work.units; };
    std::vector<std::atomic<uint32_t>> left(kEntries);
    std::vector<std::atomic<uint32_t>> taken(kEntries * kMostUnits);
    std::atomic<bool> stop{false};
    if (first != kFirstWork) {
      for (uint32_t number = first - kWorkPlaces; number != first; ++number) {
        board->post(number, {});
        ASSERT_TRUE(places.forward(*board, number, units));
      }
    }
    std::vector<std::jthread> servers;
    for (uint32_t s = 0; s < kServers; ++s) {
      auto thread = start_thread([&, s] {
        uint32_t next = first, coming = first;
        while (!stop.load()) {
          while (s == 0 && places.forward(*board, coming, units)) ++coming;
          const auto unit = places.take(next);
          if (unit.entry == nullptr) {
            std::this_thread::yield();
            continue;
          }
          taken[unit.entry->serial * kMostUnits + unit.number].fetch_add(1);
          // One that sleeps comes late to places that were used again.
          if (s == 1 && unit.entry->serial % 64 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          unit.entry->left->fetch_sub(1);
        }
      });
      ASSERT_TRUE(thread.ok());
      servers.push_back(std::move(*thread));
    }
    const auto units_of = [](uint32_t entry) { return 1 + entry % kMostUnits; };
    for (uint32_t entry = 0; entry < kEntries; ++entry) {
      // As many are under way as there are places.
      while (entry >= kWorkPlaces && left[entry - kWorkPlaces].load() != 0) std::this_thread::yield();
      left[entry].store(units_of(entry));
      board->post(first + entry, {entry, &left[entry], units_of(entry), {}});
    }
    for (auto& each : left) {
      while (each.load() != 0) std::this_thread::yield();
    }
    stop.store(true);
    servers.clear();
    for (uint32_t entry = 0; entry < kEntries; ++entry) {
      for (uint32_t unit = 0; unit < kMostUnits; ++unit)
        ASSERT_EQ(taken[entry * kMostUnits + unit].load(), unit < units_of(entry) ? 1u : 0u) << entry << " " << unit;
    }
  }
}

}  // namespace
}  // namespace sluice

#include "batch/batch.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace sluice {
namespace {

// Whoever still writes into the old arena meets nothing of the batch.
TEST(Batch, AnArenaThatWasExchangedIsNotUsedAgain) {
  auto made = Batch::create(4, 4096);
  ASSERT_TRUE(made.ok());
  Batch batch = std::move(*made);
  uint8_t* frame = batch.reserve(100);
  ASSERT_NE(frame, nullptr);
  std::memset(frame, 0xab, 100);
  batch.push(frame, 100, 100, 1, 0);
  auto old = batch.exchange_arena();
  ASSERT_TRUE(old.ok());
  EXPECT_EQ(reinterpret_cast<uint8_t*>(old->data()) + kHeadroom, frame);
  EXPECT_EQ(batch.size(), 0u);
  ASSERT_EQ(batch.arena().size(), old->size());
  // Every frame lies in the new one.
  const auto* begin = reinterpret_cast<const uint8_t*>(batch.arena().data());
  for (uint32_t i = 0; i < batch.capacity(); ++i) {
    uint8_t* at = batch.reserve(100);
    ASSERT_NE(at, nullptr);
    ASSERT_GE(at - kHeadroom, begin);
    ASSERT_LE(at + 100 + kTailroom, begin + batch.arena().size());
    std::memset(at, 0xcd, 100);
    batch.push(at, 100, 100, 1, i);
  }
  EXPECT_EQ(frame[0], 0xab);
  EXPECT_EQ(frame[99], 0xab);
}

TEST(Batch, RowsAreAppendedWithoutAnnotationsWhoeverWroteThemBefore) {
  Batch batch = Batch::create(200, 1 << 16).value();
  const auto fill = [&](uint32_t n) {
    batch.clear();
    const Batch::Rows rows = batch.rows();
    for (uint32_t i = 0; i < n; ++i) {
      rows.frame[i] = batch.reserve(64);
      rows.extent[i] = Extent{0, 64, 64, 0, 0xffff};
    }
    batch.append(n);
    for (uint32_t i = 0; i < n; ++i) {
      Packet p;
      batch.view().load(i, 0, p);
      ASSERT_TRUE(p.rule == 0 && p.mark == 0 && p.port == 0 && p.appended == 0) << i;
      ASSERT_EQ(p.end, 64u);
    }
  };
  fill(200);
  batch.annotation(7).mark = 1;
  batch.port(199) = 9;
  fill(150);
  // By a view: who writes so says which.
  Packet p;
  p.rule = p.mark = 5;
  p.port = 6;
  p.appended = 3;
  Selection written;
  for (const uint32_t i : {0u, 64u, 149u}) {
    batch.view().store(i, 0, p);
    written.add(i);
  }
  Packet back;
  batch.view().load(64, 0, back);
  EXPECT_TRUE(back.rule == 5 && back.mark == 5 && back.port == 6 && back.appended == 3);
  batch.clear_annotations(written);
  fill(200);
}

TEST(Batch, BytesAreTheSumOfLengths) {
  Batch batch = Batch::create(200, 1 << 16).value();
  for (uint32_t i = 0; i < 200; ++i) {
    batch.push(batch.reserve(100), 60 + i % 37, 60 + i % 37, 0, i);
    if (i % 3 == 0) batch.extent(i).data = -static_cast<int32_t>(i % 19);
    if (i % 5 == 0) batch.extent(i).data = 14;
  }
  Selection some;
  for (uint32_t i = 0; i < 200; ++i) {
    if (i < 64 || i % 7 != 0) some.add(i);
  }
  uint64_t sum = 0;
  some.for_each([&](uint32_t i) { sum += batch.data_length(i); });
  EXPECT_EQ(batch.bytes(some), sum);
}

// A batch that a source lends says what one that is filled says, and leaves its columns unfilled until somebody reads
// them; frames whose heads were edited meanwhile are put together then.
TEST(Batch, LentRowsAreFilledWhenTheyAreRead) {
  EXPECT_TRUE(rc::check([] {
    const auto n = *rc::gen::inRange<uint32_t>(1, 200);
    std::vector<FrameRecord> records(n);
    std::vector<uint64_t> before = {1000}, times(n);
    uint32_t at = 640;
    for (uint32_t i = 0; i < n; ++i) {
      records[i] = {at, *rc::gen::inRange<uint16_t>(0, 300), *rc::gen::inRange<uint16_t>(0, 9)};
      before.push_back(before.back() + records[i].bytes);
      times[i] = 5 * i;
      at += (records[i].bytes + 63u) / 64 * 64;
    }
    std::vector<uint8_t> source(at + 48), moved(at, 0xee), heads(n * 48);
    for (size_t k = 0; k < source.size(); ++k) source[k] = static_cast<uint8_t>(k * 31 % 251);
    auto made = Batch::create(256, 4096);
    RC_ASSERT(made.ok());
    Batch& batch = *made;
    batch.lend({records.data(), before.data(), times.data(), 7, source.data(), 300}, n);
    RC_ASSERT(batch.size() == n && batch.unfilled() != nullptr);
    Selection all, some;
    all.fill(n);
    for (uint32_t i = 0; i < n; ++i) {
      if (*rc::gen::inRange(0, 3) != 0) some.add(i);
    }
    const uint64_t all_bytes = batch.bytes(all), some_bytes = batch.bytes(some);
    RC_ASSERT(batch.unfilled() != nullptr);
    const bool moves = *rc::gen::arbitrary<bool>();
    if (moves) {
      for (uint32_t i = 0; i < n; ++i) {
        for (uint32_t k = 0; k < 48; ++k) heads[i * 48 + k] = static_cast<uint8_t>(source[records[i].at + k] ^ 0x5a);
      }
      batch.edit_unfilled(heads.data(), 48, moved.data());
    }
    std::vector<FrameTrim> lost(n);
    const auto sum = [&](const Selection& rows) {
      uint64_t bytes = 0;
      rows.for_each([&](uint32_t i) { bytes += lost[i].bytes(); });
      return bytes;
    };
    if (*rc::gen::arbitrary<bool>()) {
      const auto [trims, sums] = batch.trim_unfilled();
      std::fill_n(sums, (n + 63) / 64, 0u);
      for (uint32_t i = 0; i < n; ++i) {
        const auto front =
            *rc::gen::inRange<uint32_t>(0, std::min<uint32_t>(FrameTrim::kMostFront, records[i].bytes) + 1);
        const auto end = *rc::gen::inRange<uint32_t>(0, records[i].bytes - front + 1);
        lost[i].word = static_cast<uint16_t>(front | end << 5);
        RC_ASSERT(lost[i].front() == front && lost[i].end() == end);
        trims[i] = lost[i];
        sums[i / 64] += lost[i].bytes();
      }
      RC_ASSERT(batch.unfilled() != nullptr);
      RC_ASSERT(batch.bytes(all) == all_bytes - sum(all) && batch.bytes(some) == some_bytes - sum(some));
      RC_ASSERT(batch.bytes(n - 1) == records[n - 1].bytes - lost[n - 1].bytes());
    }
    const BatchView view = batch.view();
    RC_ASSERT(batch.unfilled() == nullptr);
    RC_ASSERT(batch.bytes(all) == all_bytes - sum(all) && batch.bytes(some) == some_bytes - sum(some));
    for (uint32_t i = 0; i < n; ++i) {
      const FrameRecord& record = records[i];
      RC_ASSERT(view.frame[i] == (moves ? moved : source).data() + record.at);
      for (uint32_t k = 0; k < record.bytes; ++k)
        RC_ASSERT(view.frame[i][k] == (source[record.at + k] ^ (moves && k < 48 ? 0x5a : 0)));
      RC_ASSERT(view.extent[i].data == static_cast<int32_t>(lost[i].front()));
      RC_ASSERT(view.extent[i].end == record.bytes - lost[i].end());
      RC_ASSERT(view.extent[i].wire_end == record.bytes - lost[i].end() + (lost[i].end() != 0 ? 0u : record.longer));
      RC_ASSERT(batch.timestamp_ns(i) == times[i] + 7);
    }
    batch.clear();
    RC_ASSERT(batch.unfilled() == nullptr);
  }));
}

// Held to a plain set of indices, up to the last one that there is room for.
TEST(Selection, IsASetOfIndices) {
  constexpr uint32_t kIndices = Selection::kWords * 64;
  static_assert(kIndices == Batch::kMaxPackets);
  std::mt19937 random(5);
  for (int round = 0; round < 12; ++round) {
    // Small ones after large ones: what lay in the upper words must be gone.
    const uint32_t most = round % 2 == 0 ? kIndices : 1 + static_cast<uint32_t>(random() % 300);
    Selection some[3];
    std::set<uint32_t> want[3];
    for (int step = 0; step < 60; ++step) {
      const size_t a = random() % 3, b = random() % 3;
      const uint32_t i = random() % 4 == 0 ? most - 1 : static_cast<uint32_t>(random() % most);
      switch (random() % 10) {
        case 0:
          some[a].clear();
          want[a].clear();
          break;
        case 1:
          some[a] = some[b];
          want[a] = want[b];
          break;
        case 2:
          some[a].merge(some[b]);
          want[a].insert(want[b].begin(), want[b].end());
          break;
        case 3:
          some[a].fill(i + 1);
          want[a].clear();
          for (uint32_t k = 0; k <= i; ++k) want[a].insert(want[a].end(), k);
          break;
        case 4:
          some[a].remove(i);
          want[a].erase(i);
          break;
        case 5:
          some[a].or_word(i / 64, 0x8000000000000001u);
          want[a].insert({i / 64 * 64, i / 64 * 64 + 63});
          break;
        case 6: {
          some[a].set_word(i / 64, 6);
          const uint32_t from = i / 64 * 64;
          want[a].erase(want[a].lower_bound(from), want[a].lower_bound(from + 64));
          want[a].insert({from + 1, from + 2});
          break;
        }
        default:
          some[a].add(i);
          want[a].insert(i);
      }
      const Selection copy = some[a];
      ASSERT_EQ(copy.count(), want[a].size());
      ASSERT_EQ(copy.empty(), want[a].empty());
      ASSERT_EQ(copy.has(i), want[a].count(i) != 0);
      std::vector<uint32_t> listed;
      copy.for_each([&](uint32_t k) { listed.push_back(k); });
      ASSERT_TRUE(std::equal(listed.begin(), listed.end(), want[a].begin(), want[a].end()));
      // Words past the last that was written may be looked at, too.
      uint32_t bits = 0;
      for (uint32_t w = 0; w < Selection::kWords; ++w) bits += static_cast<uint32_t>(std::popcount(copy.word(w)));
      ASSERT_EQ(bits, want[a].size());
    }
  }
}

TEST(Selection, IsGoneThroughAndTakenFromTheFront) {
  const bool holds = rc::check([] {
    const auto indices = *rc::gen::container<std::set<uint32_t>>(rc::gen::inRange<uint32_t>(0, 8192));
    const uint32_t n = *rc::gen::inRange<uint32_t>(0, static_cast<uint32_t>(indices.size()) + 3);
    Selection all;
    for (const uint32_t i : indices) all.add(i);
    std::vector<uint32_t> seen;
    const bool whole = all.each_while([&](uint32_t i) {
      seen.push_back(i);
      return seen.size() < n;
    });
    RC_ASSERT(whole == (indices.size() < std::max(n, 1u)));
    const size_t first = std::min<size_t>(std::max(n, 1u), indices.size());
    RC_ASSERT(
        std::equal(seen.begin(), seen.end(), indices.begin(), std::next(indices.begin(), static_cast<long>(first))));
    Selection left = all;
    const Selection taken = left.take_first(n);
    uint32_t place = 0;
    for (const uint32_t i : indices) {
      RC_ASSERT(taken.has(i) == (place < n));
      RC_ASSERT(left.has(i) == (place >= n));
      ++place;
    }
    RC_ASSERT(taken.count() + left.count() == indices.size());
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace sluice

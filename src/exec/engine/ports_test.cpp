// The memory source: what batches hold is what the store holds, again and again, however it falls into batches.
#include "exec/engine/ports.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "ports/pcap/capture_writer.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

struct Played {
  Bytes bytes;
  uint32_t wire;
  uint64_t timestamp_ns;
  friend bool operator==(const Played&, const Played&) = default;
};

class MemorySourceTest : public ::testing::Test {
 protected:
  MemorySourceTest() : path_(::testing::TempDir() + "memory_source_test.pcap") {}
  ~MemorySourceTest() override { std::filesystem::remove(path_); }

  std::unique_ptr<BatchSource> open(const std::vector<Played>& frames, uint64_t limit) {
    auto writer = CaptureWriter::create(path_);
    EXPECT_TRUE(writer.ok());
    for (const Played& f : frames) {
      EXPECT_TRUE(
          writer->append(FrameHeader{static_cast<uint32_t>(f.bytes.size()), f.wire, f.timestamp_ns}, f.bytes.data()));
    }
    EXPECT_TRUE(writer->commit().ok());
    PortSpec spec;
    spec.type = PortSpec::Type::kMemory;
    spec.path = path_;
    spec.limit = limit;
    FrameCache cache;
    auto source = open_source(spec, cache);
    EXPECT_TRUE(source.ok());
    return std::move(*source);
  }

  std::string path_;
};

std::vector<Played> frames_of(const std::vector<uint32_t>& sizes) {
  std::vector<Played> frames;
  for (uint32_t i = 0; i < sizes.size(); ++i) {
    Bytes bytes(sizes[i]);
    for (uint32_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<uint8_t>(i * 37 + k);
    frames.push_back({bytes, sizes[i] + i % 3, 1'000'000'000ull + i});
  }
  return frames;
}

// Frame `at` of those that are played again and again. A turn takes from the first to the last stamp, and a mean gap:
// here one nanosecond a frame.
Played played(const std::vector<Played>& frames, size_t at) {
  Played frame = frames[at % frames.size()];
  frame.timestamp_ns += at / frames.size() * frames.size();
  return frame;
}

TEST_F(MemorySourceTest, TimeGoesOnFromTurnToTurn) {
  for (const auto& [stamps, turn] : std::vector<std::pair<std::vector<uint64_t>, uint64_t>>{
           {{1000, 1100, 1600}, 900}, {{5000, 4000, 4700}, 1500}, {{70, 70, 70}, 0}, {{70}, 0}}) {
    auto frames = frames_of(std::vector<uint32_t>(stamps.size(), 60));
    for (size_t i = 0; i < stamps.size(); ++i) frames[i].timestamp_ns = stamps[i];
    auto source = open(frames, 11);
    Batch batch = Batch::create(16, size_t{1} << 20).value();
    ASSERT_TRUE(source->read(batch).ok());
    ASSERT_EQ(batch.size(), 11u);
    for (uint32_t i = 0; i < 11; ++i) {
      EXPECT_EQ(batch.timestamp_ns(i), stamps[i % stamps.size()] + i / stamps.size() * turn) << i;
    }
  }
}

TEST_F(MemorySourceTest, PlaysWhatItHoldsAgainAndAgain) {
  const auto frames = frames_of({60, 64, 65, 14, 1514, 128, 129, 60, 60, 300, 9000, 1, 64});
  for (const uint32_t limit : {1u, 4u, 13u, 100u}) {
    for (const size_t arena : {size_t{16384}, size_t{1} << 20}) {
      auto source = open(frames, 200);
      Batch batch = Batch::create(100, arena).value();
      batch.set_limit(limit);
      size_t at = 0;
      while (true) {
        ASSERT_TRUE(source->read(batch).ok());
        if (batch.size() == 0) break;
        ASSERT_LE(batch.size(), limit);
        uint64_t bytes = 0;
        const uint8_t* end = nullptr;
        for (uint32_t i = 0; i < batch.size(); ++i, ++at) {
          const Extent& e = batch.extent(i);
          const Played got{Bytes(batch.frame(i), batch.frame(i) + e.end), e.wire_end, batch.timestamp_ns(i)};
          ASSERT_TRUE(got == played(frames, at)) << "frame " << at << ", batches of " << limit;
          EXPECT_EQ(e.data, 0);
          EXPECT_EQ(batch.order(i), i);
          EXPECT_EQ(batch.annotation(i).rule, 0u);
          // Headroom and tail room are its own.
          EXPECT_TRUE(end == nullptr || batch.frame(i) - kHeadroom >= end);
          end = batch.frame(i) + e.end + kTailroom;
          bytes += e.end;
          // As programs do.
          std::memset(batch.frame(i) - kHeadroom, 0xee, kHeadroom + e.end + kTailroom);
          batch.annotation(i).rule = 7;
        }
        Selection all;
        all.fill(batch.size());
        EXPECT_EQ(batch.bytes(all), bytes);
      }
      EXPECT_EQ(at, 200u);
    }
  }
}

// Where all have as many lines of memory they take a way of their own.
TEST_F(MemorySourceTest, PlaysFramesOfAsManyLines) {
  for (const std::vector<uint32_t>& sizes : {std::vector<uint32_t>{60, 64, 14, 1, 63, 60, 33},
                                             {65, 72, 128, 100, 127},
                                             {129, 192, 130},
                                             {1500, 1514, 1520},
                                             {0, 0},
                                             {64, 65, 64}}) {
    for (const size_t arena : {size_t{4096}, size_t{1} << 20}) {
      const auto frames = frames_of(sizes);
      auto source = open(frames, 100);
      Batch batch = Batch::create(30, arena).value();
      size_t at = 0;
      while (true) {
        ASSERT_TRUE(source->read(batch).ok());
        if (batch.size() == 0) break;
        const uint8_t* end = nullptr;
        for (uint32_t i = 0; i < batch.size(); ++i, ++at) {
          const Extent& e = batch.extent(i);
          const Played got{Bytes(batch.frame(i), batch.frame(i) + e.end), e.wire_end, batch.timestamp_ns(i)};
          ASSERT_TRUE(got == played(frames, at)) << "frame " << at;
          EXPECT_TRUE(end == nullptr || batch.frame(i) - kHeadroom >= end);
          end = batch.frame(i) + e.end + kTailroom;
          std::memset(batch.frame(i) - kHeadroom, 0xee, kHeadroom + e.end + kTailroom);
        }
      }
      EXPECT_EQ(at, 100u);
    }
  }
}

// Whoever runs batches copies them after further reads, in any order; a read between them goes on behind.
TEST_F(MemorySourceTest, LetsTakenPacketsBeCopiedLater) {
  for (const std::vector<uint32_t>& sizes :
       {std::vector<uint32_t>{60, 64, 14, 1, 63}, {60, 1514, 129, 64, 300, 1, 128}, {65, 66}, {0, 0}}) {
    const auto frames = frames_of(sizes);
    for (const size_t arena : {size_t{4096}, size_t{1} << 20}) {
      auto source = open(frames, 500);
      std::vector<Batch> batches;
      std::vector<BatchSource::Taken> taken;
      std::vector<bool> later;
      size_t took = 0;
      while (true) {
        batches.push_back(Batch::create(40, arena).value());
        taken.emplace_back();
        Batch& batch = batches.back();
        batch.set_limit(1 + static_cast<uint32_t>(batches.size() * 7 % 40));
        later.push_back(batches.size() % 5 != 0 && source->take(batch, taken.back()));
        took += later.back();
        if (!later.back()) {
          ASSERT_TRUE(source->read(batch).ok());
        }
        if (batch.size() == 0) break;
      }
      // What fits the arena, however long its frames are; the last batch is empty.
      if (arena > 4096) {
        EXPECT_GE(took, batches.size() - batches.size() / 5 - 1);
      } else {
        EXPECT_LT(took, batches.size() - batches.size() / 5 - 1);
      }
      for (size_t b = batches.size(); b-- != 0;) {
        const uint32_t said = batches[b].size();
        if (later[b] && said != 0) source->copy(batches[b], taken[b]);
        ASSERT_EQ(batches[b].size(), said);
      }
      size_t at = 0;
      for (Batch& batch : batches) {
        const uint8_t* end = nullptr;
        for (uint32_t i = 0; i < batch.size(); ++i, ++at) {
          const Extent& e = batch.extent(i);
          const Played got{Bytes(batch.frame(i), batch.frame(i) + e.end), e.wire_end, batch.timestamp_ns(i)};
          ASSERT_TRUE(got == played(frames, at)) << "frame " << at;
          EXPECT_EQ(batch.order(i), i);
          EXPECT_TRUE(end == nullptr || batch.frame(i) - kHeadroom >= end);
          end = batch.frame(i) + e.end + kTailroom;
        }
      }
      EXPECT_EQ(at, 500u);
    }
  }
}

TEST_F(MemorySourceTest, GrowsABatchForAFrameLargerThanItsMemory) {
  const auto frames = frames_of({60, 200'000, 60});
  auto source = open(frames, 9);
  Batch batch = Batch::create(16, 4096).value();
  size_t at = 0;
  while (true) {
    ASSERT_TRUE(source->read(batch).ok());
    if (batch.size() == 0) break;
    for (uint32_t i = 0; i < batch.size(); ++i, ++at) {
      ASSERT_EQ(Bytes(batch.frame(i), batch.frame(i) + batch.extent(i).end), frames[at % 3].bytes) << at;
    }
  }
  EXPECT_EQ(at, 9u);
}

TEST(Batch, SumsTheLengthsOfAnySelection) {
  Batch batch = Batch::create(300, 0).value();
  uint8_t frame[1] = {};
  for (uint32_t i = 0; i < 300; ++i) batch.push(frame, 40 + i * 7, 40 + i * 7, 0, i);
  for (uint32_t i = 0; i < 300; i += 3) batch.extent(i).data = static_cast<int32_t>(i % 20) - 18;
  for (uint32_t step = 1; step < 9; ++step) {
    for (uint32_t from : {0u, 1u, 63u, 64u, 200u}) {
      Selection some;
      uint64_t want = 0;
      for (uint32_t i = from; i < 300; i += step) {
        some.add(i);
        want += batch.data_length(i);
      }
      EXPECT_EQ(batch.bytes(some), want) << from << ' ' << step;
    }
  }
}

// Rows are numbered by `append` whatever `push` left there.
TEST(Batch, NumbersTheRowsThatAreAppended) {
  Batch batch = Batch::create(8, 0).value();
  uint8_t frame[1] = {};
  for (uint32_t i = 0; i < 8; ++i) batch.push(frame, 1, 1, 0, 70 - i);
  batch.clear();
  batch.append(8);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(batch.order(i), i);
}

}  // namespace
}  // namespace sluice

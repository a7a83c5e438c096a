#include "ports/sender.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

// Takes frames while it has room, and says when each came, by a clock that waiting moves on.
class Queue final : public TxQueue {
 public:
  uint32_t send(std::span<const TxFrame> frames) override {
    uint32_t n = 0;
    for (; n < frames.size() && room != 0; ++n, --room) {
      taken.emplace_back(frames[n].data, frames[n].data + frames[n].bytes);
      at_ns.push_back(now_ns);
      EXPECT_EQ(frames[n].pool, nullptr);
    }
    return n;
  }
  void flush() override { ++flushes; }
  FramePool* pool() override { return nullptr; }
  uint64_t in_flight() override { return stuck; }
  TxCounters counters() const override { return {}; }

  std::vector<std::vector<uint8_t>> taken;
  std::vector<uint64_t> at_ns;
  uint64_t room = ~uint64_t{0}, stuck = 0, now_ns = 1'000'000, flushes = 0;
};

class SenderTest : public ::testing::Test {
 protected:
  SenderTest() {
    options.clock_ns = [this] { return queue.now_ns; };
    options.wait_ns = [this](uint64_t ns) { queue.now_ns += ns; };
  }
  void add(uint32_t bytes, uint64_t timestamp_ns) {
    std::vector<uint8_t> frame(bytes, static_cast<uint8_t>(store.size() + 1));
    ASSERT_TRUE(store.add({bytes, bytes, timestamp_ns}, frame.data()));
  }
  std::vector<uint64_t> times() const {
    std::vector<uint64_t> all;
    for (const uint64_t at : queue.at_ns) all.push_back(at - 1'000'000);
    return all;
  }

  FrameStore store;
  Queue queue;
  SendOptions options;
};

TEST_F(SenderTest, SendsEachFrameOnceAndInOrder) {
  for (uint32_t i = 0; i < 200; ++i) add(60 + i, 0);
  const SendReport report = send_frames(store, queue, options);
  ASSERT_EQ(queue.taken.size(), 200u);
  for (uint32_t i = 0; i < 200; ++i)
    EXPECT_EQ(queue.taken[i], std::vector<uint8_t>(60 + i, static_cast<uint8_t>(i + 1)));
  EXPECT_EQ(report.packets, 200u);
  EXPECT_EQ(report.bytes, 200u * 60 + 199 * 200 / 2);
  EXPECT_EQ(report.full, 0u);
  EXPECT_FALSE(report.stopped);
  EXPECT_NE(queue.flushes, 0u);
}

TEST_F(SenderTest, KeepsARateOfPacketsExactly) {
  for (int i = 0; i < 10; ++i) add(64, 0);
  options.packets_per_second = 3'000'000;  // 333.3 ns
  const SendReport report = send_frames(store, queue, options);
  EXPECT_EQ(times(), (std::vector<uint64_t>{0, 333, 666, 1000, 1333, 1666, 2000, 2333, 2666, 3000}));
  EXPECT_EQ(report.late_ns, 0u);
  EXPECT_EQ(report.elapsed_ns, 3000u);
}

TEST_F(SenderTest, KeepsARateOfBits) {
  add(100, 0);
  add(1000, 0);
  add(100, 0);
  options.bits_per_second = 8'000'000;  // a byte in a microsecond
  options.loop = true;
  options.limit = 4;
  (void)send_frames(store, queue, options);
  EXPECT_EQ(times(), (std::vector<uint64_t>{0, 100'000, 1'100'000, 1'200'000}));
}

TEST_F(SenderTest, KeepsTheGapsOfTheCaptureInEveryTurn) {
  add(64, 5'000);
  add(64, 7'000);
  add(64, 6'000);  // goes back: it waits for nothing
  add(64, 11'000);
  options.as_timed = true;
  options.loop = true;
  options.limit = 6;
  (void)send_frames(store, queue, options);
  // A turn takes 6 us and a mean gap of 2.
  EXPECT_EQ(times(), (std::vector<uint64_t>{0, 2'000, 2'000, 6'000, 8'000, 10'000}));
}

TEST_F(SenderTest, GivesAgainWhatAFullPortDidNotTake) {
  for (int i = 0; i < 100; ++i) add(64, 0);
  queue.room = 0;  // all are due by the time that it has some
  options.packets_per_second = 1'000'000'000;
  options.wait_ns = [this](uint64_t ns) {
    queue.now_ns += ns;
    queue.room = 7;
  };
  const SendReport report = send_frames(store, queue, options);
  ASSERT_EQ(queue.taken.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(queue.taken[static_cast<size_t>(i)][0], i + 1);
  EXPECT_EQ(report.packets, 100u);
  EXPECT_GT(report.full, 5u);
  EXPECT_GT(report.late_ns, 0u);
}

TEST_F(SenderTest, EndsWithItsDuration) {
  add(64, 0);
  options.packets_per_second = 1000;
  options.loop = true;
  options.duration_ns = 3'000'000;
  const SendReport report = send_frames(store, queue, options);
  EXPECT_EQ(times(), (std::vector<uint64_t>{0, 1'000'000, 2'000'000}));
  EXPECT_FALSE(report.stopped);
}

TEST_F(SenderTest, MarksEachFrameWithItsNumberAlsoThatWhichIsGivenAgain) {
  for (int i = 0; i < 70; ++i) add(64, 0);
  queue.room = 5;
  options.loop = true;
  options.limit = 300;
  options.wait_ns = [this](uint64_t ns) {
    queue.now_ns += ns;
    queue.room = 7;
  };
  options.mark = [&](std::span<const TxFrame> burst, uint64_t first) {
    for (const TxFrame& frame : burst) {
      frame.data[0] = static_cast<uint8_t>(first >> 8);
      frame.data[1] = static_cast<uint8_t>(first++);
      frame.data[2] = static_cast<uint8_t>(queue.now_ns / 20'000);
    }
  };
  (void)send_frames(store, queue, options);
  ASSERT_EQ(queue.taken.size(), 300u);
  for (uint32_t i = 0; i < 300; ++i) {
    EXPECT_EQ(queue.taken[i][0] << 8 | queue.taken[i][1], static_cast<int>(i));
    EXPECT_EQ(queue.taken[i][2], static_cast<uint8_t>(queue.at_ns[i] / 20'000));
  }
}

TEST_F(SenderTest, EndsWhenItIsToldTo) {
  add(64, 0);
  std::atomic<bool> stop{false};
  options.stop = &stop;
  options.loop = true;
  options.packets_per_second = 1000;
  options.wait_ns = [&](uint64_t ns) {
    queue.now_ns += ns;
    stop = queue.taken.size() == 3;
  };
  const SendReport report = send_frames(store, queue, options);
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(report.packets, 3u);
}

TEST_F(SenderTest, SaysWhatHasNotLeft) {
  add(64, 0);
  queue.stuck = 1;
  const SendReport report = send_frames(store, queue, options);
  EXPECT_EQ(report.packets, 1u);
  EXPECT_EQ(report.in_flight, 1u);
}

}  // namespace
}  // namespace sluice

// Packets that wait for their neighbours: how many, how long, and when is asked; the clock is the test's.
#include "exec/engine/neighbour_wait.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

#include "net/text.h"

namespace sluice::neighbour_wait_test {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

NeighbourKey neighbour(uint32_t n) {
  return {3, {0, 0x0a020000u + n, 4}};
}

struct World {
  NeighbourWait wait;
  uint64_t now = 1000 * kSecond;
  uint32_t next = 0;
  std::vector<uint32_t> left;
  size_t held = 0, refused = 0, late = 0, asked = 0;

  NeighbourWait::Came come(uint32_t to, size_t output = 0) {
    // The frame is gone when the call returns.
    std::vector<uint8_t> frame(60, static_cast<uint8_t>(next));
    TxRecord record{};
    record.data = frame.data();
    record.captured = record.wire = 60;
    record.order = next++;
    const auto came = wait.come(output, neighbour(to), record, now);
    ++(came.waits ? held : refused);
    asked += came.asks ? 1 : 0;
    return came;
  }
  void expire() {
    wait.expire(now, [&](size_t, const TxRecord&) { ++late; });
  }
  void known(uint32_t to, size_t output = 0) {
    std::vector<TxRecord> out;
    wait.release(
        output, [&](const NeighbourKey& key) { return key == neighbour(to); }, out);
    for (const TxRecord& record : out) {
      EXPECT_EQ(record.data[59], static_cast<uint8_t>(record.order));
      EXPECT_EQ(record.pool, nullptr);
      left.push_back(record.order);
    }
    wait.forget();
  }
};

TEST(NeighbourWait, ThreePacketsWaitAndLeaveInTheirOrder) {
  World w;
  EXPECT_FALSE(w.wait.waits(0, neighbour(7)));
  for (int i = 0; i < 5; ++i) w.come(7);
  w.come(8);
  EXPECT_TRUE(w.wait.waits(0, neighbour(7)));
  EXPECT_FALSE(w.wait.waits(1, neighbour(7)));
  EXPECT_EQ(w.held, 4u);
  EXPECT_EQ(w.refused, 2u);
  EXPECT_EQ(w.wait.packets(), 4u);
  w.known(7);
  EXPECT_FALSE(w.wait.waits(0, neighbour(7)));
  EXPECT_EQ(w.left, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(w.wait.packets(), 1u);
  w.known(7);
  EXPECT_EQ(w.left.size(), 3u);
  // Then three more may.
  for (int i = 0; i < 4; ++i) w.come(7);
  EXPECT_EQ(w.held, 7u);
}

TEST(NeighbourWait, ANeighbourIsAskedForOnceASecondWhateverComes) {
  World w;
  for (int i = 0; i < 1000; ++i, w.now += kSecond / 100) {
    w.expire();
    w.come(7);
    w.come(8);
  }
  EXPECT_EQ(w.asked, 2u * 10);
}

TEST(NeighbourWait, ANeighbourThatFlapsIsAskedForNoMoreOften) {
  World w;
  for (int i = 0; i < 100; ++i, w.now += kSecond / 100) {
    w.expire();
    w.come(7);
    w.known(7);
  }
  EXPECT_EQ(w.left.size(), 100u);
  EXPECT_EQ(w.asked, 1u);
  w.come(7);
  EXPECT_EQ(w.asked, 2u);
  w.known(7);
  w.now += kSecond;
  w.expire();
  EXPECT_TRUE(w.wait.empty());
}

TEST(NeighbourWait, PacketsWaitThreeSeconds) {
  World w;
  w.come(7);
  w.now += kSecond;
  w.come(7);
  w.now += 2 * kSecond - 1;
  w.expire();
  EXPECT_EQ(w.late, 0u);
  w.now += 1;
  w.expire();
  EXPECT_EQ(w.late, 1u);
  EXPECT_EQ(w.wait.packets(), 1u);
  w.known(7);
  EXPECT_EQ(w.left, (std::vector<uint32_t>{1}));
  w.come(7);
  w.now += 4 * kSecond;
  w.expire();
  EXPECT_EQ(w.late, 2u);
  EXPECT_TRUE(w.wait.empty());
}

TEST(NeighbourWait, OutputsAreApart) {
  World w;
  w.come(7, 0);
  w.come(7, 1);
  w.known(7, 1);
  EXPECT_EQ(w.left, (std::vector<uint32_t>{1}));
  EXPECT_EQ(w.wait.drop(1, [](const TxRecord&) {}), 0u);
  EXPECT_EQ(w.wait.drop(0, [](const TxRecord&) {}), 1u);
  EXPECT_EQ(w.wait.packets(), 0u);
}

// Whoever sends to all addresses of a large network takes neither memory nor the kernel's time without bound.
TEST(NeighbourWait, IsBounded) {
  World w;
  for (uint32_t i = 0; i < 100'000; ++i) w.come(i);
  EXPECT_EQ(w.held, NeighbourWait::kMostNeighbours);
  EXPECT_EQ(w.asked, NeighbourWait::kMostNeighbours);
  EXPECT_EQ(w.wait.packets(), NeighbourWait::kMostNeighbours);
  w.now += 3 * kSecond;
  w.expire();
  EXPECT_EQ(w.late, NeighbourWait::kMostNeighbours);
  EXPECT_TRUE(w.wait.empty());
  EXPECT_TRUE(w.come(5).waits);
}

}  // namespace
}  // namespace sluice::neighbour_wait_test

#include "memory/frame_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

namespace sluice {
namespace {

TEST(FramePool, EveryChunkHasOneOwnerAndAnyByteNamesIt) {
  auto pool = MappedFramePool::create({.stride = 2112, .chunks = 100});
  ASSERT_TRUE(pool.ok());
  std::vector<uint8_t*> taken(150);
  ASSERT_EQ((*pool)->take(taken), 100u);
  EXPECT_EQ((*pool)->out(), 100u);
  taken.resize(100);
  EXPECT_EQ(std::set<uint8_t*>(taken.begin(), taken.end()).size(), 100u);
  const auto memory = (*pool)->memory();
  for (uint8_t* chunk : taken) {
    EXPECT_GE(reinterpret_cast<std::byte*>(chunk), memory.data());
    EXPECT_LE(reinterpret_cast<std::byte*>(chunk) + 2112, memory.data() + memory.size());
    EXPECT_EQ((*pool)->chunk_of(chunk + 2111), chunk);
  }
  // Back by an address in the middle, in another order.
  std::vector<uint8_t*> back;
  for (size_t i = 0; i < taken.size(); ++i) back.push_back(taken[(i * 37) % 100] + (i * 131) % 2112);
  (*pool)->give(back);
  EXPECT_EQ((*pool)->out(), 0u);
  std::vector<uint8_t*> again(100);
  ASSERT_EQ((*pool)->take(again), 100u);
  std::sort(taken.begin(), taken.end());
  std::sort(again.begin(), again.end());
  EXPECT_EQ(taken, again);
}

TEST(FramePool, RefusesAShapeThatHoldsNoFrame) {
  EXPECT_FALSE(MappedFramePool::create({.stride = 256}).ok());
  EXPECT_FALSE(MappedFramePool::create({.chunks = 0}).ok());
}

TEST(FramePool, ThreadsTakeAndGiveAtOnce) {
  auto pool = MappedFramePool::create({.chunks = 512});
  ASSERT_TRUE(pool.ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<uint8_t*> mine(64);
      for (int round = 0; round < 2000; ++round) {
        const uint32_t n = (*pool)->take(mine);
        for (uint32_t i = 0; i < n; ++i) *mine[i] = static_cast<uint8_t>(t);
        for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(*mine[i], t);
        (*pool)->give({mine.data(), n});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ((*pool)->out(), 0u);
}

}  // namespace
}  // namespace sluice

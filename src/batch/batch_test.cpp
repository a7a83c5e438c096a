#include "batch/batch.h"

#include <gtest/gtest.h>

#include <cstring>

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

}  // namespace
}  // namespace sluice

#include "base/bits.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace sluice {
namespace {

TEST(Bits, EdgesOfTheWord) {
  EXPECT_EQ(popcount32(0), 0u);
  EXPECT_EQ(popcount32(~0u), 32u);
  EXPECT_EQ(popcount64(~uint64_t{0}), 64u);
  EXPECT_EQ(leading_zeros32(0), 32u);
  EXPECT_EQ(leading_zeros64(0), 64u);
  EXPECT_EQ(trailing_zeros32(0), 32u);
  EXPECT_EQ(trailing_zeros64(0), 64u);
  EXPECT_EQ(bit_width64(0), 0u);
  EXPECT_EQ(bit_width64(~uint64_t{0}), 64u);
  EXPECT_EQ(ceil_div(~uint64_t{0}, 1), ~uint64_t{0});
  EXPECT_EQ(ceil_div(~uint64_t{0}, 2), uint64_t{1} << 63);
  EXPECT_EQ(ceil_div(0, 7), 0u);
  EXPECT_FALSE(is_power_of_two(0));
  EXPECT_TRUE(is_power_of_two(1));
}

TEST(Bits, AgreeWithCountingBitByBit) {
  EXPECT_TRUE(rc::check([](uint64_t seed) {
    const uint64_t v = seed * 0x9e3779b97f4a7c15u >> *rc::gen::inRange(0, 64);
    unsigned ones = 0;
    unsigned highest = 0;
    unsigned lowest = 64;
    for (unsigned bit = 0; bit < 64; ++bit) {
      if ((v >> bit & 1) == 0) continue;
      ++ones;
      highest = bit + 1;
      if (lowest == 64) lowest = bit;
    }
    RC_ASSERT(popcount64(v) == ones);
    RC_ASSERT(leading_zeros64(v) == 64 - highest);
    RC_ASSERT(trailing_zeros64(v) == lowest);
    RC_ASSERT(bit_width64(v) == highest);
    RC_ASSERT(is_power_of_two(v) == (ones == 1));
    const auto low = static_cast<uint32_t>(v);
    RC_ASSERT(popcount32(low) + popcount32(static_cast<uint32_t>(v >> 32)) == ones);
    RC_ASSERT(leading_zeros32(low) == leading_zeros64(low) - 32);
    if (low != 0) RC_ASSERT(trailing_zeros32(low) == lowest);
  }));
}

TEST(Bits, AlignUpIsTheSmallestMultiple) {
  EXPECT_TRUE(rc::check([](uint32_t v) {
    const uint64_t alignment = uint64_t{1} << *rc::gen::inRange(0, 32);
    const uint64_t up = align_up(v, alignment);
    RC_ASSERT(up >= v);
    RC_ASSERT(up - v < alignment);
    RC_ASSERT(up % alignment == 0);
    RC_ASSERT(up == ceil_div(v, alignment) * alignment);
  }));
}

}  // namespace
}  // namespace sluice

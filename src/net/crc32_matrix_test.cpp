#include "net/crc32_matrix.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

namespace sluice {
namespace {

// What eight lanes of four do on a device, for one frame: parities of the input's bits under each row.
uint32_t by_matrix(const Crc32Matrix& m, const uint8_t* window, uint32_t steps) {
  uint32_t crc = 0;
  for (uint32_t g = 0; g < 8; ++g) {
    for (uint32_t tile = 0; tile < 2; ++tile) {
      for (uint32_t half = 0; half < 2; ++half) {
        uint32_t ones = 0;
        for (uint32_t at = 0; at < 16 * steps; ++at) {
          uint32_t word;
          std::memcpy(&word, window + 4 * at, 4);
          const uint32_t in = at % 16;
          const auto& f = m.at[steps - 1 - at / 16][in / 2 % 2][tile][4 * g + in / 4];
          ones += static_cast<uint32_t>(std::popcount(word & f.a[2 * (in % 2) + half]));
        }
        crc |= (ones & 1) << (4 * g + 2 * tile + half);
      }
    }
  }
  return crc;
}

TEST(Crc32Matrix, ParitiesAreTheRegister) {
  static constexpr Crc32Matrix kForward = crc32_detail::make_matrix(false);
  static constexpr Crc32Matrix kReflected = crc32_detail::make_matrix(true);
  std::vector<uint8_t> data(kCrc32Steps * kCrc32StepBytes);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 197 + (i * i >> 5));
  for (uint32_t steps = 1; steps <= kCrc32Steps; ++steps) {
    const uint32_t bytes = steps * kCrc32StepBytes;
    EXPECT_EQ(by_matrix(kForward, data.data(), steps), crc32_bitwise(Crc32Mode::kClick, 0, data.data(), bytes));
    EXPECT_EQ(by_matrix(kReflected, data.data(), steps), crc32_bitwise(Crc32Mode::kFcs, 0, data.data(), bytes));
  }
}

TEST(Crc32Matrix, UnfillTakesZeroBytesBack) {
  for (const bool reflected : {false, true}) {
    const crc32_detail::Unfill u = crc32_detail::make_unfill(reflected);
    const Crc32Mode mode = reflected ? Crc32Mode::kFcs : Crc32Mode::kClick;
    for (uint32_t fill = 0; fill < kCrc32StepBytes; ++fill) {
      // The multiplier of the register's lowest powers.
      const uint32_t filled = crc32_shift(mode, 0x1badcafe, fill);
      EXPECT_EQ(crc32_detail::multiply(reflected, filled, u.at[3 + fill]), 0x1badcafeu);
    }
  }
}

}  // namespace
}  // namespace sluice
